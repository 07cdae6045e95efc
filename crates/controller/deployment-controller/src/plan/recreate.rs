//! Recreate: deletes all old pods before it creates new ones (US-4.10).

use kcm_deployment_util::{
    replica_sets::{ReplicaSetSplit, actual_replica_count},
    rollout::is_complete,
};

use super::{
    builder::{PlanBuilder, PlanResult, Requires},
    cleanup::cleanup_deployment,
    new_replica_set::{get_all_replica_sets_and_sync_revision, get_or_create_new_replica_set},
    outcome::{BlockedOn, SyncOutcome},
    progress::sync_rollout_status,
    reason::Reason,
    scale::scale_replica_set_and_record_event,
};

/// Plans one step of a Recreate.
///
/// Upstream counterpart: `rolloutRecreate`.
pub(super) fn rollout_recreate(plan: &mut PlanBuilder<'_>) -> PlanResult<SyncOutcome> {
    // A missing new ReplicaSet is created below: its initial size is the Deployment's.
    let replica_sets = get_all_replica_sets_and_sync_revision(plan)?;
    if scale_down_old_replica_sets(plan, &replica_sets)? {
        return sync_rollout_status(plan, &replica_sets, BlockedOn::ReplicaSetStatus);
    }
    if old_pods_running(plan, &replica_sets) {
        return sync_rollout_status(plan, &replica_sets, BlockedOn::OldPods);
    }
    if has_unobserved_scale_down(plan, &replica_sets) {
        return sync_rollout_status(plan, &replica_sets, BlockedOn::ReplicaSetStatus);
    }
    let (replica_sets, new_rs) = match replica_sets.new.clone() {
        Some(new_rs) => (replica_sets, new_rs),
        None => get_or_create_new_replica_set(plan)?,
    };
    let desired = plan.deployment.replicas();
    let reason = Reason::RecreateScaleUp { desired };
    let scaled =
        scale_replica_set_and_record_event(plan, &new_rs, desired, Requires::Success, reason)?.scaled;
    if is_complete(&plan.deployment, &plan.deployment.status) {
        cleanup_deployment(plan, &replica_sets.old)?;
    }
    let available = new_rs.status.available_replicas;
    let blocked_on = if scaled {
        BlockedOn::ReplicaSetStatus
    } else if available == desired {
        BlockedOn::Nothing
    } else {
        BlockedOn::NewPods { available, replicas: desired, desired }
    };
    sync_rollout_status(plan, &replica_sets, blocked_on)
}

/// Scales the old ReplicaSets to 0. Returns `true` if any was scaled.
///
/// Upstream counterpart: `scaleDownOldReplicaSetsForRecreate`.
fn scale_down_old_replica_sets(
    plan: &mut PlanBuilder<'_>,
    replica_sets: &ReplicaSetSplit,
) -> PlanResult<bool> {
    let mut scaled = false;
    for set in replica_sets.active_old() {
        let reason = Reason::RecreateScaleDown;
        scaled |= scale_replica_set_and_record_event(plan, set, 0, Requires::Success, reason)?.scaled;
    }
    Ok(scaled)
}

/// Returns `true` if an old ReplicaSet has a pod that is neither `Succeeded` nor `Failed`. Terminating pods count.
///
/// Upstream counterpart: `oldPodsRunning`.
fn old_pods_running(plan: &PlanBuilder<'_>, replica_sets: &ReplicaSetSplit) -> bool {
    if actual_replica_count(&replica_sets.old) > 0 {
        return true;
    }
    let new_rs = replica_sets.new.as_ref().map(|set| &set.metadata.uid);
    plan.view.running.iter().any(|uid| Some(uid) != new_rs)
}

/// Returns `true` if the ReplicaSet controller may still create pods of an old ReplicaSet that this process has scaled to
/// 0.
///
/// DEVIATION: upstream reads its cache only. It waits until that contains the scale-down, but not until the ReplicaSet
/// controller has observed it (US-4.10).
pub(super) fn has_unobserved_scale_down(plan: &PlanBuilder<'_>, replica_sets: &ReplicaSetSplit) -> bool {
    let unobserved = &plan.view.unobserved_scale_downs;
    // A scale-down that was not executed is written again.
    replica_sets.old.iter().any(|set| set.replicas() == 0 && unobserved.contains(&set.metadata.uid))
}

#[cfg(test)]
mod tests;
