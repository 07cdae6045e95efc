//! Event handlers: enqueue the Deployments that an event concerns (US-4.2).

use std::sync::Arc;

use kcm_api::{Deployment, ObjectKey, OwnerReference, Pod, ReplicaSet, Selector};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::{
    deployment_index,
    index::{may_select, pods_of, replica_sets_of},
};
use kcm_deployment_util::{
    fenceposts::RECREATE,
    replica_sets::{ReplicaSetSplit, deployments_for_replica_set},
};
use kcm_informer::{Deleted, EventHandler, Store};
use kcm_workqueue::RateLimitingQueue;
use tracing::trace;

use crate::written_objects::WrittenObjects;

/// Event handlers of Deployments, ReplicaSets and pods.
pub(crate) struct Handlers {
    pub(crate) queue: RateLimitingQueue<ObjectKey>,
    pub(crate) deployments: Store<Deployment>,
    pub(crate) replica_sets: Store<ReplicaSet>,
    pub(crate) pods: Store<Pod>,
    pub(crate) written_objects: Arc<WrittenObjects>,
}

/// Each event enqueues the Deployment, including resyncs and events of own writes.
impl EventHandler<Deployment> for Handlers {
    fn on_add(&self, deployment: &Arc<Deployment>, _initial: bool) {
        trace!(deployment = %deployment.metadata.key(), uid = %deployment.metadata.uid, "Adding deployment");
        self.enqueue(deployment);
    }

    fn on_update(&self, _old: &Arc<Deployment>, new: &Arc<Deployment>) {
        trace!(deployment = %new.metadata.key(), uid = %new.metadata.uid, "Updating deployment");
        self.enqueue(new);
    }

    fn on_delete(&self, deleted: &Deleted<Deployment>) {
        let metadata = &deleted.object().metadata;
        trace!(deployment = %metadata.key(), uid = %metadata.uid, "Deleting deployment");
        self.enqueue(deleted.object());
    }

    fn on_restore(&self) {
        self.written_objects.clear();
    }
}

impl EventHandler<ReplicaSet> for Handlers {
    fn on_add(&self, set: &Arc<ReplicaSet>, _initial: bool) {
        if set.metadata.is_being_deleted() {
            // After a restart, the first list may contain ReplicaSets that are being deleted.
            self.replica_set_deleted(set);
        } else if let Some(owner) = set.metadata.controller() {
            self.enqueue_owner(set, owner, "added");
        } else {
            self.enqueue_matching(set, "added");
        }
    }

    fn on_update(&self, old: &Arc<ReplicaSet>, new: &Arc<ReplicaSet>) {
        if old.metadata.resource_version == new.metadata.resource_version {
            // A resync.
            return;
        }
        let (old_owner, new_owner) = (old.metadata.controller(), new.metadata.controller());
        let owner_changed = old_owner != new_owner;
        if owner_changed && let Some(owner) = old_owner {
            self.enqueue_owner(old, owner, "updated");
        }
        if let Some(owner) = new_owner {
            self.enqueue_owner(new, owner, "updated");
        } else if owner_changed || old.metadata.labels != new.metadata.labels {
            self.enqueue_matching(new, "updated");
        }
    }

    fn on_delete(&self, deleted: &Deleted<ReplicaSet>) {
        self.replica_set_deleted(deleted.object());
    }

    fn on_restore(&self) {
        self.written_objects.clear();
    }

    /// DEVIATION: if a ReplicaSet was created and deleted between two lists, upstream waits until the progress deadline.
    fn on_replace(&self) {
        for key in self.written_objects.with_replica_sets() {
            self.queue.add(key);
        }
    }
}

/// A Recreate waits until no pod runs.
impl EventHandler<Pod> for Handlers {
    fn on_add(&self, _pod: &Arc<Pod>, _initial: bool) {}

    /// DEVIATION: upstream handles no updates of pods. A Deployment with the strategy Recreate whose last old pod finishes
    /// or loses its owner would not continue.
    fn on_update(&self, old: &Arc<Pod>, new: &Arc<Pod>) {
        let has_finished = new.is_finished() && !old.is_finished();
        if has_finished || old.uid != new.uid || controller_uid(old) != controller_uid(new) {
            self.pod_gone(old);
        }
    }

