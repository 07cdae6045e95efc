use serde_json::Value;

use crate::OwnerIdentity;

/// Body of a strategic merge patch that adds or removes an owner reference (US-3.4).
///
/// The UID of the object is a precondition: another object of the same name is not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerPatch(String);

impl OwnerPatch {
    /// Returns the patch that makes `owner` the managing owner of the object with `object_uid`.
    ///
    /// The API server rejects it with 422 if the object has another managing owner.
    pub fn adopt(owner: &OwnerIdentity, object_uid: &str) -> Self {
        let (api_version, kind) = (json(owner.api_version), json(owner.kind));
        let (name, uid, object_uid) = (json(&owner.name), json(&owner.uid), json(object_uid));
        Self(format!(
            r#"{{"metadata":{{"ownerReferences":[{{"apiVersion":{api_version},"kind":{kind},"name":{name},"uid":{uid},"controller":true,"blockOwnerDeletion":true}}],"uid":{object_uid}}}}}"#
        ))
    }

    /// Returns the patch that removes the references to `owner_uid` from the object with `object_uid`.
    pub fn release(owner_uid: &str, object_uid: &str) -> Self {
        let (owner_uid, object_uid) = (json(owner_uid), json(object_uid));
        Self(format!(
            r#"{{"metadata":{{"uid":{object_uid},"ownerReferences":[{{"$patch":"delete","uid":{owner_uid}}}]}}}}"#
        ))
    }

    /// Returns the patch as JSON, with fields in the order of upstream.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

/// Returns `text` as a JSON string. Serializing the whole body from a tree would sort the fields.
fn json(text: &str) -> Value {
    Value::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopt_matches_upstream() {
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

    /// Upstream: TestGeneratePatchBytesForDelete, the cases with one owner and without finalizers.
    #[test]
    fn generate_patch_bytes_for_delete() {
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
