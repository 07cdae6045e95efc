use kcm_api::{ReplicaSetCondition, ReplicaSetStatus, Time, condition_status};
use kcm_clock::Timestamp;
use kcm_controller_util::availability::is_pod_available;

use crate::{Outcome, View};

/// The type of the condition that tells that pods could not be created or deleted.
pub(crate) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// What the status is to say, given what was seen and what came of managing the pods (US-5.7).
///
/// Counts are of the pods **before** this sync's creations and deletions. It needs to be written exactly if it
/// differs from the status that there is.
///
/// Upstream counterpart: `calculateStatus`, with the generation that `updateReplicaSetStatus` adds.
pub fn next_status(view: &View, outcome: &Outcome, now: Timestamp) -> ReplicaSetStatus {
    let replica_set = &*view.replica_set;
    let template_labels = replica_set.spec.template.labels();
    let count =
        |test: &dyn Fn(&kcm_api::Pod) -> bool| number(view.active.iter().filter(|pod| test(pod)).count());

    // From the old one, so that fields that this version does not know stay.
    let mut status = replica_set.status.clone();
    status.replicas = number(view.active.len());
    status.fully_labeled_replicas =
        count(&|pod| template_labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value)));
    status.ready_replicas = count(&|pod| pod.ready.is_ready);
    status.available_replicas = count(&|pod| is_pod_available(pod, replica_set.spec.min_ready_seconds, now));
    status.terminating_replicas = view.terminating.map(number);
    status.observed_generation = replica_set.metadata.generation;
    match &outcome.error {
        // One that is there already is never refreshed, whatever the error is now.
        Some(error) if replica_set.condition(REPLICA_FAILURE).is_none() => {
            let reason = match view.difference() {
                ..0 => "FailedCreate",
                0 => "",
                1.. => "FailedDelete",
            };
            set_condition(&mut status, failure(reason, error.to_string(), now));
        }
        Some(_) => {}
        // Also when nothing was tried, because expectations are pending or the owner is being deleted.
        None => status.conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
    }
    status
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

/// Puts `condition` in place of the one of its type, at the end; not if that says the same for the same reason.
///
/// Unlike a Deployment's, the time goes in as it is even when the status stays the same.
///
/// Upstream counterpart: `SetCondition`.
fn set_condition(status: &mut ReplicaSetStatus, condition: ReplicaSetCondition) {
    let says_the_same = |known: &ReplicaSetCondition| {
        known.type_ == condition.type_ && known.status == condition.status && known.reason == condition.reason
    };
    if status.conditions.iter().any(says_the_same) {
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