    fn on_delete(&self, deleted: &Deleted<Pod>) {
        self.pod_gone(deleted.object());
    }
}

impl Handlers {
    /// Enqueues the Deployment that waits for its last old pod to be gone or finished.
    fn pod_gone(&self, pod: &Pod) {
        let Some((deployment, set)) = self.deployment_of_pod(pod) else { return };
        trace!(deployment = %deployment.metadata.key(), pod = %pod.key, "Pod deleted");
        // While many pods are deleted, the first check is the one that fails.
        if deployment.spec.strategy.type_ == RECREATE
            && !self.is_running(&set)
            && !self.old_pods_running(&deployment)
        {
            self.enqueue(&deployment);
        }
    }

    fn enqueue(&self, deployment: &Deployment) {
        self.queue.add(deployment.metadata.key());
    }

    /// Enqueues the Deployment that `owner` refers to. `event` is part of the log message.
    fn enqueue_owner(&self, set: &ReplicaSet, owner: &OwnerReference, event: &str) {
        if let Some(deployment) = self.resolve_controller_ref(&set.metadata.namespace, owner) {
            trace!(deployment = %deployment.metadata.key(), replicaSet = %set.metadata.key(), "ReplicaSet {event}");
            self.enqueue(&deployment);
        }
    }

    /// Enqueues the Deployments whose selector matches the orphan `set`. `event` is part of the log message.
    fn enqueue_matching(&self, set: &ReplicaSet, event: &str) {
        let matching = self.deployments_for(set);
        if matching.len() > 1 {
            trace!(replicaSet = %set.metadata.key(), "user error! more than one deployment is selecting replica set");
        }
        if !matching.is_empty() {
            trace!(replicaSet = %set.metadata.key(), "Orphan ReplicaSet {event}");
        }
        for deployment in matching {
            self.queue.add(deployment);
        }
    }

    /// Upstream counterpart: `getDeploymentsForReplicaSet`.
    fn deployments_for(&self, set: &ReplicaSet) -> Vec<ObjectKey> {
        let deployments = self.deployments.read();
        let (namespace, labels) = (&set.metadata.namespace, &set.metadata.labels);
        let candidates = may_select(&deployments, deployment_index::SELECTOR, namespace, labels);
        let matching = deployments_for_replica_set(candidates, set);
        matching.iter().map(|deployment| deployment.metadata.key()).collect()
    }

    /// Enqueues the owner. The deletion of an orphan enqueues nothing.
    fn replica_set_deleted(&self, set: &ReplicaSet) {
        if let Some(owner) = set.metadata.controller() {
            self.enqueue_owner(set, owner, "deleted");
        }
    }

    /// Returns the Deployment that `owner` refers to, if it exists with the same UID.
    ///
    /// The API group is not compared (US-3.1).
    ///
    /// Upstream counterpart: `resolveControllerRef`.
    fn resolve_controller_ref(
        &self,
        namespace: &Arc<str>,
        owner: &OwnerReference,
    ) -> Option<Arc<Deployment>> {
        if owner.kind != kcm_api::deployment::KIND {
            return None;
        }
        let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(&owner.name) };
        self.deployments.get(&key).filter(|deployment| deployment.metadata.uid == owner.uid)
    }

    /// Returns the Deployment and the ReplicaSet of a pod, if the cache contains both.
    ///
    /// Upstream counterpart: `getDeploymentForPod`.
    fn deployment_of_pod(&self, pod: &Pod) -> Option<(Arc<Deployment>, Arc<ReplicaSet>)> {
        let owner = pod.controller.as_ref().filter(|owner| *owner.kind == *kcm_api::replica_set::KIND)?;
        let key = ObjectKey { namespace: Arc::clone(&pod.key.namespace), name: Arc::clone(&owner.name) };
        let set = self.replica_sets.get(&key).filter(|set| set.metadata.uid == owner.uid)?;
        let deployment = self.resolve_controller_ref(&set.metadata.namespace, set.metadata.controller()?)?;
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

fn controller_uid(pod: &Pod) -> Option<&str> {
    pod.controller.as_ref().map(|controller| &*controller.uid)
}

#[cfg(test)]
mod tests;
