//! Rolling update: scales the new ReplicaSet up and the old ReplicaSets down within the bounds `maxSurge` and
//! `maxUnavailable` (US-4.9).

use std::{num::Wrapping, sync::Arc};

use kcm_api::ReplicaSet;
use kcm_deployment_util::{
    fenceposts::{max_total_replicas, min_available, new_rs_new_replicas},
    replica_sets::{ReplicaSetSplit, available_replica_count, replica_count},
    rollout::is_complete,
};

use super::{
    builder::{PlanBuilder, PlanResult, Requires, ignore_write_error},
    cleanup::cleanup_deployment,
    new_replica_set::get_or_create_new_replica_set,
    outcome::{BlockedOn, SyncOutcome},
    progress::sync_rollout_status,
    reason::Reason,
    scale::scale_replica_set_and_record_event,
};
use crate::error::SyncError;

/// Plans one step of a rolling update.
///
/// A step scales either the new ReplicaSet or the old ones. If the new ReplicaSet is scaled, the old ones wait for the
/// next sync.
///
/// Upstream counterpart: `rolloutRolling`.
pub(super) fn rollout_rolling(plan: &mut PlanBuilder<'_>) -> PlanResult<SyncOutcome> {
    let (replica_sets, new_rs) = get_or_create_new_replica_set(plan)?;
    if reconcile_new_replica_set(plan, &replica_sets, &new_rs)?
        || reconcile_old_replica_sets(plan, &replica_sets, &new_rs)?
    {
        return sync_rollout_status(plan, &replica_sets, BlockedOn::ReplicaSetStatus);
    }
    // The status before this sync decides, as upstream: history is cleaned up one sync after the rollout has completed.
    if is_complete(&plan.deployment, &plan.deployment.status) {
        cleanup_deployment(plan, &replica_sets.old)?;
    }
    let blocked_on = blocked_on(plan, &replica_sets, &new_rs);
    sync_rollout_status(plan, &replica_sets, blocked_on)
}

/// Scales the new ReplicaSet up as far as the surge bound permits, or down to the Deployment's size. Returns `true` if it
/// was scaled.
///
/// Upstream counterpart: `reconcileNewReplicaSet`.
fn reconcile_new_replica_set(
    plan: &mut PlanBuilder<'_>,
    replica_sets: &ReplicaSetSplit,
    new_rs: &Arc<ReplicaSet>,
) -> PlanResult<bool> {
    let (replicas, desired) = (new_rs.replicas(), plan.deployment.replicas());
    if replicas == desired {
        return Ok(false);
    }
    let (to, reason) = if replicas > desired {
        (desired, Reason::NewReplicaSetTooLarge { replicas, desired })
    } else {
        let total = replica_count(replica_sets.all());
        let max_total = max_total_replicas(&plan.deployment);
        let to = new_rs_new_replicas(&plan.deployment, replicas, total)?;
        (to, Reason::SurgeAvailable { replicas, desired, total, max_total })
    };
    Ok(scale_replica_set_and_record_event(plan, new_rs, to, Requires::Success, reason)?.scaled)
}

/// Scales the old ReplicaSets down as far as availability permits. Returns `true` if any was scaled.
///
/// The maximum number of pods that may be removed is
///
/// ```text
/// max_scaled_down = total_replicas - min_available - new_rs_unavailable
/// ```
///
/// with `min_available = replicas - maxUnavailable`. Unavailable pods of the new ReplicaSet are subtracted because the old
/// pods that they replace must remain until they are available.
///
/// Example: 10 replicas, `maxUnavailable: 2`, `maxSurge: 3`. The old ReplicaSet has 8 pods, the new one has 5, of which 2
/// are available. Then `min_available = 8`, `new_rs_unavailable = 3`, and `max_scaled_down = 13 - 8 - 3 = 2`.
///
/// Unavailable pods are removed first: that does not reduce availability, and keeping them would block the rollout.
///
/// Write errors are ignored and count as not scaled, as upstream. The plan records them, so that the sync is retried.
///
/// Upstream counterpart: `reconcileOldReplicaSets`.
fn reconcile_old_replica_sets(
    plan: &mut PlanBuilder<'_>,
    replica_sets: &ReplicaSetSplit,
    new_rs: &Arc<ReplicaSet>,
) -> PlanResult<bool> {
    let mut old_rss: Vec<_> = replica_sets.active_old().cloned().collect();
    if replica_count(&old_rss) == 0 {
        return Ok(false);
    }
    let min_available = Wrapping(min_available(&plan.deployment));
    let total_replicas = Wrapping(replica_count(replica_sets.all()));
    let new_rs_unavailable = Wrapping(new_rs.replicas()) - Wrapping(new_rs.status.available_replicas);
    let max_scaled_down = total_replicas - min_available - new_rs_unavailable;
    if max_scaled_down.0 <= 0 {
        return Ok(false);
    }
    let unhealthy =
        ignore_write_error(plan, |plan| cleanup_unhealthy_replicas(plan, &mut old_rss, max_scaled_down))?;
    let Some(unhealthy) = unhealthy else { return Ok(false) };
    let healthy =
        ignore_write_error(plan, |plan| scale_down_old_replica_sets(plan, &old_rss, new_rs, min_available))?;
    let Some(healthy) = healthy else { return Ok(false) };
    Ok((unhealthy + healthy).0 > 0)
}

