//! Whether the rollout moves, and what the status says of it (US-4.12).

use std::time::Duration;

use jiff::SignedDuration;
use kcm_api::{
    Deployment, DeploymentCondition, DeploymentStatus,
    condition_status::{FALSE, TRUE},
};
use kcm_clock::Timestamp;
use kcm_deployment_util::{
    conditions::{
        self,
        condition_type::{PROGRESSING, REPLICA_FAILURE},
        reason,
    },
    replica_sets::ReplicaSetSplit,
    rollout::{has_timed_out, is_complete, is_progressing, progress_deadline},
};

use crate::{
    Outcome, ProgressCheck, WaitsFor,
    pass::{Pass, Step},
    status::{calculate_status, write},
};

/// Writes the status if it has changed, progress included; if not, tells when the deadline passes.
///
/// Upstream counterpart: `syncRolloutStatus`.
pub(crate) fn sync_rollout_status(
    pass: &mut Pass<'_>,
    roles: &ReplicaSetSplit,
    waits_for: WaitsFor,
) -> Step<Outcome> {
    let d = &pass.deployment;
    let mut status = calculate_status(pass, roles);
    estimate_progress(d, roles, &mut status, pass.now);
    match replica_failure(roles) {
        Some(failure) => conditions::set(&mut status, failure),
        None => conditions::remove(&mut status, REPLICA_FAILURE),
    }
    if status == d.status {
        let progress_check = next_progress_check(d, &status, pass.now);
        return Ok(Outcome { progress_check, ..Outcome::waiting(waits_for) });
    }
    // The write's own event brings the next look at the deadline.
    write(pass, status)?;
    Ok(Outcome::waiting(waits_for))
}

/// Sets the condition `Progressing` in `status`, the Deployment's next.
fn estimate_progress(
    deployment: &Deployment,
    roles: &ReplicaSetSplit,
    status: &mut DeploymentStatus,
    now: Timestamp,
) {
    if progress_deadline(deployment).is_none() {
        conditions::remove(status, PROGRESSING);
        return;
    }
    let current = deployment.condition(PROGRESSING);
    // A rollout that is done says nothing of scaling or of pods that come and go later.
    let done_before = status.replicas == status.updated_replicas
        && current.is_some_and(|condition| condition.reason == reason::NEW_REPLICA_SET_AVAILABLE);
    if done_before {
        return;
    }
    let subject = match &roles.new {
        Some(new) => format!("ReplicaSet \"{}\"", new.metadata.name),
        None => format!("Deployment \"{}\"", deployment.metadata.name),
    };
    let condition = |holds, reason, predicate: &str| {
        conditions::new(PROGRESSING, holds, reason, format!("{subject} {predicate}"), now.into())
    };
    if is_complete(deployment, status) {
        let predicate = "has successfully progressed.";
        conditions::set(status, condition(TRUE, reason::NEW_REPLICA_SET_AVAILABLE, predicate));
    } else if is_progressing(deployment, status) {
        let mut moved = condition(TRUE, reason::REPLICA_SET_UPDATED, "is progressing.");
        if let Some(current) = current {
            if current.status == TRUE {
                moved.last_transition_time = current.last_transition_time;
            }
            // So that its time moves even though status and reason are what they were: the deadline runs from it.
            conditions::remove(status, PROGRESSING);
        }
        conditions::set(status, moved);
    } else if has_timed_out(deployment, status, now) {
        conditions::set(status, condition(FALSE, reason::TIMED_OUT, "has timed out progressing."));
    }
}

/// The failure that the new ReplicaSet tells of, or else the first of any.
///
/// Upstream counterpart: `getReplicaFailures`.
fn replica_failure(roles: &ReplicaSetSplit) -> Option<DeploymentCondition> {
    let mut candidates = roles.new.iter().chain(roles.all());
    candidates.find_map(|set| set.condition(REPLICA_FAILURE)).map(conditions::from_replica_set)
}

/// Returns the next check of the progress deadline, which finds a rollout that no event wakes any more.
///
/// Upstream counterpart: `requeueStuckDeployment`.
fn next_progress_check(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<ProgressCheck> {
    let deadline = progress_deadline(deployment)?;
    let current = deployment.condition(PROGRESSING)?;
    if is_complete(deployment, status) || current.reason == reason::TIMED_OUT {
        return None;
    }
    let second = SignedDuration::from_secs(1);
    let left = SignedDuration::from_secs(deadline.into())
        .saturating_sub(conditions::time_since_update(current, now));
    // One second more, so that the deadline has surely passed by then.
    let after =
        Duration::try_from(left).ok().filter(|_| left >= second).map(|left| left + Duration::from_secs(1));
    Some(ProgressCheck { after, can_time_out: current.reason != reason::NEW_REPLICA_SET_AVAILABLE })
}

#[cfg(test)]
mod tests;
