use std::{sync::Arc, time::Duration};

use kcm_api::{ControllerRef, ObjectKey, Pod, ReplicaSet, Selector};
use kcm_controller_util::{index::may_select, replica_set_index};
use kcm_informer::{Deleted, EventHandler};
use kcm_workqueue::RateLimitingQueue;
use tracing::{debug, error, trace};

use crate::sync::Syncer;

/// Turns events into keys of ReplicaSets that are worth a look, and counts expectations off: each creation and
/// each deletion exactly once (US-5.2).
pub(crate) struct Handlers {
    pub(crate) syncer: Arc<Syncer>,
    pub(crate) queue: RateLimitingQueue<ObjectKey>,
}

impl EventHandler<ReplicaSet> for Handlers {
    fn on_add(&self, replica_set: &Arc<ReplicaSet>, _initial: bool) {
        trace!(key = %replica_set.metadata.key(), uid = %replica_set.uid(), "Adding {}", self.syncer.kind_config.kind);
        self.queue.add(replica_set.metadata.key());
    }

    /// A resync gets through as well: it is what mends a lost event.
    fn on_update(&self, old: &Arc<ReplicaSet>, new: &Arc<ReplicaSet>) {
        if old.uid() != new.uid() {
            // Deleted and made anew between two looks. What was expected of the old one is nothing to the new.
            self.replica_set_gone(old);
        }
        if old.replicas() != new.replicas() {
            let (from, to) = (old.replicas(), new.replicas());
            trace!(key = %new.metadata.key(), uid = %new.uid(), from, to, "Desired pod count has changed");
        }
        self.queue.add(new.metadata.key());
    }

    fn on_delete(&self, deleted: &Deleted<ReplicaSet>) {
        self.replica_set_gone(deleted.object());
    }
}

impl EventHandler<Pod> for Handlers {
    fn on_add(&self, pod: &Arc<Pod>, _initial: bool) {
        if pod.deletion_timestamp.is_some() {
            // After a restart, the first look at a pod may find it going. That is no creation.
            self.pod_gone(pod);
        } else if let Some(controller) = &pod.controller {
            let Some(replica_set) = self.resolve(pod, controller) else { return };
            let key = replica_set.metadata.key();
            trace!(%key, pod = %pod.key, "Pod created");
            self.syncer.expectations.creation_observed(&key);
            self.queue.add(key);
        } else {
            // Nobody expects an orphan.
            self.wake_adopters(pod);
        }
    }

    fn on_update(&self, old: &Arc<Pod>, new: &Arc<Pod>) {
        if old.resource_version == new.resource_version {
            // A resync. Two versions of one object are never the same.
            return;
        }
        if old.uid != new.uid {
            // DEVIATION: upstream takes a pod of the same name for the same pod.
            self.pod_gone(old);
            self.on_add(new, false);
            return;
        }
        let labels_changed = old.labels != new.labels;
        if new.deletion_timestamp.is_some() {
            // It counts as gone as soon as it is going: a replacement need not wait for its grace period.
            self.pod_gone(new);
            if labels_changed {
                self.pod_gone(old);
            }
            return;
        }
        let controller_changed = old.controller != new.controller;
        if controller_changed
            && let Some(former) = &old.controller
            && let Some(replica_set) = self.resolve(old, former)
        {
            let key = replica_set.metadata.key();
            // DEVIATION: upstream does not count this. If the pod is deleted after it has lost its owner, the event of the
            // deletion names no owner, and the ReplicaSet waits until the expectation expires.
            if new.controller.as_ref().is_none_or(|controller| controller.uid != former.uid) {
                self.syncer.expectations.deletion_observed(&key, &old.key);
            }
            self.queue.add(key);
        }
        if let Some(controller) = &new.controller {
            let Some(replica_set) = self.resolve(new, controller) else { return };
            let key = replica_set.metadata.key();
            trace!(%key, pod = %new.key, "Pod updated");
            self.queue.add(key.clone());
            let min_ready_seconds = u64::try_from(replica_set.spec.min_ready_seconds).unwrap_or(0);
            if !old.ready.is_ready && new.ready.is_ready && min_ready_seconds > 0 {
                debug!(%key, pod = %new.key, "Pod will be enqueued after a while for availability check");
                self.queue.add_after(key, Duration::from_secs(min_ready_seconds));
            }
        } else if labels_changed || controller_changed {
            self.wake_adopters(new);
        }
    }

