//! Old ReplicaSets beyond the history limit (US-4.13).

use std::sync::Arc;

use kcm_api::ReplicaSet;
use kcm_deployment_util::{rollout::revision_history_limit, sort};

use crate::pass::{Pass, Step};

/// Deletes as many of the `old` ReplicaSets as there are too many, those of the lowest revisions, and of these only
/// such as have no pods.
///
/// Upstream counterpart: `cleanupDeployment`. One that still has pods is spared, and no other goes in its place.
pub(crate) fn cleanup_deployment(pass: &mut Pass<'_>, old: &[Arc<ReplicaSet>]) -> Step<()> {
    let Some(limit) = revision_history_limit(&pass.deployment) else { return Ok(()) };
    let mut candidates: Vec<_> = old.iter().filter(|set| !set.metadata.is_being_deleted()).cloned().collect();
    // DEVIATION: upstream's index runs past the list, and it panics, when the limit is negative. The API server
    // allows none.
    let excess = candidates.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    if excess == 0 {
        return Ok(());
    }
    sort::by_revision(&mut candidates);
    let kept = candidates.len() - excess;
    for set in candidates.iter().take(excess).filter(|set| is_idle(set)) {
        let why = format!("{kept} old replica sets are kept, and it is not one of the latest");
        pass.delete_replica_set(set, why)?;
    }
    Ok(())
}

/// Whether a ReplicaSet has no pods, wants none, and has been looked at since.
fn is_idle(set: &ReplicaSet) -> bool {
    set.status.replicas == 0
        && set.replicas() == 0
        && set.metadata.generation <= set.status.observed_generation
}

#[cfg(test)]
mod tests;
