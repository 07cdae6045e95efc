//! Status of a ReplicaSet.

use std::{cell::Cell, cmp::Ordering, ptr, sync::Arc};

use kcm_api::{
    ReplicaSet, ReplicaSetCondition, ReplicaSetStatus, Time, condition_status,
    condition_type::REPLICA_FAILURE,
};
use kcm_clock::Timestamp;
use kcm_controller_util::{StatusUrgency, availability::is_pod_available};

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

/// Returns the urgency of `next`, the next status of `replica_set`. A Deployment waits for one that changes
/// `availableReplicas`, and with the strategy Recreate for the first that observes 0 replicas.
pub(crate) fn urgency(replica_set: &ReplicaSet, next: &ReplicaSetStatus) -> StatusUrgency {
    let current = &replica_set.status;
    let observes_zero =
        replica_set.replicas() == 0 && current.observed_generation != next.observed_generation;
    match next.available_replicas.cmp(&current.available_replicas) {
        Ordering::Less => StatusUrgency::FewerPods,
        _ if next.ready_replicas < current.ready_replicas => StatusUrgency::FewerPods,
        Ordering::Greater => StatusUrgency::Awaited,
        Ordering::Equal if observes_zero => StatusUrgency::Awaited,
        Ordering::Equal => StatusUrgency::Other,
    }
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
