//! Which of the decisions a sync comes to, and in which order (US-4.4).

use std::sync::Arc;

use kcm_api::{ReplicaSet, condition_status::UNKNOWN};
use kcm_deployment_util::{
    annotations::{desired_replicas, rollback_to},
    conditions::{self, condition_type::PROGRESSING, reason},
    fenceposts::{RECREATE, ROLLING_UPDATE},
    replica_sets::{is_active, selects_everything},
    rollout::progress_deadline,
};
use kcm_events::EventType;

use crate::{
    Outcome, SyncError, WaitsFor, cleanup, new_replica_set,
    pass::{Need, Pass, Step, ignore_error},
    recreate, rollback, rolling, scale, status,
};

/// Upstream counterpart: `syncDeployment`, from where the ReplicaSets are claimed.
pub(crate) fn sync_deployment(pass: &mut Pass<'_>) -> Step<Outcome> {
    if selects_everything(pass.deployment.spec.selector.as_ref()) {
        return refuse_selector(pass);
    }
    if pass.deployment.metadata.is_being_deleted() {
        let roles = new_replica_set::find_and_sync(pass)?;
        return status::sync_deployment_status(pass, &roles, WaitsFor::Deletion);
    }
    check_paused_conditions(pass)?;
    if pass.deployment.spec.paused {
        return sync(pass);
    }
    if let Some(revision) = rollback_to(&pass.deployment) {
        return rollback::rollback(pass, revision);
    }
    if is_scaling_event(pass)? {
        return sync(pass);
    }
    match pass.deployment.spec.strategy.type_.as_str() {
        RECREATE => recreate::rollout_recreate(pass),
        ROLLING_UPDATE => rolling::rollout_rolling(pass),
        other => Err(SyncError::UnexpectedStrategy(other.to_owned()).into()),
    }
}

/// A Deployment with an empty selector would take every pod there is, so it takes none.
fn refuse_selector(pass: &mut Pass<'_>) -> Step<Outcome> {
    pass.event(
        EventType::Warning,
        "SelectingAll",
        "This deployment is selecting all pods. A non-empty selector is required.".to_owned(),
        "its selector is empty",
    )?;
    let generation = pass.deployment.metadata.generation;
    if pass.deployment.status.observed_generation < generation {
        pass.deployment_mut().status.observed_generation = generation;
        let why = format!("generation {generation} was looked at");
        ignore_error(pass, |pass| pass.update_deployment_status(Need::Success, why))?;
    }
    Ok(Outcome::waiting(WaitsFor::Selector))
}

/// Notes when the Deployment is paused or resumed, so that its progress deadline does not run meanwhile (US-4.6).
///
/// Upstream counterpart: `checkPausedConditions`.
fn check_paused_conditions(pass: &mut Pass<'_>) -> Step<()> {
    if progress_deadline(&pass.deployment).is_none() {
        return Ok(());
    }
    let current = pass.deployment.condition(PROGRESSING).map(|condition| condition.reason.as_str());
    let (reason, message) = match (pass.deployment.spec.paused, current) {
        // What is stuck stays so, whether paused or not.
        (_, Some(reason::TIMED_OUT)) => return Ok(()),
        (true, Some(reason::PAUSED)) => return Ok(()),
        (true, _) => (reason::PAUSED, "Deployment is paused"),
        (false, Some(reason::PAUSED)) => (reason::RESUMED, "Deployment is resumed"),
        (false, _) => return Ok(()),
    };
    let condition = conditions::new(PROGRESSING, UNKNOWN, reason, message, pass.now.into());
    conditions::set(&mut pass.deployment_mut().status, condition);
    let why = format!("the deadline for progress does not run while paused: {message}");
    let version = pass.deployment.metadata.resource_version.clone();
    pass.update_deployment_status(Need::Answer, why)?;
    pass.resumed = reason == reason::RESUMED && pass.deployment.metadata.resource_version != version;
    Ok(())
}

/// Whether the Deployment's size has changed since a ReplicaSet with pods was last scaled.
///
/// Upstream counterpart: `isScalingEvent`.
fn is_scaling_event(pass: &mut Pass<'_>) -> Step<bool> {
    let roles = new_replica_set::find_and_sync(pass)?;
    let desired = pass.deployment.replicas();
    let scaled_for_another_size = |set: &Arc<ReplicaSet>| {
        is_active(set) && desired_replicas(set).ok().flatten().is_some_and(|noted| noted != desired)
    };
    Ok(roles.all().any(scaled_for_another_size))
}

/// Brings the ReplicaSets to the Deployment's size, and changes nothing else (US-4.7).
///
/// Upstream counterpart: `sync`. It is all that happens to a paused Deployment.
fn sync(pass: &mut Pass<'_>) -> Step<Outcome> {
    let roles = new_replica_set::find_and_sync(pass)?;
    let actions_before = pass.action_count();
    scale::scale(pass, &roles)?;
    let waits_for = match pass.deployment.spec.paused {
        true => WaitsFor::Resume,
        false if pass.action_count() == actions_before => WaitsFor::AnotherSize,
        false => WaitsFor::ReplicaSets,
    };
    if pass.deployment.spec.paused && rollback_to(&pass.deployment).is_none() {
        cleanup::cleanup_deployment(pass, &roles.old)?;
    }
    status::sync_deployment_status(pass, &roles, waits_for)
}
