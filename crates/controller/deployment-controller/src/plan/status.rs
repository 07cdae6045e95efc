//! Status of the Deployment, computed from its ReplicaSets (US-4.11).

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

use super::{
    builder::{PlanBuilder, PlanResult, Requires},
    outcome::{BlockedOn, SyncOutcome},
    reason::Reason,
    status_change::StatusChange,
};

/// Writes the status without the condition `Progressing` if it has changed.
///
/// Upstream counterpart: `syncDeploymentStatus`.
pub(super) fn sync_deployment_status(
    plan: &mut PlanBuilder<'_>,
    replica_sets: &ReplicaSetSplit,
    blocked_on: BlockedOn,
) -> PlanResult<SyncOutcome> {
    let status = calculate_status(plan, replica_sets);
    if status != plan.deployment.status {
        update_status(plan, status)?;
    }
    Ok(SyncOutcome::blocked_on(blocked_on))
}

/// Writes `status`, which differs from the present one.
pub(super) fn update_status(plan: &mut PlanBuilder<'_>, status: DeploymentStatus) -> PlanResult<()> {
    let reason = Reason::StatusChanged(StatusChange::between(&plan.deployment.status, &status));
    plan.deployment_mut().status = status;
    plan.update_deployment_status(Requires::Success, reason)
}

/// Returns the status without changes of the condition `Progressing`.
///
/// Other conditions and unknown fields are kept.
///
/// Upstream counterpart: `calculateStatus`.
pub(super) fn calculate_status(plan: &PlanBuilder<'_>, replica_sets: &ReplicaSetSplit) -> DeploymentStatus {
    let deployment = &*plan.deployment;
    let current = &deployment.status;
    let available_replicas = available_replica_count(replica_sets.all());
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: actual_replica_count(replica_sets.all()),
        updated_replicas: actual_replica_count(&replica_sets.new),
        ready_replicas: ready_replica_count(replica_sets.all()),
        available_replicas,
        // Of `spec.replicas`, not of the actual pods (US-9.13).
        unavailable_replicas: replica_count(replica_sets.all()).wrapping_sub(available_replicas).max(0),
        terminating_replicas: if plan.view.terminating_replicas {
            terminating_replica_count(replica_sets.all())
        } else {
            None
        },
        conditions: current.conditions.clone(),
        collision_count: current.collision_count,
        extra: current.extra.clone(),
    };
    let (condition_status, reason, message) = if available_replicas >= availability_threshold(deployment) {
        (TRUE, reason::MINIMUM_REPLICAS_AVAILABLE, "Deployment has minimum availability.")
    } else {
        (FALSE, reason::MINIMUM_REPLICAS_UNAVAILABLE, "Deployment does not have minimum availability.")
    };
    let condition = conditions::new(AVAILABLE, condition_status, reason, message, plan.now.into());
    conditions::set(&mut status, condition);
    status
}

#[cfg(test)]
mod tests;
