//! Order of the decisions of a sync (US-4.4).

use kcm_api::{condition_status::UNKNOWN, condition_type::PROGRESSING};
use kcm_deployment_util::{
    annotations::{desired_replicas, rollback_to},
    conditions::{self, reason},
    fenceposts::{RECREATE, ROLLING_UPDATE},
    replica_sets::{is_active, selects_everything},
    rollout::progress_deadline,
};

use super::{
    builder::{PlanBuilder, PlanResult, Requires, ignore_write_error},
    cleanup::cleanup_deployment,
    event::Event,
    new_replica_set::get_all_replica_sets_and_sync_revision,
    notice::Notice,
    outcome::{BlockedOn, SyncOutcome},
    reason::Reason,
    recreate, rollback, rolling, scale,
    sync_status::sync_deployment_status,
};
use crate::error::SyncError;

/// Plans a sync, but for its deferred status.
///
/// Upstream counterpart: `syncDeployment`, after it has claimed the ReplicaSets.
pub(super) fn sync_deployment(plan: &mut PlanBuilder<'_>) -> PlanResult<SyncOutcome> {
    if selects_everything(plan.deployment.spec.selector.as_ref()) {
        return reject_empty_selector(plan);
    }
    if plan.deployment.metadata.is_being_deleted() {
        let replica_sets = get_all_replica_sets_and_sync_revision(plan)?;
        return sync_deployment_status(plan, &replica_sets, BlockedOn::Deletion);
    }
    check_paused_conditions(plan)?;
    if plan.deployment.spec.paused {
        return sync(plan);
    }
    if let Some(revision) = rollback_to(&plan.deployment) {
        return rollback::rollback(plan, revision);
    }
    if is_scaling_event(plan)? {
        return sync(plan);
    }
    match plan.deployment.spec.strategy.type_.as_str() {
        RECREATE => recreate::rollout_recreate(plan),
        ROLLING_UPDATE => rolling::rollout_rolling(plan),
        other => Err(SyncError::UnknownStrategy(other.to_owned()).into()),
    }
}

/// Records an event and `observedGeneration`. An empty selector would match every pod, so the Deployment is not synced.
fn reject_empty_selector(plan: &mut PlanBuilder<'_>) -> PlanResult<SyncOutcome> {
    plan.record_event(Event::SelectingAll)?;
    let generation = plan.deployment.metadata.generation;
    if plan.deployment.status.observed_generation < generation {
        plan.deployment_mut().status.observed_generation = generation;
        let reason = Reason::GenerationObserved { generation };
        ignore_write_error(plan, |plan| plan.update_deployment_status(Requires::Success, reason))?;
    }
    Ok(SyncOutcome::blocked_on(BlockedOn::Selector))
}

/// Updates the condition `Progressing` if the Deployment was paused or resumed (US-4.6).
///
/// The condition's time is then that of the change, so that the progress deadline does not include the time before.
///
/// Upstream counterpart: `checkPausedConditions`.
fn check_paused_conditions(plan: &mut PlanBuilder<'_>) -> PlanResult<()> {
    if progress_deadline(&plan.deployment).is_none() {
        return Ok(());
    }
    let current = plan.deployment.condition(PROGRESSING).map(|condition| condition.reason.as_str());
    let resumed = match (plan.deployment.spec.paused, current) {
        // A rollout that has timed out keeps its condition.
        (_, Some(reason::TIMED_OUT)) | (true, Some(reason::PAUSED)) => return Ok(()),
        (true, _) => false,
        (false, Some(reason::PAUSED)) => true,
        (false, _) => return Ok(()),
    };
    let (condition_reason, message, reason) = if resumed {
        (reason::RESUMED, "Deployment is resumed", Reason::Resumed)
    } else {
        (reason::PAUSED, "Deployment is paused", Reason::Paused)
    };
    let condition = conditions::new(PROGRESSING, UNKNOWN, condition_reason, message, plan.now.into());
    conditions::set(&mut plan.deployment_mut().status, condition);
    let version = plan.deployment.metadata.resource_version.clone();
    plan.defer_status_update(reason)?;
    let is_newer = plan.deployment.metadata.resource_version != version;
    plan.resumed = resumed && (plan.view.coalesce_status_writes || is_newer);
    Ok(())
}

/// Returns `true` if an active ReplicaSet was last scaled for another size of the Deployment.
///
/// Upstream counterpart: `isScalingEvent`.
fn is_scaling_event(plan: &mut PlanBuilder<'_>) -> PlanResult<bool> {
    let replica_sets = get_all_replica_sets_and_sync_revision(plan)?;
    let desired = plan.deployment.replicas();
    for set in replica_sets.all().filter(|set| is_active(set)) {
        match desired_replicas(set) {
            Ok(Some(annotation)) if annotation != desired => return Ok(true),
            Ok(_) => {}
            Err(error) => plan.notice(Notice::InvalidAnnotation(error)),
        }
    }
    Ok(false)
}

/// Scales the ReplicaSets to the Deployment's size, without progress of the rollout (US-4.7).
///
/// Used for scaling events and for paused Deployments.
///
/// Upstream counterpart: `sync`.
fn sync(plan: &mut PlanBuilder<'_>) -> PlanResult<SyncOutcome> {
    let replica_sets = get_all_replica_sets_and_sync_revision(plan)?;
    let actions_before = plan.action_count();
    let is_unobserved = recreate::has_unobserved_scale_down(plan, &replica_sets);
    if !is_unobserved {
        scale::scale(plan, &replica_sets)?;
    }
    let paused = plan.deployment.spec.paused;
    let blocked_on = if paused {
        BlockedOn::Resume
    } else if !is_unobserved && plan.action_count() == actions_before {
        BlockedOn::DesiredReplicasAnnotation
    } else {
        BlockedOn::ReplicaSetStatus
    };
    if paused && rollback_to(&plan.deployment).is_none() {
        cleanup_deployment(plan, &replica_sets.old)?;
    }
    sync_deployment_status(plan, &replica_sets, blocked_on)
}