    fn on_delete(&self, deleted: &Deleted<Pod>) {
        self.pod_gone(deleted.object());
    }

    /// DEVIATION: upstream waits until the expectations expire, if a pod was created and deleted between two lists.
    fn on_replace(&self) {
        for key in self.syncer.expectations.unfulfilled() {
            self.queue.add(key);
        }
    }
}

impl Handlers {
    fn replica_set_gone(&self, replica_set: &ReplicaSet) {
        let key = replica_set.metadata.key();
        trace!(%key, uid = %replica_set.uid(), "Deleting {}", self.syncer.kind_config.kind);
        self.syncer.consistency.clear(&key, Some(replica_set.uid()));
        self.syncer.expectations.delete(&key);
        self.queue.add(key);
    }

    /// Counts a deletion off, whatever became known first: that the pod is going, or that it is gone.
    fn pod_gone(&self, pod: &Pod) {
        // No ReplicaSet waits for an orphan to go.
        let Some(controller) = &pod.controller else { return };
        let Some(replica_set) = self.resolve(pod, controller) else { return };
        let key = replica_set.metadata.key();
        trace!(%key, pod = %pod.key, "Pod deleted");
        self.syncer.expectations.deletion_observed(&key, &pod.key);
        self.queue.add(key);
    }

    /// The ReplicaSet that `controller`, a reference in `pod`, means.
    ///
    /// Upstream counterpart: `resolveControllerRef`. The group is not compared (US-3.1).
    fn resolve(&self, pod: &Pod, controller: &ControllerRef) -> Option<Arc<ReplicaSet>> {
        if *controller.kind != *self.syncer.kind_config.kind {
            return None;
        }
        let key = ObjectKey { namespace: Arc::clone(&pod.key.namespace), name: Arc::clone(&controller.name) };
        self.syncer.replica_sets.get(&key).filter(|replica_set| *replica_set.uid() == controller.uid)
    }

    /// Enqueues the ReplicaSets that select the orphan `pod`.
    ///
    /// Upstream counterpart: `getPodReplicaSets`.
    fn wake_adopters(&self, pod: &Pod) {
        if pod.labels.is_empty() {
            return;
        }
        let replica_sets = self.syncer.replica_sets.read();
        let keys: Vec<_> =
            may_select(&replica_sets, replica_set_index::SELECTOR, &pod.key.namespace, &pod.labels)
                .filter(|replica_set| selects(replica_set, pod))
                .map(|replica_set| replica_set.metadata.key())
                .collect();
        drop(replica_sets);
        if keys.len() > 1 {
            error!(
                "user error! more than one {} is selecting pods with labels: {:?}",
                self.syncer.kind_config.kind, pod.labels
            );
        }
        if !keys.is_empty() {
            trace!(pod = %pod.key, owners = keys.len(), "Orphan pod wakes those that might adopt it");
        }
        for key in keys {
            self.queue.add(key);
        }
    }
}

/// Whether `replica_set` might adopt `pod` by its labels.
///
/// One that cannot be parsed, or is empty where none may be, selects nothing.
fn selects(replica_set: &ReplicaSet, pod: &Pod) -> bool {
    let Some(declared) = &replica_set.spec.selector else { return false };
    // Cheaper than to compile the selector, and often enough.
    declared.match_labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
        && Selector::new(Some(declared))
            .is_ok_and(|selector| !selector.is_empty() && selector.matches(&pod.labels))
}

#[cfg(test)]
mod tests;
