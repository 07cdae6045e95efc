//! Recreate: all old pods go before the first new one comes (US-4.10).

use std::sync::Arc;

use kcm_deployment_util::{
    replica_sets::{ReplicaSetSplit, actual_replica_count, is_active},
    rollout::is_complete,
};

use crate::{
    Outcome, WaitsFor, cleanup, new_replica_set,
    pass::{Need, Pass, Step},
    progress,
    scale::scale_replica_set,
};

/// Upstream counterpart: `rolloutRecreate`.
pub(crate) fn rollout_recreate(pass: &mut Pass<'_>) -> Step<Outcome> {
    // Not created yet if it is missing: it would scale up before the others are down.
    let roles = new_replica_set::find_and_sync(pass)?;
    if scale_down_old_replica_sets(pass, &roles)? {
        return progress::sync_rollout_status(pass, &roles, WaitsFor::ReplicaSets);
    }
    if old_pods_running(pass, &roles) {
        return progress::sync_rollout_status(pass, &roles, WaitsFor::OldPods);
    }
    let (roles, new) = match roles.new.clone() {
        Some(new) => (roles, new),
        None => new_replica_set::find_or_create(pass)?,
    };
    let desired = pass.deployment.replicas();
    let why = format!("no old pod is left, and {desired} are wanted");
    let scaled = scale_replica_set(pass, &new, desired, Need::Success, why)?;
    if is_complete(&pass.deployment, &pass.deployment.status) {
        cleanup::cleanup_deployment(pass, &roles.old)?;
    }
    let available = new.status.available_replicas;
    let waits_for = if scaled.resized {
        WaitsFor::ReplicaSets
    } else if available == desired {
        WaitsFor::Nothing
    } else {
        WaitsFor::NewPods { available, size: desired, desired }
    };
    progress::sync_rollout_status(pass, &roles, waits_for)
}

/// Tells whether any had to be.
fn scale_down_old_replica_sets(pass: &mut Pass<'_>, roles: &ReplicaSetSplit) -> Step<bool> {
    let mut scaled = false;
    for set in roles.old.iter().filter(|set| is_active(set)) {
        let why = "old pods go before new ones come".to_owned();
        scaled |= scale_replica_set(pass, set, 0, Need::Success, why)?.resized;
    }
    Ok(scaled)
}

/// Whether a pod that is not of the new ReplicaSet has not ended. One on its way out counts until it is gone.
fn old_pods_running(pass: &Pass<'_>, roles: &ReplicaSetSplit) -> bool {
    if actual_replica_count(&roles.old) > 0 {
        return true;
    }
    let new = roles.new.as_ref().map(|set| set.uid());
    pass.view.running.iter().any(|uid: &Arc<str>| Some(uid) != new)
}

#[cfg(test)]
mod tests;
