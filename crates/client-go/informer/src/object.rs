use std::sync::Arc;

use kcm_api::{Deployment, Lease, ObjectKey, Pod, ReplicaSet, ReplicationController};

/// What a cache must know of an object to keep it.
///
/// Implement it for a type of your own to cache that; nothing else is asked of it.
pub trait Object: Send + Sync + 'static {
    /// Where the object is.
    fn key(&self) -> ObjectKey;
    /// Which object it is.
    fn uid(&self) -> &Arc<str>;
    /// Which version of the object this is.
    fn resource_version(&self) -> &str;
}

macro_rules! whole_object {
    ($($ty:ty),*) => { $(
        impl Object for $ty {
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
    )* };
}

whole_object!(Deployment, Lease, ReplicaSet, ReplicationController);

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
