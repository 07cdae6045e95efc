//! Event handlers.

use std::{sync::Arc, time::Duration};

use kcm_api::{ObjectKey, Pod, PodControllerRef, ReplicaSet, Selector};
use kcm_controller_util::{index::may_select, replica_set_index};
use kcm_informer::{Deleted, EventHandler, Store};
use kcm_workqueue::RateLimitingQueue;
use tracing::{debug, error, trace};

use crate::{KindConfig, own_writes::OwnWrites};

/// Enqueues the ReplicaSets of events, and lowers expectations once per creation and deletion (US-5.2).
pub(crate) struct Handlers {
    pub(crate) kind_config: KindConfig,
    pub(crate) pods: Store<Pod>,
    pub(crate) replica_sets: Store<ReplicaSet>,
    pub(crate) own_writes: Arc<OwnWrites>,
    pub(crate) queue: RateLimitingQueue<ObjectKey>,
}

impl EventHandler<ReplicaSet> for Handlers {
    fn on_add(&self, replica_set: &Arc<ReplicaSet>, _initial: bool) {
        trace!(replicaSet = %replica_set.metadata.key(), uid = %replica_set.metadata.uid, "Adding");
        self.queue.add(replica_set.metadata.key());
    }

    /// Resyncs are enqueued as well.
    fn on_update(&self, old: &Arc<ReplicaSet>, new: &Arc<ReplicaSet>) {
        if old.metadata.uid != new.metadata.uid {
            // Deleted and created again between two lists.
            self.delete_replica_set(old);
        }
        if old.replicas() != new.replicas() {
            let (old_replicas, new_replicas) = (old.replicas(), new.replicas());
            trace!(
                replicaSet = %new.metadata.key(),
                oldReplicas = old_replicas,
                newReplicas = new_replicas,
                "replicaSet updated. Desired pod count change."
            );
        }
        self.queue.add(new.metadata.key());
    }

    fn on_delete(&self, deleted: &Deleted<ReplicaSet>) {
        self.delete_replica_set(deleted.object());
    }

    /// DEVIATION: upstream waits until the cache reaches the versions from before the restore.
    fn on_restore(&self) {
        self.own_writes.consistency.clear_all();
    }
}

impl EventHandler<Pod> for Handlers {
    fn on_add(&self, pod: &Arc<Pod>, _initial: bool) {
        if pod.deletion_timestamp.is_some() {
            // After a restart, a list may contain a pod that is already being deleted.
            self.delete_pod(pod);
        } else if let Some(controller) = &pod.controller {
            let Some(replica_set) = self.resolve(pod, controller) else { return };
            let key = replica_set.metadata.key();
            trace!(replicaSet = %key, pod = %pod.key, "Pod created");
            self.own_writes.expectations.creation_observed(&key);
            self.queue.add(key);
        } else {
            self.enqueue_adopters(pod);
        }
    }

    fn on_update(&self, old: &Arc<Pod>, new: &Arc<Pod>) {
        if old.resource_version == new.resource_version {
            // Resync.
            return;
        }
        if old.uid != new.uid {
            // DEVIATION: upstream does not compare UIDs.
            self.delete_pod(old);
            self.on_add(new, false);
            return;
        }
        let labels_changed = old.labels != new.labels;
        let controller_changed = old.controller != new.controller;
        if new.deletion_timestamp.is_some() {
            // A terminating pod counts as deleted, so that it is replaced without waiting for its grace period.
            self.delete_pod(new);
            // DEVIATION: upstream does not compare the owners. A ReplicaSet that a terminating pod leaves would keep
            // reporting the pod.
            if labels_changed || controller_changed {
                self.delete_pod(old);
            }
            return;
        }
        if controller_changed
            && let Some(former) = &old.controller
            && let Some(replica_set) = self.resolve(old, former)
        {
            let key = replica_set.metadata.key();
            // DEVIATION: upstream does not lower the expectation. If the pod is deleted after its owner reference was
            // removed, the event of the deletion has no owner, and the ReplicaSet waits until the expectation expires.
            if new.controller.as_ref().is_none_or(|controller| controller.uid != former.uid) {
                self.own_writes.expectations.deletion_observed(&key, &old.key);
            }
            self.queue.add(key);
        }
        if let Some(controller) = &new.controller {
            let Some(replica_set) = self.resolve(new, controller) else { return };
            let key = replica_set.metadata.key();
            trace!(replicaSet = %key, pod = %new.key, "Pod objectMeta updated.");
            self.queue.add(key.clone());
            let min_ready_seconds = u64::try_from(replica_set.spec.min_ready_seconds).unwrap_or(0);
            if !old.ready.is_ready && new.ready.is_ready && min_ready_seconds > 0 {
                debug!(replicaSet = %key, pod = %new.key, "Pod will be enqueued after a while for availability check");
                self.queue.add_after(key, Duration::from_secs(min_ready_seconds));
            }
        } else if labels_changed || controller_changed {
            self.enqueue_adopters(new);
        }
    }

