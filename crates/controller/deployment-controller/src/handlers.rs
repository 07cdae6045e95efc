//! From events to the keys of Deployments that are worth a look (US-4.2).

use std::sync::Arc;

use kcm_api::{Deployment, ObjectKey, OwnerReference, Pod, ReplicaSet, Selector};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::{
    deployment_index,
    index::{may_select, pods_of, replica_sets_of},
};
use kcm_deployment_util::{fenceposts::RECREATE, replica_sets::deployments_for_replica_set};
use kcm_informer::{Deleted, EventHandler, Store};
use kcm_workqueue::RateLimitingQueue;
use tracing::trace;

pub(crate) struct Handlers {
    pub(crate) queue: RateLimitingQueue<ObjectKey>,
    pub(crate) deployments: Store<Deployment>,
    pub(crate) replica_sets: Store<ReplicaSet>,
    pub(crate) pods: Store<Pod>,
}

/// Every event of a Deployment is worth a look, resyncs and the echo of our own writes included.
impl EventHandler<Deployment> for Handlers {
    fn on_add(&self, deployment: &Arc<Deployment>, _initial: bool) {
        trace!(key = %deployment.metadata.key(), uid = %deployment.metadata.uid, "Adding deployment");
        self.enqueue(deployment);
    }

    fn on_update(&self, _old: &Arc<Deployment>, new: &Arc<Deployment>) {
        trace!(key = %new.metadata.key(), uid = %new.metadata.uid, "Updating deployment");
        self.enqueue(new);
    }

    fn on_delete(&self, deleted: &Deleted<Deployment>) {
        trace!(key = %deleted.object().metadata.key(), uid = %deleted.object().metadata.uid, "Deleting deployment");
        self.enqueue(deleted.object());
    }
}

impl EventHandler<ReplicaSet> for Handlers {
    fn on_add(&self, set: &Arc<ReplicaSet>, _initial: bool) {
        if set.metadata.is_being_deleted() {
            // After a restart, the first look at it may find it going.
            self.replica_set_gone(set);
        } else if let Some(owner) = set.metadata.controller() {
            self.enqueue_owner(set, owner, "added");
        } else {
            self.enqueue_adopters(set, "added");
        }
    }

    fn on_update(&self, old: &Arc<ReplicaSet>, new: &Arc<ReplicaSet>) {
        if old.metadata.resource_version == new.metadata.resource_version {
            // A resync. Two versions of one object are never the same.
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
            self.enqueue_adopters(new, "updated");
        }
    }

    fn on_delete(&self, deleted: &Deleted<ReplicaSet>) {
        self.replica_set_gone(deleted.object());
    }
}

/// Pods matter only to a Recreate, which waits for the last of them to be gone.
impl EventHandler<Pod> for Handlers {
    fn on_add(&self, _pod: &Arc<Pod>, _initial: bool) {}

    fn on_update(&self, _old: &Arc<Pod>, _new: &Arc<Pod>) {}

    fn on_delete(&self, deleted: &Deleted<Pod>) {
        let pod = deleted.object();
        let Some(deployment) = self.deployment_of_pod(pod) else { return };
        trace!(key = %deployment.metadata.key(), pod = %pod.key, "Pod deleted");
        if deployment.spec.strategy.type_ == RECREATE && !self.has_pods(&deployment) {
            self.enqueue(&deployment);
        }
    }
}

impl Handlers {
    fn enqueue(&self, deployment: &Deployment) {
        self.queue.add(deployment.metadata.key());
    }

    fn enqueue_owner(&self, set: &ReplicaSet, owner: &OwnerReference, what: &str) {
        if let Some(deployment) = self.resolve(&set.metadata.namespace, owner) {
            trace!(key = %deployment.metadata.key(), replica_set = %set.metadata.key(), "ReplicaSet {what}");
            self.enqueue(&deployment);
        }
    }

    /// Enqueues the Deployments that select the orphan `set`.
    fn enqueue_adopters(&self, set: &ReplicaSet, what: &str) {
        let adopters = self.adopters(set);
        if adopters.len() > 1 {
            trace!(replica_set = %set.metadata.key(), "user error! more than one deployment is selecting replica set");
        }
        if !adopters.is_empty() {
            trace!(replica_set = %set.metadata.key(), "Orphan ReplicaSet {what}");
        }
        for deployment in adopters {
            self.queue.add(deployment);
        }
    }

    fn adopters(&self, set: &ReplicaSet) -> Vec<ObjectKey> {
        let deployments = self.deployments.read();
        let (namespace, labels) = (&set.metadata.namespace, &set.metadata.labels);
        let candidates = may_select(&deployments, deployment_index::SELECTOR, namespace, labels);
        let adopters = deployments_for_replica_set(candidates, set);
        adopters.iter().map(|deployment| deployment.metadata.key()).collect()
    }

    /// An orphan that goes is nobody's loss.
    fn replica_set_gone(&self, set: &ReplicaSet) {
        if let Some(owner) = set.metadata.controller() {
            self.enqueue_owner(set, owner, "deleted");
        }
    }

    /// The Deployment that `owner`, a reference in an object in `namespace`, means.
    ///
    /// Upstream counterpart: `resolveControllerRef`. The group is not compared (US-3.1).
    fn resolve(&self, namespace: &Arc<str>, owner: &OwnerReference) -> Option<Arc<Deployment>> {
        if owner.kind != kcm_api::deployment::KIND {
            return None;
        }
        let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(&owner.name) };
        self.deployments.get(&key).filter(|deployment| *deployment.uid() == owner.uid)
    }

    /// Upstream counterpart: `getDeploymentForPod`. Once its ReplicaSet is gone from the cache, a pod is nobody's.
    fn deployment_of_pod(&self, pod: &Pod) -> Option<Arc<Deployment>> {
        let owner = pod.controller.as_ref().filter(|owner| *owner.kind == *kcm_api::replica_set::KIND)?;
        let key = ObjectKey { namespace: Arc::clone(&pod.key.namespace), name: Arc::clone(&owner.name) };
        let set = self.replica_sets.get(&key).filter(|set| *set.uid() == owner.uid)?;
        self.resolve(&set.metadata.namespace, set.metadata.controller()?)
    }

    /// `true` if the cache contains a pod of the Deployment, in any phase. The first pod ends the search.
    ///
    /// DEVIATION: upstream lists the Deployment's ReplicaSets from the server for each pod that goes; the cache
    /// answers as well. A selector that cannot be parsed fails that list, and nothing is enqueued.
    fn has_pods(&self, deployment: &Deployment) -> bool {
        let Ok(selector) = Selector::new(deployment.spec.selector.as_ref()) else { return true };
        let is_claimed = |set: &&Arc<ReplicaSet>| {
            set.metadata.namespace == deployment.metadata.namespace && selector.matches(&set.metadata.labels)
        };
        let sets: Vec<OwnerIdentity> = replica_sets_of(&self.replica_sets.read(), deployment.uid())
            .filter(is_claimed)
            .map(|set| OwnerIdentity::from(&**set))
            .collect();
        let pods = self.pods.read();
        sets.iter().any(|set| pods_of(&pods, set).next().is_some())
    }
}

#[cfg(test)]
mod tests;
