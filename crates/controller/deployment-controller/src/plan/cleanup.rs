//! Deletion of old ReplicaSets beyond the history limit (US-4.13).

use std::sync::Arc;

use kcm_api::ReplicaSet;
use kcm_deployment_util::{rollout::revision_history_limit, sort};

use super::{
    builder::{PlanBuilder, PlanResult},
    reason::Reason,
};

/// Deletes the old ReplicaSets beyond `revisionHistoryLimit`, lowest revisions first.
///
/// A ReplicaSet that still has pods is kept, and no other one is deleted in its place. Example: limit 1 and revisions 1,
/// 2 and 3, of which 1 has pods. Revisions 1 and 2 are beyond the limit, and only 2 is deleted.
///
/// Upstream counterpart: `cleanupDeployment`.
pub(super) fn cleanup_deployment(plan: &mut PlanBuilder<'_>, old: &[Arc<ReplicaSet>]) -> PlanResult<()> {
    let Some(limit) = revision_history_limit(&plan.deployment) else { return Ok(()) };
    let mut candidates: Vec<_> = old.iter().filter(|set| !set.metadata.is_being_deleted()).cloned().collect();
    // DEVIATION: with a negative limit, which the API server rejects, upstream indexes beyond the list and panics.
    let limit = usize::try_from(limit).unwrap_or(0);
    let excess = candidates.len().saturating_sub(limit);
    if excess == 0 {
        return Ok(());
    }
    sort::by_revision(&mut candidates);
    for set in candidates.iter().take(excess).filter(|set| is_unused(set)) {
        plan.delete_replica_set(set, Reason::RevisionHistoryLimit { limit })?;
    }
    Ok(())
}

/// Returns `true` if the ReplicaSet has no pods, desires none, and its controller has observed that.
fn is_unused(set: &ReplicaSet) -> bool {
    set.status.replicas == 0
        && set.replicas() == 0
        && set.metadata.generation <= set.status.observed_generation
}

#[cfg(test)]
mod tests;
