//! Owner of an object.

use std::sync::{Arc, LazyLock};

use kcm_informer::Store;
use kcm_meta::Object;

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
    let owners = owners.read();
    if owners.is_cluster_scoped() {
        key.namespace = Arc::clone(&CLUSTER);
    }
    owners.get(&key).filter(|owner| owner.uid_str() == uid).cloned()
}
