//! Status of a ReplicaSet.

use std::{cell::Cell, ptr, sync::Arc};

use kcm_api::{
    ReplicaSet, ReplicaSetCondition, ReplicaSetStatus, Time, condition_status,
    condition_type::REPLICA_FAILURE,
};
use kcm_clock::Timestamp;
use kcm_controller_util::availability::is_pod_available;

use crate::{ManageError, View};

/// Returns the status after a sync in which the creation or deletion of pods returned `error` (US-5.7).
///
/// Counts do not contain the creations and deletions of this sync. The status is written if it differs from the
/// cached status.
///
/// Upstream counterpart: `calculateStatus`, with the generation that `updateReplicaSetStatus` sets.
pub fn calculate_status(view: &View, error: Option<&ManageError>, now: Timestamp) -> ReplicaSetStatus {
    let replica_set = &*view.replica_set;
    let count =
        |test: &dyn Fn(&kcm_api::Pod) -> bool| number(view.active.iter().filter(|pod| test(pod)).count());

    // Fields that this version does not have are kept.
    let mut status = replica_set.status.clone();
    status.replicas = number(view.active.len());
    // Pods that were created from one template share their labels, which are compared once.
    let compared = Cell::new((ptr::null(), false));
    status.fully_labeled_replicas = count(&|pod| {
        let labels = Arc::as_ptr(&pod.labels);
        if compared.get().0 != labels {
            // Not before: they are decoded on first use, which most old ReplicaSets do not need.
            let template_labels = replica_set.spec.template.labels();
            let is_labeled = template_labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value));
            compared.set((labels, is_labeled));
        }
        compared.get().1
    });
    status.ready_replicas = count(&|pod| pod.ready.is_ready);
    status.available_replicas = count(&|pod| is_pod_available(pod, replica_set.spec.min_ready_seconds, now));
    status.terminating_replicas = view.terminating.map(number);
    status.observed_generation = replica_set.metadata.generation;
    match error {
        // An existing condition is not updated, as upstream.
        Some(error) if replica_set.condition(REPLICA_FAILURE).is_none() => {
            let reason = match view.difference() {
                ..0 => "FailedCreate",
                0 => "",
                1.. => "FailedDelete",
            };
            set_condition(&mut status, failure(reason, error.to_string(), now));
        }
        Some(_) => {}
        // Removed even if no creation or deletion was attempted, as upstream.
        None => status.conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
    }
    status
}

/// Returns `true` if only `observedGeneration` differs, and is not the first one.
pub(crate) fn only_generation_differs(current: &ReplicaSetStatus, next: &ReplicaSetStatus) -> bool {
    let observed_generation = current.observed_generation;
    observed_generation != 0 && *current == ReplicaSetStatus { observed_generation, ..next.clone() }
}

/// Returns `true` if a Deployment waits for `next`, the next status of `replica_set`: it changes `availableReplicas`, or is
/// the first that observes 0 replicas, for which the strategy Recreate waits.
pub(crate) fn is_awaited(replica_set: &ReplicaSet, next: &ReplicaSetStatus) -> bool {
    let current = &replica_set.status;
    current.available_replicas != next.available_replicas
        || replica_set.replicas() == 0 && current.observed_generation != next.observed_generation
}

fn failure(reason: &str, message: String, now: Timestamp) -> ReplicaSetCondition {
    ReplicaSetCondition {
        type_: REPLICA_FAILURE.to_owned(),
        status: condition_status::TRUE.to_owned(),
        last_transition_time: Some(Time::new(now)),
        reason: reason.to_owned(),
        message,
        ..ReplicaSetCondition::default()
    }
}

/// Replaces the condition of the same type, unless its status and reason are the same.
///
/// Upstream counterpart: `SetCondition`.
fn set_condition(status: &mut ReplicaSetStatus, condition: ReplicaSetCondition) {
    let is_unchanged = |known: &ReplicaSetCondition| {
        known.type_ == condition.type_ && known.status == condition.status && known.reason == condition.reason
    };
    if status.conditions.iter().any(is_unchanged) {
        return;
    }
    status.conditions.retain(|known| known.type_ != condition.type_);
    status.conditions.push(condition);
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
