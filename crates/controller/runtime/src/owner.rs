//! Owner of an object.

use std::sync::{Arc, LazyLock};

use kcm_informer::Store;
use kcm_meta::{Object, ObjectKey};

/// Namespace of cluster-scoped objects.
static CLUSTER: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));

/// Returns the object of `owners` that controls `object`.
///
/// Only the UID of the reference is compared, which is unique among all kinds. Returns `None` if the cache does not
/// contain the owner.
///
/// Upstream counterpart: `resolveControllerRef`.
pub fn owner_of<P: Object>(owners: &Store<P>, object: &impl Object) -> Option<Arc<P>> {
    let uid = object.controller()?.uid;
    let mut key = object.controller_key()?;
    let find = |key: &ObjectKey| owners.get(key).filter(|owner| owner.uid() == uid);
    if let Some(owner) = find(&key) {
        return Some(owner);
    }
    key.namespace = Arc::clone(&CLUSTER);
    find(&key)
}
