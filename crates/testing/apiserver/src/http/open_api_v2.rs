//! OpenAPI v2 document in protobuf. `kubectl` 1.28 requires it for apply and create.
//!
//! Upstream counterpart: `/openapi/v2`, with gnostic's `openapi.v2` messages.
//!
//! It has no definitions, only a patch operation per kind. Its parameters indicate server-side field validation, as in
//! the OpenAPI v3 document.

use super::open_api::{PATCH_PARAMETERS, Patchable};

/// Accepted media type.
pub(super) const ACCEPTED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// Media type of the response, as upstream.
pub(super) const CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Builds the document.
pub(super) fn document<'a>(kinds: impl Iterator<Item = Patchable<'a>>) -> Vec<u8> {
    let mut paths = Message::default();
    for kind in kinds {
        let path_item = Message::default().message(8, &patch_operation(&kind));
        paths = paths.message(2, &Message::default().text(1, &kind.object_path()).message(2, &path_item));
    }
    let info = Message::default().text(1, "Kubernetes").text(2, "v1");
    Message::default().text(1, "2.0").message(2, &info).message(8, &paths).0
}

fn patch_operation(kind: &Patchable<'_>) -> Message {
    let mut operation = Message::default();
    for (name, type_) in PATCH_PARAMETERS {
        // Nested oneofs: parametersItem.parameter → parameter.nonBodyParameter → nonBodyParameter.queryParameterSubSchema.
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

/// Builder of a protobuf message. Supports length-delimited fields only.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn text(self, field: u8, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u8, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// Appends a field. `field` must be below 16, so that its tag is one byte.
    fn bytes(mut self, field: u8, bytes: &[u8]) -> Self {
        const LENGTH_DELIMITED: u8 = 2;
        self.0.push(field << 3 | LENGTH_DELIMITED);
        let mut length = bytes.len();
        while length >= 0x80 {
            // Lower seven bits with the continuation bit.
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
    fn fields_have_tag_and_length() {
        let message = Message::default().text(1, "2.0").text(2, &"x".repeat(300));
        assert_eq!(message.0[..5], [0x0a, 3, b'2', b'.', b'0']);
        assert_eq!(message.0[5..8], [0x12, 0xac, 0x02], "300 in two bytes");
        assert_eq!(message.0.len(), 5 + 3 + 300);
    }

    #[test]
    fn document_contains_kinds_and_parameters() {
        let kind = Patchable {
            all: None,
            collection: "/apis/apps/v1/namespaces/{namespace}/deployments".to_owned(),
            group: "apps",
            version: "v1",
            kind: "Deployment",
            custom: None,
        };
        let document = document(std::iter::once(kind));
        let has = |text: &str| document.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(has("/apis/apps/v1/namespaces/{namespace}/deployments/{name}"));
        assert!(has("group: \"apps\"\nversion: v1\nkind: Deployment\n"));
        assert!(has("fieldValidation") && has("dryRun"));
    }
}
