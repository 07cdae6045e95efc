//! Watch of pods: the changes that start syncs, besides those of ReplicaSets (US-5.2).

use kcm_api::{ObjectKey, Pod, ReplicaSet, Selector};
use kcm_controller_util::{index::may_select, replica_set_index};
use kcm_informer::{SharedInformer, Store};
use kcm_runtime::{Change, Watch, predicate::resource_version_changed};
use tracing::error;

/// Returns the watch of pods. Each change enqueues the ReplicaSet that controls the pod, or those that may adopt it.
pub(crate) fn pods(
    pods: &SharedInformer<Pod>,
    replica_sets: Store<ReplicaSet>,
    kind: &'static str,
) -> Watch<Pod> {
    Watch::new(pods)
        .when(resource_version_changed())
        .urgent(is_loss)
        .orphans(|pod| &pod.labels, move |pod| adopters(&replica_sets, pod, kind))
}

/// Returns `true` if a ready pod is not counted any more. Until the status reports fewer pods, rollouts count it (US-4.9).
fn is_loss(change: &Change<'_, Pod>) -> bool {
    let is_counted = |pod: &Pod| pod.ready.is_ready && pod.deletion_timestamp.is_none();
    match change {
        Change::Added(_) => false,
        Change::Updated { old, new } => is_counted(old) && !is_counted(new),
        Change::Deleted(pod) => is_counted(pod),
    }
}

/// Returns the ReplicaSets that select the orphan `pod`.
///
/// Upstream counterpart: `getPodReplicaSets`.
fn adopters(replica_sets: &Store<ReplicaSet>, pod: &Pod, kind: &str) -> Vec<ObjectKey> {
    if pod.labels.is_empty() {
        return Vec::new();
    }
    let replica_sets = replica_sets.read();
    let keys: Vec<_> =
        may_select(&replica_sets, replica_set_index::SELECTOR, &pod.key.namespace, &pod.labels)
            .filter(|replica_set| selects(replica_set, pod))
            .map(|replica_set| replica_set.metadata.key())
            .collect();
    drop(replica_sets);
    if keys.len() > 1 {
        error!("user error! more than one {kind} is selecting pods with labels: {:?}", pod.labels);
    }
    keys
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
