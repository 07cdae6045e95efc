//! The OpenAPI document of old, in protobuf: `kubectl` 1.28 asks for no other before it applies or creates.
//!
//! Upstream counterpart: `/openapi/v2`, with the messages of gnostic's `openapi.v2`.
//!
//! It has no definitions, only what tells a client that the server checks fields itself: for each kind a patch
//! operation with the parameters that the newer document names too.

use super::documents::PATCH_PARAMETERS;

/// The media type that clients accept.
pub(super) const ACCEPTED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// The media type that upstream answers.
pub(super) const CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// A kind that can be patched, and where.
pub(super) struct Patchable {
    pub(super) path: String,
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
}

/// The document.
pub(super) fn document(kinds: impl Iterator<Item = Patchable>) -> Vec<u8> {
    let mut paths = Message::default();
    for kind in kinds {
        let path_item = Message::default().message(8, &patch_operation(&kind));
        paths = paths.message(2, &Message::default().text(1, &kind.path).message(2, &path_item));
    }
    let info = Message::default().text(1, "Kubernetes").text(2, "v1");
    Message::default().text(1, "2.0").message(2, &info).message(8, &paths).0
}

fn patch_operation(kind: &Patchable) -> Message {
    let mut operation = Message::default();
    for (name, type_) in PATCH_PARAMETERS {
        // Parameter of a query, which is one that is not of a body, which is one that is not a reference.
        let query = Message::default().text(2, "query").text(4, name).text(6, type_);
        let parameter = Message::default().message(3, &query);
        operation =
            operation.message(8, &Message::default().message(1, &Message::default().message(2, &parameter)));
    }
    let Patchable { group, version, kind, .. } = kind;
    let yaml = format!("group: {group:?}\nversion: {version}\nkind: {kind}\n");
    let extension = Message::default()
        .text(1, "x-kubernetes-group-version-kind")
        .message(2, &Message::default().text(2, &yaml));
    operation.message(9, &Message::default()).message(13, &extension)
}

/// A protobuf message in the making, of the one wire type that is needed.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn text(self, field: u8, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u8, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// `field` is below 16, so its tag is one byte.
    fn bytes(mut self, field: u8, bytes: &[u8]) -> Self {
        const LENGTH_DELIMITED: u8 = 2;
        self.0.push(field << 3 | LENGTH_DELIMITED);
        let mut length = bytes.len();
        while length >= 0x80 {
            // The low seven bits, and a sign that more follow.
            self.0.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        self.0.push(length as u8);
        self.0.extend_from_slice(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_fields_with_tag_and_length() {
        let message = Message::default().text(1, "2.0").text(2, &"x".repeat(300));
        assert_eq!(message.0[..5], [0x0a, 3, b'2', b'.', b'0']);
        assert_eq!(message.0[5..8], [0x12, 0xac, 0x02], "300 in two bytes");
        assert_eq!(message.0.len(), 5 + 3 + 300);
    }

    #[test]
    fn document_names_kinds_and_parameters() {
        let kind = Patchable {
            path: "/apis/apps/v1/namespaces/{namespace}/deployments/{name}".to_owned(),
            group: "apps",
            version: "v1",
            kind: "Deployment",
        };
        let document = document(std::iter::once(kind));
        let has = |text: &str| document.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(has("/apis/apps/v1/namespaces/{namespace}/deployments/{name}"));
        assert!(has("group: \"apps\"\nversion: v1\nkind: Deployment\n"));
        assert!(has("fieldValidation") && has("dryRun"));
    }
}
