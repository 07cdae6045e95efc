use serde_json::Value;

use crate::OwnerIdentity;

/// The body of a strategic merge patch that adds or removes an owner reference (US-3.4).
///
/// The object's UID goes along as a precondition: an object of the same name that came later is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerPatch(String);

impl OwnerPatch {
    /// Makes `owner` the managing owner of the object with `object_uid`.
    ///
    /// The server refuses it (422) when the object has another managing owner by then.
    pub fn adopt(owner: &OwnerIdentity, object_uid: &str) -> Self {
        let (api_version, kind) = (json(owner.api_version), json(owner.kind));
        let (name, uid, object_uid) = (json(&owner.name), json(&owner.uid), json(object_uid));
        Self(format!(
            r#"{{"metadata":{{"ownerReferences":[{{"apiVersion":{api_version},"kind":{kind},"name":{name},"uid":{uid},"controller":true,"blockOwnerDeletion":true}}],"uid":{object_uid}}}}}"#
        ))
    }

    /// Removes the references to the owner with `owner_uid` from the object with `object_uid`.
    pub fn release(owner_uid: &str, object_uid: &str) -> Self {
        let (owner_uid, object_uid) = (json(owner_uid), json(object_uid));
        Self(format!(
            r#"{{"metadata":{{"uid":{object_uid},"ownerReferences":[{{"$patch":"delete","uid":{owner_uid}}}]}}}}"#
        ))
    }

    /// The patch as JSON text, fields in the order in which upstream sends them.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

/// `text` as a JSON string. A tree would do the whole body, but would order the fields by name.
fn json(text: &str) -> Value {
    Value::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopt_spells_the_body_as_upstream_does() {
        let owner = OwnerIdentity {
            api_version: "apps/v1",
            kind: "ReplicaSet",
            namespace: "default".into(),
            name: "web".into(),
            uid: "owner-uid".into(),
            deleting: false,
        };
        assert_eq!(
            OwnerPatch::adopt(&owner, "pod-uid").as_json(),
            r#"{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"owner-uid","controller":true,"blockOwnerDeletion":true}],"uid":"pod-uid"}}"#
        );
    }

    /// Upstream: TestGeneratePatchBytesForDelete, as far as it is about one owner and no finalizer: that is all that
    /// these controllers send.
    #[test]
    fn generate_patch_bytes_for_delete_spells_the_body_as_upstream_does() {
        let cases = [
            (
                "check the structure of patch bytes",
                "ss1",
                "ss2",
                r#"{"metadata":{"uid":"ss2","ownerReferences":[{"$patch":"delete","uid":"ss1"}]}}"#,
            ),
            (
                "check if parent uid is escaped",
                r#"ss1"hello"#,
                "ss2",
                r#"{"metadata":{"uid":"ss2","ownerReferences":[{"$patch":"delete","uid":"ss1\"hello"}]}}"#,
            ),
            (
                "check if revision uid uid is escaped",
                "ss1",
                r#"ss2"hello"#,
                r#"{"metadata":{"uid":"ss2\"hello","ownerReferences":[{"$patch":"delete","uid":"ss1"}]}}"#,
            ),
        ];
        for (name, owner, dependent, body) in cases {
            assert_eq!(OwnerPatch::release(owner, dependent).as_json(), body, "{name}");
        }
    }
}
