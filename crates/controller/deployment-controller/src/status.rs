//! The Deployment's status, computed from its ReplicaSets' (US-4.11).

use kcm_api::{
    DeploymentStatus,
    condition_status::{FALSE, TRUE},
};
use kcm_deployment_util::{
    conditions::{self, condition_type::AVAILABLE, reason},
    fenceposts::availability_threshold,
    replica_sets::{
        ReplicaSetSplit, actual_replica_count, available_replica_count, ready_replica_count, replica_count,
        terminating_replica_count,
    },
};

use crate::{
    Outcome, WaitsFor,
    pass::{Need, Pass, Step},
};

/// Writes the status if it has changed. Says nothing of progress.
///
/// Upstream counterpart: `syncDeploymentStatus`.
pub(crate) fn sync_deployment_status(
    pass: &mut Pass<'_>,
    roles: &ReplicaSetSplit,
    waits_for: WaitsFor,
) -> Step<Outcome> {
    let status = calculate_status(pass, roles);
    if status != pass.deployment.status {
        write(pass, status)?;
    }
    Ok(Outcome::waiting(waits_for))
}

/// Writes `status`, which differs from what is there.
pub(crate) fn write(pass: &mut Pass<'_>, status: DeploymentStatus) -> Step<()> {
    let why = what_changed(&pass.deployment.status, &status);
    pass.deployment_mut().status = status;
    pass.update_deployment_status(Need::Success, why)
}

/// What the ReplicaSets add up to.
///
/// Upstream counterpart: `calculateStatus`. Conditions other than `Available` are carried over, and so is what this
/// version does not know of.
pub(crate) fn calculate_status(pass: &Pass<'_>, roles: &ReplicaSetSplit) -> DeploymentStatus {
    let deployment = &*pass.deployment;
    let before = &deployment.status;
    let available = available_replica_count(roles.all());
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: actual_replica_count(roles.all()),
        updated_replicas: actual_replica_count(&roles.new),
        ready_replicas: ready_replica_count(roles.all()),
        available_replicas: available,
        // Of what is asked for, not of what there is (US-9.13).
        unavailable_replicas: replica_count(roles.all()).wrapping_sub(available).max(0),
        terminating_replicas: match pass.view.terminating_replicas {
            true => terminating_replica_count(roles.all()),
            false => None,
        },
        conditions: before.conditions.clone(),
        collision_count: before.collision_count,
        extra: before.extra.clone(),
    };
    let at_least = availability_threshold(deployment);
    let (holds, reason, message) = if available >= at_least {
        (TRUE, reason::MINIMUM_REPLICAS_AVAILABLE, "Deployment has minimum availability.")
    } else {
        (FALSE, reason::MINIMUM_REPLICAS_UNAVAILABLE, "Deployment does not have minimum availability.")
    };
    conditions::set(&mut status, conditions::new(AVAILABLE, holds, reason, message, pass.now.into()));
    status
}

/// In words, the difference that makes a write of `after` worth its while.
fn what_changed(before: &DeploymentStatus, after: &DeploymentStatus) -> String {
    let mut changes = Vec::new();
    let mut count = |name: &str, before: i64, after: i64| {
        if before != after {
            changes.push(format!("{name} {before}→{after}"));
        }
    };
    count("observed generation", before.observed_generation, after.observed_generation);
    count("replicas", before.replicas.into(), after.replicas.into());
    count("updated", before.updated_replicas.into(), after.updated_replicas.into());
    count("ready", before.ready_replicas.into(), after.ready_replicas.into());
    count("available", before.available_replicas.into(), after.available_replicas.into());
    count("unavailable", before.unavailable_replicas.into(), after.unavailable_replicas.into());
    if before.terminating_replicas != after.terminating_replicas {
        let text = |count: Option<i32>| count.map_or("unknown".to_owned(), |count| count.to_string());
        let (before, after) = (text(before.terminating_replicas), text(after.terminating_replicas));
        changes.push(format!("terminating {before}→{after}"));
    }
    for condition in &after.conditions {
        if !before.conditions.contains(condition) {
            changes.push(format!("{} is {}: {}", condition.type_, condition.status, condition.reason));
        }
    }
    for condition in &before.conditions {
        if after.condition(&condition.type_).is_none() {
            changes.push(format!("no condition {} any more", condition.type_));
        }
    }
    if changes.is_empty() {
        // Only the order of conditions is left.
        changes.push("conditions in another order".to_owned());
    }
    changes.join(", ")
}

#[cfg(test)]
mod tests;
