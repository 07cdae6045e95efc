//! Sizes of ReplicaSets: of one, and of all in proportion (US-4.8a, US-4.8b).

use std::sync::Arc;

use kcm_api::ReplicaSet;
use kcm_deployment_util::{
    annotations::{replicas_annotations_need_update, set_replicas_annotations},
    fenceposts::{is_rolling_update, max_total_replicas},
    proportions::proportional_sizes,
    replica_sets::{ReplicaSetSplit, find_active_or_latest, is_active, is_saturated, replica_count},
    sort,
};
use kcm_events::EventType;

use crate::pass::{Need, Pass, Step};

/// The reason of every event about a change of size.
pub(crate) const SCALING_REPLICA_SET: &str = "ScalingReplicaSet";

/// What became of a ReplicaSet that was to be scaled.
pub(crate) struct Scaled {
    /// Whether its size was changed. Its annotations may have been all the same.
    pub(crate) resized: bool,
    /// How it is now.
    pub(crate) replica_set: Arc<ReplicaSet>,
}

/// Gives `set` the size `to`, and notes the Deployment's size on it.
///
/// A ReplicaSet that has the size already is left alone, whatever is noted on it.
pub(crate) fn scale_replica_set(
    pass: &mut Pass<'_>,
    set: &Arc<ReplicaSet>,
    to: i32,
    need: Need,
    why: String,
) -> Step<Scaled> {
    if set.replicas() == to {
        return Ok(Scaled { resized: false, replica_set: Arc::clone(set) });
    }
    write_size(pass, set, to, need, why)
}

/// Gives `set` the size `to`, and notes the Deployment's size on it also where the size is right already.
///
/// Upstream counterpart: `scaleReplicaSet`; this is its forced form.
fn write_size(pass: &mut Pass<'_>, set: &Arc<ReplicaSet>, to: i32, need: Need, why: String) -> Step<Scaled> {
    let desired = pass.deployment.replicas();
    let max = max_total_replicas(&pass.deployment);
    let from = set.replicas();
    let resized = from != to;
    if !resized && !replicas_annotations_need_update(&set.metadata.annotations, desired, max) {
        return Ok(Scaled { resized, replica_set: Arc::clone(set) });
    }
    let mut changed = (**set).clone();
    changed.spec.replicas = Some(to);
    set_replicas_annotations(&mut changed.metadata.annotations, desired, max);
    let replica_set = pass.update_replica_set(changed, need, why)?;
    if resized {
        let direction = if from < to { "up" } else { "down" };
        let name = &replica_set.metadata.name;
        let message = format!("Scaled {direction} replica set {name} from {from} to {to}");
        pass.event(EventType::Normal, SCALING_REPLICA_SET, message, "its size was changed")?;
    }
    Ok(Scaled { resized, replica_set })
}

/// Brings the ReplicaSets to the Deployment's size, without going on with the rollout.
///
/// Upstream counterpart: `scale`. A single ReplicaSet takes it all. During a rollout each gets its share, so that
/// a change of size tests no more of the new template than was tested before.
pub(crate) fn scale(pass: &mut Pass<'_>, roles: &ReplicaSetSplit) -> Step<()> {
    let desired = pass.deployment.replicas();
    if let Some(only) = find_active_or_latest(roles) {
        let why = format!("no other replica set has pods, and {desired} are wanted");
        scale_replica_set(pass, only, desired, Need::Success, why)?;
        return Ok(());
    }
    // From here on upstream has the old ones from new to old.
    let old_and_active = roles.old.iter().rev().filter(|set| is_active(set));
    if is_saturated(&pass.deployment, roles.new.as_deref()) {
        for set in old_and_active {
            let why = format!("the new replica set has all {desired} pods, and all are available");
            scale_replica_set(pass, set, 0, Need::Success, why)?;
        }
        return Ok(());
    }
    if !is_rolling_update(&pass.deployment) {
        return Ok(());
    }
    let mut active: Vec<_> = old_and_active.chain(roles.new.iter().filter(|set| is_active(set))).collect();
    let allowed = if desired > 0 { max_total_replicas(&pass.deployment) } else { 0 };
    let total = replica_count(active.iter().copied());
    let to_add = allowed.wrapping_sub(total);
    if to_add > 0 {
        active.sort_by(|a, b| sort::size_newer_order(a, b));
    } else if to_add < 0 {
        active.sort_by(|a, b| sort::size_older_order(a, b));
    }
    let sizes = proportional_sizes(&pass.deployment, active.iter().copied(), to_add);
    for (set, size) in active.into_iter().zip(sizes) {
        let why = format!(
            "of {to_add:+} pods, from {total} to {allowed} in all, {:+} is its share",
            size.wrapping_sub(set.replicas())
        );
        write_size(pass, set, size, Need::Success, why)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
