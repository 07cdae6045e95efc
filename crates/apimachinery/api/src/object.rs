//! Implementations of the traits through which caches and fake API servers access objects.

use std::sync::Arc;

use kcm_meta::{Object, ObjectKey, SetResourceVersion};

use crate::{Deployment, Lease, Pod, ReplicaSet, ReplicationController};

macro_rules! object_with_metadata {
    ($($type:ty),*) => { $(
        impl Object for $type {
            fn key(&self) -> ObjectKey {
                self.metadata.key()
            }

            fn uid(&self) -> &Arc<str> {
                &self.metadata.uid
            }

            fn resource_version(&self) -> &str {
                &self.metadata.resource_version
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

    fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl SetResourceVersion for Pod {
    fn set_resource_version(&mut self, version: &str) {
        self.resource_version = version.into();
    }
}
