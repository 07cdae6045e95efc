//! Implementations of the traits through which caches, controllers and fake API servers access objects.

use std::sync::Arc;

use jiff::Timestamp;
use kcm_meta::{ControllerRef, Object, ObjectKey, SetResourceVersion};

use crate::{Deployment, Lease, Pod, PodControllerRef, ReplicaSet, ReplicationController, Time};

macro_rules! object_with_metadata {
    ($($type:ty),*) => { $(
        impl Object for $type {
            fn key(&self) -> ObjectKey {
                self.metadata.key()
            }

            fn uid_str(&self) -> &str {
                &self.metadata.uid
            }

            fn resource_version_str(&self) -> &str {
                &self.metadata.resource_version
            }

            fn label(&self, key: &str) -> Option<&str> {
                self.metadata.labels.get(key).map(String::as_str)
            }

            fn creation_time(&self) -> Option<Timestamp> {
                self.metadata.creation_timestamp.map(Time::timestamp)
            }

            fn deletion_timestamp(&self) -> Option<Timestamp> {
                self.metadata.deletion_timestamp.map(Time::timestamp)
            }

            fn controller(&self) -> Option<ControllerRef<'_>> {
                self.metadata.controller().map(|controller| ControllerRef {
                    api_version: &controller.api_version,
                    kind: &controller.kind,
                    name: &controller.name,
                    uid: &controller.uid,
                })
            }

            fn controller_key(&self) -> Option<ObjectKey> {
                let name = Arc::clone(&self.metadata.controller()?.name);
                Some(ObjectKey { namespace: Arc::clone(&self.metadata.namespace), name })
            }
        }

        impl SetResourceVersion for $type {
            fn set_resource_version(&mut self, version: &str) {
                version.clone_into(&mut self.metadata.resource_version);
            }
        }
    )* };
}

object_with_metadata!(Deployment, Lease, ReplicaSet, ReplicationController);

impl Object for Pod {
    fn key(&self) -> ObjectKey {
        self.key.clone()
    }

    fn uid_str(&self) -> &str {
        &self.uid
    }

    fn resource_version_str(&self) -> &str {
        &self.resource_version
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    fn creation_time(&self) -> Option<Timestamp> {
        self.creation_timestamp.map(Time::timestamp)
    }

    fn deletion_timestamp(&self) -> Option<Timestamp> {
        self.deletion_timestamp.map(Time::timestamp)
    }

    fn controller(&self) -> Option<ControllerRef<'_>> {
        self.controller.as_deref().map(PodControllerRef::as_controller_ref)
    }

    fn controller_key(&self) -> Option<ObjectKey> {
        let name = Arc::clone(&self.controller.as_ref()?.name);
        Some(ObjectKey { namespace: Arc::clone(&self.key.namespace), name })
    }
}

impl SetResourceVersion for Pod {
    fn set_resource_version(&mut self, version: &str) {
        self.resource_version = version.into();
    }
}

impl PodControllerRef {
    fn as_controller_ref(&self) -> ControllerRef<'_> {
        ControllerRef { api_version: &self.api_version, kind: &self.kind, name: &self.name, uid: &self.uid }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::PodDecoder;

    #[test]
    fn pods_and_lossless_types_return_the_same_metadata() {
        let text = json!({
            "metadata": {
                "namespace": "shop", "name": "web", "uid": "web-1", "resourceVersion": "7", "labels": {"app": "web"},
                "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:05:00Z",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "a-1"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "b", "uid": "b-1", "controller": true},
                ],
            },
        });
        let check = |object: &dyn Object| {
            assert_eq!(object.key(), ObjectKey::new("shop", "web"));
            assert_eq!((object.uid_str(), object.resource_version_str()), ("web-1", "7"));
            assert_eq!((object.label("app"), object.label("tier")), (Some("web"), None));
            assert_eq!(object.creation_time().unwrap().to_string(), "2026-01-02T03:04:05Z");
            assert_eq!(object.deletion_timestamp().unwrap().to_string(), "2026-01-02T03:05:00Z");
            assert!(object.is_being_deleted());
            let controller =
                ControllerRef { api_version: "apps/v1", kind: "ReplicaSet", name: "b", uid: "b-1" };
            assert_eq!(object.controller(), Some(controller));
            assert_eq!(object.controller_key(), Some(ObjectKey::new("shop", "b")));
        };
        check(&serde_json::from_value::<ReplicaSet>(text.clone()).unwrap());
        check(&PodDecoder::default().decode(&text.to_string()).unwrap());
    }
}
