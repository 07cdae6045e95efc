use kcm_api::OwnerReference;
use serde::Serialize;
use serde_json::{Value, json};

use crate::OwnerIdentity;

/// Change of the owner references of an object (US-3.4).
///
/// API servers accept strategic merge patches only for built-in types. For a custom resource, the change is a
/// [merge patch](Self::merge).
///
/// The UID of the object is a precondition of both: another object of the same name is not changed.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnerPatch {
    object_uid: String,
    change: Change,
}

#[derive(Debug, Clone, PartialEq)]
enum Change {
    Adopt(Box<OwnerReference>),
    Release { owner_uid: String },
}

impl OwnerPatch {
    /// Returns the patch that makes `owner` the managing owner of the object with `object_uid`.
    ///
    /// The API server rejects it with 422 if the object has another managing owner.
    pub fn adopt(owner: &OwnerIdentity, object_uid: &str) -> Self {
        let change = Change::Adopt(Box::new(owner.controller_reference()));
        Self { object_uid: object_uid.to_owned(), change }
    }

    /// Returns the patch that removes the references to `owner_uid` from the object with `object_uid`.
    pub fn release(owner_uid: &str, object_uid: &str) -> Self {
        let change = Change::Release { owner_uid: owner_uid.to_owned() };
        Self { object_uid: object_uid.to_owned(), change }
    }

    /// `true` if the patch adds a reference, `false` if it removes one.
    pub fn is_adoption(&self) -> bool {
        matches!(self.change, Change::Adopt(_))
    }

    /// Returns the body of a strategic merge patch, with fields in the order of upstream.
    pub fn strategic_merge(&self) -> String {
        let object_uid = json(&self.object_uid);
        match &self.change {
            Change::Adopt(owner) => {
                let (api_version, kind) = (json(&owner.api_version), json(&owner.kind));
                let (name, uid) = (json(&owner.name), json(&owner.uid));
                format!(
                    r#"{{"metadata":{{"ownerReferences":[{{"apiVersion":{api_version},"kind":{kind},"name":{name},"uid":{uid},"controller":true,"blockOwnerDeletion":true}}],"uid":{object_uid}}}}}"#
                )
            }
            Change::Release { owner_uid } => {
                let owner_uid = json(owner_uid);
                format!(
                    r#"{{"metadata":{{"uid":{object_uid},"ownerReferences":[{{"$patch":"delete","uid":{owner_uid}}}]}}}}"#
                )
            }
        }
    }

    /// Returns the body of a merge patch, or `None` if the references need no change.
    ///
    /// A merge patch replaces the list, so it contains all references. `references` are those of the object at
    /// `resource_version`, which is a precondition: if the object has changed since, the API server rejects the patch
    /// with 409. Pass the references as they were read to keep fields that a type does not have.
    ///
    /// Upstream counterpart: the patches of the garbage collector for custom resources.
    ///
    /// # Errors
    ///
    /// If a reference cannot be serialized as a JSON object.
    pub fn merge<R: Serialize>(
        &self,
        resource_version: &str,
        references: &[R],
    ) -> Result<Option<String>, serde_json::Error> {
        let before = references.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        let mut after = before.clone();
        match &self.change {
            Change::Adopt(owner) => {
                let reference = serde_json::to_value(owner)?;
                let same = after.iter_mut().filter_map(Value::as_object_mut);
                match same.into_iter().find(|existing| existing.get("uid") == reference.get("uid")) {
                    Some(existing) => existing.extend(reference.as_object().cloned().unwrap_or_default()),
                    None => after.push(reference),
                }
            }
            Change::Release { owner_uid } => {
                after.retain(|reference| reference.get("uid").and_then(Value::as_str) != Some(owner_uid));
            }
        }
        let body = || {
            let metadata = json!({
                "uid": self.object_uid, "resourceVersion": resource_version, "ownerReferences": after,
            });
            json!({ "metadata": metadata }).to_string()
        };
        Ok((after != before).then(body))
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
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            namespace: "default".into(),
            name: "web".into(),
            uid: "owner-uid".into(),
            deleting: false,
        };
        assert_eq!(
            OwnerPatch::adopt(&owner, "pod-uid").strategic_merge(),
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
            assert_eq!(OwnerPatch::release(owner, dependent).strategic_merge(), body, "{name}");
        }
    }

    mod merge {
        use serde_json::from_str;

        use super::*;

        fn owner() -> OwnerIdentity {
            OwnerIdentity {
                api_version: "example.org/v1".into(),
                kind: "Shop".into(),
                namespace: "default".into(),
                name: "shop".into(),
                uid: "shop-uid".into(),
                deleting: false,
            }
        }

        fn reference(kind: &str, uid: &str) -> Value {
            json!({"apiVersion": "v1", "kind": kind, "name": "n", "uid": uid, "futureField": {"deep": [1]}})
        }

        fn ours() -> Value {
            json!({
                "apiVersion": "example.org/v1", "kind": "Shop", "name": "shop", "uid": "shop-uid",
                "controller": true, "blockOwnerDeletion": true,
            })
        }

        /// Returns the references of the patch, and checks its preconditions.
        fn references(patch: &OwnerPatch, before: &[Value]) -> Option<Value> {
            let body: Value = from_str(&patch.merge("7", before).unwrap()?).unwrap();
            assert_eq!(
                (&body["metadata"]["uid"], &body["metadata"]["resourceVersion"]),
                (&json!("web-uid"), &json!("7"))
            );
            Some(body["metadata"]["ownerReferences"].clone())
        }

        #[test]
        fn adopt_keeps_other_references() {
            let adopt = OwnerPatch::adopt(&owner(), "web-uid");
            assert_eq!(references(&adopt, &[]), Some(json!([ours()])));
            let other = reference("ConfigMap", "c");
            assert_eq!(references(&adopt, std::slice::from_ref(&other)), Some(json!([other, ours()])));
        }

        #[test]
        fn adopt_updates_the_reference_that_the_owner_has() {
            let adopt = OwnerPatch::adopt(&owner(), "web-uid");
            let mut updated = ours();
            updated["futureField"] = json!({"deep": [1]});
            assert_eq!(references(&adopt, &[reference("Shop", "shop-uid")]), Some(json!([updated])));
            assert_eq!(references(&adopt, &[updated]), None);
        }

        #[test]
        fn release_removes_only_the_references_to_the_owner() {
            let release = OwnerPatch::release("shop-uid", "web-uid");
            let other = reference("ConfigMap", "c");
            assert_eq!(references(&release, &[ours(), other.clone()]), Some(json!([other])));
            assert_eq!(references(&release, &[ours()]), Some(json!([])));
            assert_eq!(references(&release, &[other]), None);
        }
    }
}
