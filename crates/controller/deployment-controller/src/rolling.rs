//! RollingUpdate: the new ReplicaSet grows within the surge, the old ones shrink within the unavailability
//! (US-4.9).

use std::sync::Arc;

use kcm_api::ReplicaSet;
use kcm_deployment_util::{
    fenceposts::{max_total_replicas, min_available, new_rs_new_replicas},
    replica_sets::{ReplicaSetSplit, available_replica_count, is_active, replica_count},
    rollout::is_complete,
};

use crate::{
    Outcome, SyncError, WaitsFor, cleanup, new_replica_set,
    pass::{Need, Pass, Step, ignore_error},
    progress,
    scale::scale_replica_set,
};

/// Upstream counterpart: `rolloutRolling`.
pub(crate) fn rollout_rolling(pass: &mut Pass<'_>) -> Step<Outcome> {
    let (roles, new) = new_replica_set::find_or_create(pass)?;
    if reconcile_new_replica_set(pass, &roles, &new)? {
        return progress::sync_rollout_status(pass, &roles, WaitsFor::ReplicaSets);
    }
    if reconcile_old_replica_sets(pass, &roles, &new)? {
        return progress::sync_rollout_status(pass, &roles, WaitsFor::ReplicaSets);
    }
    // By the status as it was read: the sync after the one that writes the completion cleans up (US-4.9).
    if is_complete(&pass.deployment, &pass.deployment.status) {
        cleanup::cleanup_deployment(pass, &roles.old)?;
    }
    let waits_for = what_for(pass, &roles, &new);
    progress::sync_rollout_status(pass, &roles, waits_for)
}

/// Scales the new ReplicaSet up as far as the surge allows, or down to the size wanted; tells whether it did.
fn reconcile_new_replica_set(
    pass: &mut Pass<'_>,
    roles: &ReplicaSetSplit,
    new: &Arc<ReplicaSet>,
) -> Step<bool> {
    let (size, desired) = (new.replicas(), pass.deployment.replicas());
    if size == desired {
        return Ok(false);
    }
    if size > desired {
        let why = format!("it has more than the {desired} pods wanted");
        return Ok(scale_replica_set(pass, new, desired, Need::Success, why)?.resized);
    }
    let to = new_rs_new_replicas(&pass.deployment, size, replica_count(roles.all()))?;
    let total = replica_count(roles.all());
    let limit = max_total_replicas(&pass.deployment);
    let why = format!(
        "of {desired} pods wanted it has {size}; with {total} in all and at most {limit} there is room for {}",
        to.wrapping_sub(size)
    );
    Ok(scale_replica_set(pass, new, to, Need::Success, why)?.resized)
}

/// Scales old ReplicaSets down as far as the unavailability allows; tells whether it did.
///
/// Unavailable pods are removed first: removing them does not reduce availability, and keeping them would block the
/// rollout. Errors are ignored, as upstream, and count as not having scaled (US-4.9). The plan records them, so the sync
/// is retried.
fn reconcile_old_replica_sets(
    pass: &mut Pass<'_>,
    roles: &ReplicaSetSplit,
    new: &Arc<ReplicaSet>,
) -> Step<bool> {
    let mut old: Vec<_> = roles.old.iter().filter(|set| is_active(set)).cloned().collect();
    if replica_count(&old) == 0 {
        return Ok(false);
    }
    let at_least = min_available(&pass.deployment);
    // New pods that are not available yet count as missing already: as many old ones must stay in their place.
    let new_unavailable = new.replicas().wrapping_sub(new.status.available_replicas);
    let may_go = replica_count(roles.all()).wrapping_sub(at_least).wrapping_sub(new_unavailable);
    if may_go <= 0 {
        return Ok(false);
    }
    let unhealthy = ignore_error(pass, |pass| cleanup_unhealthy_replicas(pass, &mut old, may_go))?;
    let Some(unhealthy) = unhealthy else { return Ok(false) };
    let healthy = ignore_error(pass, |pass| scale_down_old_replica_sets(pass, &old, new, at_least))?;
    let Some(healthy) = healthy else { return Ok(false) };
    Ok(unhealthy.wrapping_add(healthy) > 0)
}

/// Takes pods that are not available from the old ReplicaSets, `limit` at most, the oldest set first; tells how
/// many.
fn cleanup_unhealthy_replicas(pass: &mut Pass<'_>, old: &mut [Arc<ReplicaSet>], limit: i32) -> Step<i32> {
    let mut done = 0_i32;
    for set in old {
        if done >= limit {
            break;
        }
        let (size, available) = (set.replicas(), set.status.available_replicas);
        if size == 0 || size == available {
            continue;
        }
        let going = limit.wrapping_sub(done).min(size.wrapping_sub(available));
        let to = size.wrapping_sub(going);
        if to > size {
            return Err(
                SyncError::InvalidScaleDown { replica_set: set.metadata.key(), from: size, to }.into()
            );
        }
        let missing = size.wrapping_sub(available);
        let why = format!("{missing} of its {size} pods are not available, and {limit} may go");
        // It may have to shrink once more below, from what it is then.
        *set = scale_replica_set(pass, set, to, Need::Answer, why)?.replica_set;
        done = done.wrapping_add(going);
    }
    Ok(done)
}

/// Takes available pods from the old ReplicaSets as long as `at_least` remain, the oldest set first; tells how
/// many.
fn scale_down_old_replica_sets(
    pass: &mut Pass<'_>,
    old: &[Arc<ReplicaSet>],
    new: &Arc<ReplicaSet>,
    at_least: i32,
) -> Step<i32> {
    let available = available_replica_count(old.iter().chain([new]));
    if available <= at_least {
        return Ok(0);
    }
    let limit = available.wrapping_sub(at_least);
    let mut done = 0_i32;
    for set in old {
        if done >= limit {
            break;
        }
        let size = set.replicas();
        if size == 0 {
            continue;
        }
        let going = size.min(limit.wrapping_sub(done));
        let to = size.wrapping_sub(going);
        if to > size {
            return Err(
                SyncError::InvalidScaleDown { replica_set: set.metadata.key(), from: size, to }.into()
            );
        }
        let why = format!("{available} pods are available and {at_least} must stay, so {going} of it may go");
        scale_replica_set(pass, set, to, Need::Success, why)?;
        done = done.wrapping_add(going);
    }
    Ok(done)
}

/// What a rollout waits for that could take no step.
fn what_for(pass: &Pass<'_>, roles: &ReplicaSetSplit, new: &ReplicaSet) -> WaitsFor {
    let (available, size, desired) =
        (new.status.available_replicas, new.replicas(), pass.deployment.replicas());
    let old = replica_count(&roles.old);
    if old == 0 && size == desired && available == desired {
        return WaitsFor::Nothing;
    }
    WaitsFor::NewPods { available, size, desired }
}

#[cfg(test)]
mod tests;