    fn on_delete(&self, deleted: &Deleted<Pod>) {
        self.delete_pod(deleted.object());
    }

    fn on_restore(&self) {
        self.own_writes.consistency.clear_all();
    }

    /// DEVIATION: if a pod was created or adopted, and deleted, between two lists, upstream waits until the expectations
    /// expire. No event reports the former, and the last known state of the latter has no owner.
    fn on_replace(&self) {
        let expectations = &self.own_writes.expectations;
        for key in expectations.unfulfilled() {
            for pod in expectations.pending_deletions(&key) {
                if self.pods.get(&pod).is_none() {
                    expectations.deletion_observed(&key, &pod);
                }
            }
            self.queue.add(key);
        }
    }
}

impl Handlers {
    fn delete_replica_set(&self, replica_set: &ReplicaSet) {
        let key = replica_set.metadata.key();
        trace!(replicaSet = %key, uid = %replica_set.metadata.uid, "Deleting");
        self.own_writes.consistency.clear(&key, Some(&replica_set.metadata.uid));
        self.own_writes.expectations.delete(&key);
        self.queue.add(key);
    }

    /// Lowers the expectation of a deletion, and enqueues the owner. Called when the deletion starts and when it ends.
    fn delete_pod(&self, pod: &Pod) {
        let Some(controller) = &pod.controller else { return };
        let Some(replica_set) = self.resolve(pod, controller) else { return };
        let key = replica_set.metadata.key();
        trace!(replicaSet = %key, pod = %pod.key, "Pod deleted");
        self.own_writes.expectations.deletion_observed(&key, &pod.key);
        self.queue.add(key);
    }

    /// Returns the ReplicaSet that `controller`, an owner reference of `pod`, refers to.
    ///
    /// Upstream counterpart: `resolveControllerRef`. The group is not compared (US-3.1).
    fn resolve(&self, pod: &Pod, controller: &PodControllerRef) -> Option<Arc<ReplicaSet>> {
        if *controller.kind != *self.kind_config.kind {
            return None;
        }
        let key = ObjectKey { namespace: Arc::clone(&pod.key.namespace), name: Arc::clone(&controller.name) };
        self.replica_sets.get(&key).filter(|replica_set| replica_set.metadata.uid == controller.uid)
    }

    /// Enqueues the ReplicaSets that select the orphan `pod`.
    ///
    /// Upstream counterpart: `getPodReplicaSets`.
    fn enqueue_adopters(&self, pod: &Pod) {
        if pod.labels.is_empty() {
            return;
        }
        let replica_sets = self.replica_sets.read();
        let keys: Vec<_> =
            may_select(&replica_sets, replica_set_index::SELECTOR, &pod.key.namespace, &pod.labels)
                .filter(|replica_set| selects(replica_set, pod))
                .map(|replica_set| replica_set.metadata.key())
                .collect();
        drop(replica_sets);
        if keys.len() > 1 {
            error!(
                "user error! more than one {} is selecting pods with labels: {:?}",
                self.kind_config.kind, pod.labels
            );
        }
        if !keys.is_empty() {
            trace!(pod = %pod.key, "Orphan Pod matches ReplicaSets");
        }
        for key in keys {
            self.queue.add(key);
        }
    }
}

/// Returns `true` if the selector of `replica_set` matches the labels of `pod`.
///
/// A selector that is missing, empty or cannot be parsed matches nothing.
fn selects(replica_set: &ReplicaSet, pod: &Pod) -> bool {
    let Some(declared) = &replica_set.spec.selector else { return false };
    // Most selectors that do not match are found without parsing their expressions.
    declared.match_labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
        && Selector::new(Some(declared))
            .is_ok_and(|selector| !selector.is_empty() && selector.matches(&pod.labels))
}

#[cfg(test)]
mod tests;
