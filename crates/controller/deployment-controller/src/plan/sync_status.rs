//! Write of a changed status (US-4.11).

use kcm_api::DeploymentStatus;
use kcm_deployment_util::replica_sets::ReplicaSetSplit;

use super::{
    builder::{PlanBuilder, PlanResult, Requires},
    outcome::{BlockedOn, SyncOutcome},
    reason::Reason,
};
use crate::status::StatusChange;

/// Writes the status without the condition `Progressing` if it has changed.
///
/// Upstream counterpart: `syncDeploymentStatus`.
pub(super) fn sync_deployment_status(
    plan: &mut PlanBuilder<'_>,
    replica_sets: &ReplicaSetSplit,
    blocked_on: BlockedOn,
) -> PlanResult<SyncOutcome> {
    let status = plan.calculate_status(replica_sets);
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

#[cfg(test)]
mod tests;
