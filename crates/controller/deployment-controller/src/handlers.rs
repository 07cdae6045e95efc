//! Watches of ReplicaSets and pods: the changes that start syncs, besides those of Deployments (US-4.2).

use std::sync::Arc;

use kcm_api::{Deployment, ObjectKey, Pod, ReplicaSet, Selector};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::{
    deployment_index,
    index::{may_select, pods_of, replica_sets_of},
};
use kcm_deployment_util::{
    fenceposts::RECREATE,
    replica_sets::{ReplicaSetSplit, deployments_for_replica_set},
};
use kcm_informer::{Object, SharedInformer, Store};
use kcm_runtime::{Change, Watch, owner_of, predicate::resource_version_changed};
use tracing::trace;

/// Returns the watch of ReplicaSets. Each change enqueues the Deployment that controls the ReplicaSet, or those that may
/// adopt it.
pub(crate) fn replica_sets(
    replica_sets: &SharedInformer<ReplicaSet>,
    deployments: Store<Deployment>,
) -> Watch<ReplicaSet> {
    Watch::new(replica_sets)
        .when(resource_version_changed())
        .orphans(|set| &set.metadata.labels, move |set| adopters(&deployments, set))
}

/// Returns the Deployments whose selector matches the orphan `set`.
///
/// Upstream counterpart: `getDeploymentsForReplicaSet`.
fn adopters(deployments: &Store<Deployment>, set: &ReplicaSet) -> Vec<ObjectKey> {
    let deployments = deployments.read();
    let (namespace, labels) = (&set.metadata.namespace, &set.metadata.labels);
    let candidates = may_select(&deployments, deployment_index::SELECTOR, namespace, labels);
    let matching = deployments_for_replica_set(candidates, set);
    if matching.len() > 1 {
        trace!(replicaSet = %set.metadata.key(), "user error! more than one deployment is selecting replica set");
    }
    matching.iter().map(|deployment| deployment.metadata.key()).collect()
}

/// Returns the watch of pods that no longer run, or have another owner.
///
/// DEVIATION: upstream handles no updates of pods. A Deployment with the strategy Recreate whose last old pod finishes or
/// loses its owner would not continue.
pub(crate) fn pods(pods: &SharedInformer<Pod>) -> Watch<Pod> {
    Watch::new(pods).when(|change| match change {
        Change::Added(_) => false,
        Change::Updated { old, new } => {
            let has_finished = new.is_finished() && !old.is_finished();
            let owner = |pod: &Pod| pod.controller.as_ref().map(|owner| Arc::clone(&owner.uid));
            has_finished || old.uid != new.uid || owner(old) != owner(new)
        }
        Change::Deleted(_) => true,
    })
}

/// Finds the Deployment that waits until none of its old pods runs.
pub(crate) struct Recreates {
    pub(crate) deployments: Store<Deployment>,
    pub(crate) replica_sets: Store<ReplicaSet>,
    pub(crate) pods: Store<Pod>,
}

impl Recreates {
    /// Returns the Deployment with the strategy Recreate to which the last old pod `pod` belonged.
    pub(crate) fn continued_by(&self, pod: &Pod) -> Option<ObjectKey> {
        let (deployment, set) = self.deployment_of_pod(pod)?;
        // While many pods are deleted, the first check is the one that fails.
        let continues = deployment.spec.strategy.type_ == RECREATE
            && !self.is_running(&set)
            && !self.old_pods_running(&deployment);
        continues.then(|| deployment.key())
    }

    /// Returns the Deployment and the ReplicaSet of a pod, if the cache contains both.
    ///
    /// Upstream counterpart: `getDeploymentForPod`.
    fn deployment_of_pod(&self, pod: &Pod) -> Option<(Arc<Deployment>, Arc<ReplicaSet>)> {
        let set = owner_of(&self.replica_sets, pod)?;
        let deployment = owner_of(&self.deployments, &*set)?;
        Some((deployment, set))
    }

    /// Returns `true` if an old ReplicaSet has a pod that has not finished, or if the selector is invalid.
    ///
    /// DEVIATION: upstream also counts finished pods and those of the new ReplicaSet, for which a Recreate does not wait,
    /// and lists the ReplicaSets of the Deployment from the API server for each deleted pod. Here the cache is read.
    fn old_pods_running(&self, deployment: &Deployment) -> bool {
        let Ok(selector) = Selector::new(deployment.spec.selector.as_ref()) else { return true };
        let is_claimed = |set: &&Arc<ReplicaSet>| {
            set.metadata.namespace == deployment.metadata.namespace && selector.matches(&set.metadata.labels)
        };
        let owned: Vec<Arc<ReplicaSet>> =
            replica_sets_of(&self.replica_sets.read(), &deployment.metadata.uid)
                .filter(is_claimed)
                .cloned()
                .collect();
        ReplicaSetSplit::find(deployment, &owned).old.iter().any(|set| self.is_running(set))
    }

    /// Returns `true` if the cache contains a pod of the ReplicaSet that has not finished.
    fn is_running(&self, set: &ReplicaSet) -> bool {
        pods_of(&self.pods.read(), &OwnerIdentity::from(set)).any(|pod| !pod.is_finished())
    }
}

#[cfg(test)]
mod tests;
