//! Progress of the rollout: the condition `Progressing` and the progress deadline (US-4.12).

use std::time::Duration;

use jiff::SignedDuration;
use kcm_api::{
    Deployment, DeploymentCondition, DeploymentStatus,
    condition_status::{FALSE, TRUE},
    condition_type::{PROGRESSING, REPLICA_FAILURE},
};
use kcm_clock::Timestamp;
use kcm_deployment_util::{
    conditions::{self, reason},
    replica_sets::ReplicaSetSplit,
    rollout::{has_timed_out, is_complete, is_progressing, progress_deadline},
};

use super::{
    builder::{PlanBuilder, PlanResult},
    outcome::{BlockedOn, ProgressCheck, SyncOutcome},
    sync_status::update_status,
};

/// Writes the status, including the conditions `Progressing` and `ReplicaFailure`, if it has changed. Otherwise returns
/// the time of the next check of the progress deadline.
///
/// Upstream counterpart: `syncRolloutStatus`.
pub(super) fn sync_rollout_status(
    plan: &mut PlanBuilder<'_>,
    replica_sets: &ReplicaSetSplit,
    blocked_on: BlockedOn,
) -> PlanResult<SyncOutcome> {
    let deployment = &plan.deployment;
    let mut status = plan.calculate_status(replica_sets);
    set_progressing_condition(deployment, replica_sets, &mut status, plan.now);
    match replica_failure(replica_sets) {
        Some(failure) => conditions::set(&mut status, failure),
        None => conditions::remove(&mut status, REPLICA_FAILURE),
    }
    if status == deployment.status {
        let progress_check = next_progress_check(deployment, &status, plan.now);
        return Ok(SyncOutcome { progress_check, ..SyncOutcome::blocked_on(blocked_on) });
    }
    // The watch event of this write causes the next check.
    update_status(plan, status)?;
    Ok(SyncOutcome::blocked_on(blocked_on))
}

/// Sets the condition `Progressing` in the new `status` of the Deployment.
fn set_progressing_condition(
    deployment: &Deployment,
    replica_sets: &ReplicaSetSplit,
    status: &mut DeploymentStatus,
    now: Timestamp,
) {
    if progress_deadline(deployment).is_none() {
        conditions::remove(status, PROGRESSING);
        return;
    }
    let current = deployment.condition(PROGRESSING);
    // A complete rollout keeps its condition when the Deployment is scaled, or when pods are lost and replaced.
    let was_complete = status.replicas == status.updated_replicas
        && current.is_some_and(|condition| condition.reason == reason::NEW_REPLICA_SET_AVAILABLE);
    if was_complete {
        return;
    }
    let subject = match &replica_sets.new {
        Some(new_rs) => format!("ReplicaSet \"{}\"", new_rs.metadata.name),
        None => format!("Deployment \"{}\"", deployment.metadata.name),
    };
    let condition = |condition_status, reason, predicate: &str| {
        let message = format!("{subject} {predicate}");
        conditions::new(PROGRESSING, condition_status, reason, message, now.into())
    };
    if is_complete(deployment, status) {
        let predicate = "has successfully progressed.";
        conditions::set(status, condition(TRUE, reason::NEW_REPLICA_SET_AVAILABLE, predicate));
    } else if is_progressing(deployment, status) {
        let mut progressing = condition(TRUE, reason::REPLICA_SET_UPDATED, "is progressing.");
        if let Some(current) = current {
            if current.status == TRUE {
                progressing.last_transition_time = current.last_transition_time;
            }
            // `set` would keep the time of a condition with the same status and reason, and the progress deadline
            // starts at that time.
            conditions::remove(status, PROGRESSING);
        }
        conditions::set(status, progressing);
    } else if has_timed_out(deployment, status, now) {
        conditions::set(status, condition(FALSE, reason::TIMED_OUT, "has timed out progressing."));
    }
}

/// Returns the failure of the new ReplicaSet, or else the first failure of an old one.
///
/// Upstream counterpart: `getReplicaFailures`.
fn replica_failure(replica_sets: &ReplicaSetSplit) -> Option<DeploymentCondition> {
    let mut candidates = replica_sets.new.iter().chain(&replica_sets.old);
    candidates.find_map(|set| set.condition(REPLICA_FAILURE)).map(conditions::from_replica_set)
}

/// Returns the next check of the progress deadline.
///
/// The check is due 1 s after the deadline, so that the deadline has passed even if times are truncated to seconds.
/// Example: with a deadline of 600 s and a condition that was updated 20 s ago, it is due in 600 - 20 + 1 = 581 s.
///
/// Upstream counterpart: `requeueStuckDeployment`.
fn next_progress_check(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<ProgressCheck> {
    const SECOND: Duration = Duration::from_secs(1);
    let deadline = progress_deadline(deployment)?;
    let current = deployment.condition(PROGRESSING)?;
    if is_complete(deployment, status) || current.reason == reason::TIMED_OUT {
        return None;
    }
    let deadline = SignedDuration::from_secs(deadline.into());
    let remaining = deadline.saturating_sub(conditions::time_since_update(current, now));
    let after = Duration::try_from(remaining).ok().filter(|remaining| *remaining >= SECOND);
    Some(ProgressCheck {
        after: after.map(|remaining| remaining + SECOND),
        can_time_out: current.reason != reason::NEW_REPLICA_SET_AVAILABLE,
    })
}

#[cfg(test)]
mod tests;
