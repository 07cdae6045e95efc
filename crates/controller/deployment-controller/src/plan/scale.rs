//! Sizes of ReplicaSets after the Deployment was scaled (US-4.8a, US-4.8b).

use std::{num::Wrapping, sync::Arc};

use kcm_api::ReplicaSet;
use kcm_deployment_util::{
    annotations::{max_replicas, replicas_annotations_need_update, set_replicas_annotations},
    fenceposts::{is_rolling_update, max_total_replicas},
    proportions::proportional_sizes,
    replica_sets::{ReplicaSetSplit, find_active_or_latest, is_active, is_saturated, replica_count},
    sort,
};

use super::{
    builder::{PlanBuilder, PlanResult, Requires},
    event::Event,
    notice::Notice,
    reason::Reason,
};

/// Result of scaling a ReplicaSet.
pub(super) struct ScaleResult {
    /// `true` if the size has changed. `false` if at most annotations have.
    pub(super) scaled: bool,
    /// The ReplicaSet after the write, or unchanged.
    pub(super) replica_set: Arc<ReplicaSet>,
}

/// Scales `set` to `to` replicas, and updates its annotations and records an event if that changes its size.
///
/// Upstream counterpart: `scaleReplicaSetAndRecordEvent`.
pub(super) fn scale_replica_set_and_record_event(
    plan: &mut PlanBuilder<'_>,
    set: &Arc<ReplicaSet>,
    to: i32,
    requires: Requires,
    reason: Reason,
) -> PlanResult<ScaleResult> {
    if set.replicas() == to {
        return Ok(ScaleResult { scaled: false, replica_set: Arc::clone(set) });
    }
    scale_replica_set(plan, set, to, requires, reason)
}

/// Scales `set` to `to` replicas. Updates its annotations even if it has this size.
///
/// Upstream counterpart: `scaleReplicaSet`.
fn scale_replica_set(
    plan: &mut PlanBuilder<'_>,
    set: &Arc<ReplicaSet>,
    to: i32,
    requires: Requires,
    reason: Reason,
) -> PlanResult<ScaleResult> {
    let (desired, max) = (plan.deployment.replicas(), max_total_replicas(&plan.deployment));
    let from = set.replicas();
    let scaled = from != to;
    if !scaled && !replicas_annotations_need_update(&set.metadata.annotations, desired, max) {
        return Ok(ScaleResult { scaled, replica_set: Arc::clone(set) });
    }
    let mut changed = (**set).clone();
    changed.spec.replicas = Some(to);
    set_replicas_annotations(&mut changed.metadata.annotations, desired, max);
    let replica_set = plan.update_replica_set(changed, requires, reason)?;
    if scaled {
        let name = Arc::clone(&replica_set.metadata.name);
        plan.record_event(Event::ScaledReplicaSet { replica_set: name, from, to })?;
    }
    Ok(ScaleResult { scaled, replica_set })
}

/// Scales the ReplicaSets to the size of the Deployment, without progress of the rollout.
///
/// | ReplicaSets | Effect |
/// |---|---|
/// | at most one is active | it is scaled to the Deployment's size |
/// | the new one is saturated | the old ones are scaled to 0 |
/// | several are active, rolling update | each is scaled [in proportion](proportional_sizes) |
///
/// Proportional scaling keeps the risk of a rollout: the share of new pods does not grow when the Deployment does.
///
/// Upstream counterpart: `scale`.
pub(super) fn scale(plan: &mut PlanBuilder<'_>, replica_sets: &ReplicaSetSplit) -> PlanResult<()> {
    let desired = plan.deployment.replicas();
    if let Some(active_or_latest) = find_active_or_latest(replica_sets) {
        let reason = Reason::OnlyActiveReplicaSet { desired };
        scale_replica_set_and_record_event(plan, active_or_latest, desired, Requires::Success, reason)?;
        return Ok(());
    }
    // Newest first, as upstream.
    let active_old = replica_sets.active_old().rev();
    if is_saturated(&plan.deployment, replica_sets.new.as_deref()) {
        for set in active_old {
            let reason = Reason::NewReplicaSetSaturated { desired };
            scale_replica_set_and_record_event(plan, set, 0, Requires::Success, reason)?;
        }
        return Ok(());
    }
    if !is_rolling_update(&plan.deployment) {
        return Ok(());
    }
    let mut active: Vec<_> = active_old.chain(replica_sets.new.iter().filter(|set| is_active(set))).collect();
    let max_total = if desired > 0 { max_total_replicas(&plan.deployment) } else { 0 };
    let total = replica_count(active.iter().copied());
    let replicas_to_add = (Wrapping(max_total) - Wrapping(total)).0;
    if replicas_to_add > 0 {
        active.sort_by(|a, b| sort::size_newer_order(a, b));
    } else if replicas_to_add < 0 {
        active.sort_by(|a, b| sort::size_older_order(a, b));
    }
    if replicas_to_add != 0 && desired != 0 {
        for error in active.iter().filter_map(|set| max_replicas(set).err()) {
            plan.notice(Notice::InvalidAnnotation(error));
        }
    }
    let sizes = proportional_sizes(&plan.deployment, active.iter().copied(), replicas_to_add);
    for (set, size) in active.into_iter().zip(sizes) {
        let reason = Reason::ProportionalScaling { replicas_to_add, total, max_total };
        scale_replica_set(plan, set, size, Requires::Success, reason)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