/// Removes unavailable pods from the old ReplicaSets, oldest first, at most `max_scaled_down`. Returns their number.
///
/// Upstream counterpart: `cleanupUnhealthyReplicas`.
fn cleanup_unhealthy_replicas(
    plan: &mut PlanBuilder<'_>,
    old_rss: &mut [Arc<ReplicaSet>],
    max_scaled_down: Wrapping<i32>,
) -> PlanResult<Wrapping<i32>> {
    let mut total_scaled_down = Wrapping(0);
    for set in old_rss {
        if total_scaled_down >= max_scaled_down {
            break;
        }
        let (replicas, available) = (Wrapping(set.replicas()), Wrapping(set.status.available_replicas));
        if replicas.0 == 0 || replicas == available {
            continue;
        }
        let unavailable = replicas - available;
        let scale_down_count = (max_scaled_down - total_scaled_down).min(unavailable);
        let to = scaled_down(set, scale_down_count)?;
        let reason =
            Reason::UnhealthyReplicas { unavailable: unavailable.0, max_scaled_down: max_scaled_down.0 };
        // The object is required: the next step may scale the ReplicaSet again.
        *set = scale_replica_set_and_record_event(plan, set, to, Requires::Object, reason)?.replica_set;
        total_scaled_down += scale_down_count;
    }
    Ok(total_scaled_down)
}

/// Removes pods from the old ReplicaSets, oldest first, while more than `min_available` pods are available. Returns their
/// number.
///
/// At most `available_replicas - min_available` pods are removed, because any of them may be available. Example: 10 pods
/// are available and 8 are required, so 2 are removed.
///
/// Upstream counterpart: `scaleDownOldReplicaSetsForRollingUpdate`.
fn scale_down_old_replica_sets(
    plan: &mut PlanBuilder<'_>,
    old_rss: &[Arc<ReplicaSet>],
    new_rs: &Arc<ReplicaSet>,
    min_available: Wrapping<i32>,
) -> PlanResult<Wrapping<i32>> {
    let available = Wrapping(available_replica_count(old_rss.iter().chain([new_rs])));
    if available <= min_available {
        return Ok(Wrapping(0));
    }
    let max_scaled_down = available - min_available;
    let mut total_scaled_down = Wrapping(0);
    for set in old_rss {
        if total_scaled_down >= max_scaled_down {
            break;
        }
        let replicas = Wrapping(set.replicas());
        if replicas.0 == 0 {
            continue;
        }
        let scale_down_count = replicas.min(max_scaled_down - total_scaled_down);
        let to = scaled_down(set, scale_down_count)?;
        let reason = Reason::AvailabilityExceeded { available: available.0, min_available: min_available.0 };
        scale_replica_set_and_record_event(plan, set, to, Requires::Success, reason)?;
        total_scaled_down += scale_down_count;
    }
    Ok(total_scaled_down)
}

/// Returns the size of `set` without `scale_down_count` pods.
///
/// Returns an error if the size would grow: `scale_down_count` is negative if more pods are available than desired.
fn scaled_down(set: &ReplicaSet, scale_down_count: Wrapping<i32>) -> Result<i32, SyncError> {
    let from = set.replicas();
    let to = (Wrapping(from) - scale_down_count).0;
    if to > from {
        return Err(SyncError::InvalidScaleDown { replica_set: set.metadata.key(), from, to });
    }
    Ok(to)
}

/// Returns the change that a rollout without a next step is blocked on.
fn blocked_on(plan: &PlanBuilder<'_>, replica_sets: &ReplicaSetSplit, new_rs: &ReplicaSet) -> BlockedOn {
    let (available, replicas, desired) =
        (new_rs.status.available_replicas, new_rs.replicas(), plan.deployment.replicas());
    if replica_count(&replica_sets.old) == 0 && replicas == desired && available == desired {
        return BlockedOn::Nothing;
    }
    BlockedOn::NewPods { available, replicas, desired }
}

#[cfg(test)]
mod tests;
