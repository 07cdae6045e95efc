//! Finding objects by what they belong to.
//!
//! A sync asks for the objects of one owner and for the orphans that it might adopt. Each question has its index,
//! so the answer costs what it holds, not what the namespace holds. Upstream lists the ReplicaSets of the whole
//! namespace in each Deployment sync, and its pods for each related ReplicaSet when it scales down.
//!
//! Upstream counterparts: `AddPodControllerIndexer`, `AddPodControllerUIDIndexer`, the ReplicaSet controller's
//! `controllerUID` index.

use std::sync::Arc;

use kcm_api::{Deployment, POD_TEMPLATE_HASH_LABEL, Pod, ReplicaSet, Selector};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_informer::{IndexName, Indexers, Store};

/// Indexes of pods.
pub mod pod_index {
    use super::IndexName;

    /// By the UID of the managing owner.
    pub const CONTROLLER_UID: IndexName = IndexName("controllerUID");
    /// Those without a managing owner, by namespace.
    pub const ORPHANS: IndexName = IndexName("orphans");
    /// By namespace and `pod-template-hash` label, as `namespace/hash`.
    pub const TEMPLATE_HASH: IndexName = IndexName("podTemplateHash");
    /// By namespace.
    pub const NAMESPACE: IndexName = IndexName::NAMESPACE;
}

/// Indexes of ReplicaSets.
pub mod replica_set_index {
    use super::IndexName;

    /// By the UID of the managing owner.
    pub const CONTROLLER_UID: IndexName = IndexName("controllerUID");
    /// Those without a managing owner, by namespace.
    pub const ORPHANS: IndexName = IndexName("orphans");
    /// By namespace.
    pub const NAMESPACE: IndexName = IndexName::NAMESPACE;
}

/// Indexes of Deployments.
pub mod deployment_index {
    use super::IndexName;

    /// By namespace.
    pub const NAMESPACE: IndexName = IndexName::NAMESPACE;
}

/// All of [`pod_index`].
pub fn pod_indexers() -> Indexers<Pod> {
    Indexers::new()
        .with(pod_index::CONTROLLER_UID, |pod: &Pod| {
            pod.controller.as_ref().map(|controller| Arc::clone(&controller.uid))
        })
        .with(pod_index::ORPHANS, |pod: &Pod| {
            pod.controller.is_none().then(|| Arc::clone(&pod.key.namespace))
        })
        .with(pod_index::TEMPLATE_HASH, |pod: &Pod| {
            let hash = pod.labels.get(POD_TEMPLATE_HASH_LABEL)?;
            Some(template_hash_value(&pod.key.namespace, hash).into())
        })
        .with_namespace()
}

/// All of [`replica_set_index`].
pub fn replica_set_indexers() -> Indexers<ReplicaSet> {
    Indexers::new()
        .with(replica_set_index::CONTROLLER_UID, |replica_set: &ReplicaSet| {
            replica_set.metadata.controller().map(|controller| Arc::clone(&controller.uid))
        })
        .with(replica_set_index::ORPHANS, |replica_set: &ReplicaSet| {
            replica_set.metadata.controller().is_none().then(|| Arc::clone(&replica_set.metadata.namespace))
        })
        .with_namespace()
}

/// All of [`deployment_index`].
pub fn deployment_indexers() -> Indexers<Deployment> {
    Indexers::new().with_namespace()
}

fn template_hash_value(namespace: &str, hash: &str) -> String {
    format!("{namespace}/{hash}")
}

/// The pods that `owner` manages: those that name its kind, its name and its UID, in its namespace.
///
/// The group of the kind is not compared (US-3.1).
pub fn pods_of(pods: &Store<Pod>, owner: &OwnerIdentity) -> Vec<Arc<Pod>> {
    let mut found = pods.by_index(pod_index::CONTROLLER_UID, &owner.uid);
    // The UID alone would do for all references that a controller ever wrote. Others are not to be trusted.
    found.retain(|pod| {
        pod.key.namespace == owner.namespace
            && pod.controller.as_ref().is_some_and(|reference| {
                *reference.kind == *owner.kind && reference.name == owner.name && reference.uid == owner.uid
            })
    });
    found
}

/// The pods of `namespace` that nobody manages.
pub fn orphan_pods(pods: &Store<Pod>, namespace: &str) -> Vec<Arc<Pod>> {
    pods.by_index(pod_index::ORPHANS, namespace)
}

/// The pods of `namespace` that `selector` matches, whoever manages them.
///
/// Where the selector asks for one value of the `pod-template-hash` label, as those of a Deployment's
/// ReplicaSets do, only pods with it are tried. Otherwise all pods of the namespace are.
pub fn pods_matching(pods: &Store<Pod>, namespace: &str, selector: &Selector) -> Vec<Arc<Pod>> {
    let mut found = match selector.required_value(POD_TEMPLATE_HASH_LABEL) {
        Some(hash) => pods.by_index(pod_index::TEMPLATE_HASH, &template_hash_value(namespace, hash)),
        None => pods.by_index(pod_index::NAMESPACE, namespace),
    };
    found.retain(|pod| selector.matches(&pod.labels));
    found
}

/// The ReplicaSets whose managing owner has `owner_uid`.
pub fn replica_sets_of(replica_sets: &Store<ReplicaSet>, owner_uid: &str) -> Vec<Arc<ReplicaSet>> {
    replica_sets.by_index(replica_set_index::CONTROLLER_UID, owner_uid)
}

/// The ReplicaSets of `namespace` that nobody manages.
pub fn orphan_replica_sets(replica_sets: &Store<ReplicaSet>, namespace: &str) -> Vec<Arc<ReplicaSet>> {
    replica_sets.by_index(replica_set_index::ORPHANS, namespace)
}

#[cfg(test)]
mod tests;
