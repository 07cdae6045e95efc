//! The new ReplicaSet: finds and updates it, or creates it (US-4.8).

use std::sync::Arc;

use kcm_api::{
    ApiError, Deployment, DeploymentCondition, LabelSelector, ObjectKey, POD_TEMPLATE_HASH_LABEL, ReplicaSet,
    ReplicaSetSpec,
    condition_status::{FALSE, TRUE},
    condition_type::PROGRESSING,
};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_deployment_util::{
    annotations::REVISION,
    conditions::{self, reason},
    fenceposts::new_rs_new_replicas,
    names::replica_set_name,
    replica_sets::{ReplicaSetSplit, replica_count},
    revisions::{
        AnnotationsUpdate, Existence, MAX_HISTORY_LENGTH, deployment_revision_differs, max_revision,
        set_deployment_revision, set_new_replica_set_annotations,
    },
    rollout::progress_deadline,
};

use super::{
    action::ActionResult,
    builder::{PlanBuilder, PlanResult, Requires, ignore_write_error},
    event::Event,
    notice::Notice,
    reason::Reason,
};
use crate::error::SyncError;

/// Splits the ReplicaSets into the new one and the old ones, and updates the new one if it exists.
///
/// Upstream counterpart: `getAllReplicaSetsAndSyncRevision` without creation.
pub(super) fn get_all_replica_sets_and_sync_revision(
    plan: &mut PlanBuilder<'_>,
) -> PlanResult<ReplicaSetSplit> {
    let mut replica_sets = ReplicaSetSplit::find(&plan.deployment, &plan.replica_sets);
    if let Some(existing) = replica_sets.new.take() {
        let revision = next_revision(&replica_sets);
        replica_sets.new = Some(sync_existing(plan, existing, revision)?);
    }
    Ok(replica_sets)
}

/// Splits the ReplicaSets, and updates or creates the new one. Returns it in the split and separately.
///
/// Upstream counterpart: `getAllReplicaSetsAndSyncRevision` with creation.
pub(super) fn get_or_create_new_replica_set(
    plan: &mut PlanBuilder<'_>,
) -> PlanResult<(ReplicaSetSplit, Arc<ReplicaSet>)> {
    let mut replica_sets = ReplicaSetSplit::find(&plan.deployment, &plan.replica_sets);
    let revision = next_revision(&replica_sets);
    let new_rs = match replica_sets.new.take() {
        Some(existing) => sync_existing(plan, existing, revision)?,
        None => create(plan, &replica_sets.old, revision)?,
    };
    replica_sets.new = Some(Arc::clone(&new_rs));
    Ok((replica_sets, new_rs))
}

/// Returns the revision of the new ReplicaSet: 1 more than the highest revision of the old ones.
fn next_revision(replica_sets: &ReplicaSetSplit) -> i64 {
    max_revision(&replica_sets.old).wrapping_add(1)
}

/// Updates the annotations and `minReadySeconds` of the new ReplicaSet, or records it in the Deployment.
fn sync_existing(
    plan: &mut PlanBuilder<'_>,
    existing: Arc<ReplicaSet>,
    revision: i64,
) -> PlanResult<Arc<ReplicaSet>> {
    let deployment = &plan.deployment;
    let mut annotations = existing.metadata.annotations.clone();
    let AnnotationsUpdate { needs_write, problem } = set_new_replica_set_annotations(
        deployment,
        &mut annotations,
        revision,
        Existence::Exists,
        MAX_HISTORY_LENGTH,
    );
    let min_ready_seconds = deployment.spec.min_ready_seconds;
    let min_ready_seconds_differs = existing.spec.min_ready_seconds != min_ready_seconds;

    // Annotations that need no write are kept: the next write of the ReplicaSet contains them.
    let new_rs = if min_ready_seconds_differs || annotations != existing.metadata.annotations {
        let mut changed = (*existing).clone();
        changed.metadata.annotations = annotations;
        changed.spec.min_ready_seconds = min_ready_seconds;
        Arc::new(changed)
    } else {
        existing
    };
    if let Some(problem) = problem {
        plan.notice(Notice::Revision(problem));
    }
    if needs_write || min_ready_seconds_differs {
        let reason = if min_ready_seconds_differs {
            Reason::MinReadySecondsChanged { min_ready_seconds }
        } else {
            Reason::NewReplicaSetAnnotations { revision }
        };
        let updated = plan.update_replica_set((*new_rs).clone(), Requires::Object, reason)?;
        plan.replace_replica_set(&updated);
        return Ok(updated);
    }
    record_found(plan, &new_rs)?;
    Ok(new_rs)
}

/// Records an existing new ReplicaSet in the Deployment: its revision, and the condition `Progressing` if missing.
fn record_found(plan: &mut PlanBuilder<'_>, new_rs: &ReplicaSet) -> PlanResult<()> {
    let revision = new_rs.metadata.annotations.get(REVISION).map_or("", String::as_str);
    let revision_differs = deployment_revision_differs(&plan.deployment.metadata.annotations, revision);
    if revision_differs {
        set_deployment_revision(plan.deployment_mut(), revision);
    }
    let condition_is_missing =
        progress_deadline(&plan.deployment).is_some() && plan.deployment.condition(PROGRESSING).is_none();
    if condition_is_missing {
        let message = format!("Found new replica set \"{}\"", new_rs.metadata.name);
        let condition =
            conditions::new(PROGRESSING, TRUE, reason::FOUND_NEW_REPLICA_SET, message, plan.now.into());
        conditions::set(&mut plan.deployment_mut().status, condition);
    }
    if !revision_differs && !condition_is_missing {
        return Ok(());
    }
    let reason = Reason::NewReplicaSetFound {
        replica_set: Arc::clone(&new_rs.metadata.name),
        revision: revision_differs.then(|| revision.to_owned()),
    };
    plan.defer_status_update(reason)
}

fn create(plan: &mut PlanBuilder<'_>, old: &[Arc<ReplicaSet>], revision: i64) -> PlanResult<Arc<ReplicaSet>> {
    let set = new_replica_set(plan, old, revision)?;
    let (name, replicas) = (Arc::clone(&set.metadata.name), set.replicas());
    let reason = Reason::NoNewReplicaSet { revision, replicas, desired: plan.deployment.replicas() };
    let result = plan.create_replica_set(set, reason)?;
    let created = match result {
        ActionResult::ReplicaSet(created) => Some(created),
        // The create was executed, and its response was lost.
        ActionResult::AlreadyExists { error, existing: Some(existing) } if !error.is_already_exists() => {
            Some(existing).filter(|existing| is_new_replica_set(&plan.deployment, existing))
        }
        _ => None,
    };
    if let Some(created) = created {
        if replicas > 0 {
            let replica_set = Arc::clone(&created.metadata.name);
            plan.record_event(Event::ScaledReplicaSet { replica_set, from: 0, to: replicas })?;
        }
        let message = format!("Created new replica set \"{}\"", created.metadata.name);
        record_created(plan, revision, Some(message))?;
        return Ok(Arc::clone(created));
    }
    match result {
        ActionResult::AlreadyExists { error, existing: None } => {
            let replica_set = key_of(&plan.deployment, name);
            Err(SyncError::ExistingReplicaSetNotRead { replica_set, source: error.clone() }.into())
        }
        ActionResult::AlreadyExists { existing: Some(existing), .. }
            if is_new_replica_set(&plan.deployment, existing) =>
        {
            record_created(plan, revision, None)?;
            Ok(Arc::clone(existing))
        }
        ActionResult::AlreadyExists { error, .. } => {
            increase_collision_count(plan, &name)?;
            Err(create_error(plan, name, error).into())
        }
        ActionResult::Failed(error) => {
            if !error.is_namespace_terminating() {
                record_failed_create(plan, &name, error)?;
            }
            Err(create_error(plan, name, error).into())
        }
        ActionResult::ReplicaSet(_) | ActionResult::Deployment(_) | ActionResult::Done => {
            plan.unexpected_result()
        }
    }
}

fn key_of(deployment: &Deployment, replica_set: Arc<str>) -> ObjectKey {
    ObjectKey::new(Arc::clone(&deployment.metadata.namespace), replica_set)
}

fn create_error(plan: &PlanBuilder<'_>, name: Arc<str>, error: &ApiError) -> SyncError {
    let object = key_of(&plan.deployment, name);
    SyncError::Write { operation: "create replica set", object, source: error.clone() }
}

/// Returns the ReplicaSet to be created: it has the Deployment's template and the size that the bounds permit.
fn new_replica_set(
    plan: &mut PlanBuilder<'_>,
    old: &[Arc<ReplicaSet>],
    revision: i64,
) -> Result<ReplicaSet, SyncError> {
    let deployment = &plan.deployment;
    let template = &deployment.spec.template;
    let hash = template
        .compute_hash(deployment.status.collision_count)
        .map_err(|source| SyncError::Hash { deployment: deployment.metadata.key(), source })?;
    let template = template.with_label(POD_TEMPLATE_HASH_LABEL, Some(&hash)).map_err(|source| {
        SyncError::Template { object: deployment.metadata.key(), source: Arc::new(source) }
    })?;

    let mut set = ReplicaSet::default();
    set.metadata.name = replica_set_name(&deployment.metadata.name, &hash).into();
    set.metadata.namespace = Arc::clone(&deployment.metadata.namespace);
    set.metadata.owner_references = vec![OwnerIdentity::from(&**deployment).controller_reference()];
    // The labels of the template with the hash. The Deployment's own labels are not copied.
    set.metadata.labels = template.labels().clone();
    set.spec = ReplicaSetSpec {
        replicas: Some(new_rs_new_replicas(deployment, 0, replica_count(old))?),
        min_ready_seconds: deployment.spec.min_ready_seconds,
        selector: Some(selector_with_hash(deployment.spec.selector.as_ref(), &hash)),
        template,
        ..ReplicaSetSpec::default()
    };
    let update = set_new_replica_set_annotations(
        deployment,
        &mut set.metadata.annotations,
        revision,
        Existence::ToBeCreated,
        MAX_HISTORY_LENGTH,
    );
    if let Some(problem) = update.problem {
        plan.notice(Notice::Revision(problem));
    }
    Ok(set)
}

fn selector_with_hash(selector: Option<&LabelSelector>, hash: &str) -> LabelSelector {
    let mut selector = selector.cloned().unwrap_or_default();
    selector.match_labels.insert(POD_TEMPLATE_HASH_LABEL.to_owned(), hash.to_owned());
    selector
}

/// Returns `true` if `existing` is the ReplicaSet to be created: an earlier create was executed.
fn is_new_replica_set(deployment: &Deployment, existing: &ReplicaSet) -> bool {
    existing.metadata.controller().is_some_and(|owner| owner.uid == deployment.metadata.uid)
        && existing.spec.template.equal_ignore_hash(&deployment.spec.template)
}

/// Records the revision of the new ReplicaSet in the Deployment, and the condition `Progressing` with `message`.
///
/// `message` is `None` if an earlier sync created the ReplicaSet.
fn record_created(plan: &mut PlanBuilder<'_>, revision: i64, message: Option<String>) -> PlanResult<()> {
    let mut changed = set_deployment_revision(plan.deployment_mut(), &revision.to_string());
    // Upstream's write of this condition fails with 409 after a resume, and its next sync finds the ReplicaSet. The
    // reason DeploymentResumed then remains until pods change (story d06).
    let message = message.filter(|_| progress_deadline(&plan.deployment).is_some() && !plan.resumed);
    if let Some(message) = message {
        let condition = conditions::new(PROGRESSING, TRUE, reason::NEW_REPLICA_SET, message, plan.now.into());
        conditions::set(&mut plan.deployment_mut().status, condition);
        changed = true;
    }
    if !changed {
        return Ok(());
    }
    plan.defer_status_update(Reason::RolloutStarted { revision })
}

/// Increases `collisionCount`, so that the next sync computes another hash and name.
fn increase_collision_count(plan: &mut PlanBuilder<'_>, name: &Arc<str>) -> PlanResult<()> {
    let from = plan.deployment.status.collision_count.unwrap_or(0);
    let to = from.wrapping_add(1);
    plan.deployment_mut().status.collision_count = Some(to);
    let reason = Reason::HashCollision { replica_set: Arc::clone(name), collision_count: to };
    let written = ignore_write_error(plan, |plan| plan.update_deployment_status(Requires::Success, reason))?;
    if written.is_some() {
        plan.notice(Notice::HashCollision { from, to });
    }
    Ok(())
}

/// Records a failed create: the condition `Progressing` and an event.
fn record_failed_create(plan: &mut PlanBuilder<'_>, name: &Arc<str>, error: &ApiError) -> PlanResult<()> {
    let event = Event::FailedReplicaSetCreate { replica_set: Arc::clone(name), error: error.to_string() };
    if progress_deadline(&plan.deployment).is_some() {
        let (reason, message) = (reason::FAILED_REPLICA_SET_CREATE, event.to_string());
        let condition = conditions::new(PROGRESSING, FALSE, reason, message, plan.now.into());
        if set_progressing(plan, condition) {
            let reason = Reason::CreateFailed { replica_set: Arc::clone(name) };
            ignore_write_error(plan, |plan| plan.update_deployment_status(Requires::Success, reason))?;
        }
    }
    plan.record_event(event)
}

/// Sets the condition `Progressing`. Returns `false` if the Deployment has it already, with the same status and reason.
///
/// DEVIATION: upstream writes the status with each retry of a create that fails.
fn set_progressing(plan: &mut PlanBuilder<'_>, condition: DeploymentCondition) -> bool {
    let is_same = |current: &DeploymentCondition| {
        current.status == condition.status && current.reason == condition.reason
    };
    if plan.deployment.condition(PROGRESSING).is_some_and(is_same) {
        return false;
    }
    conditions::set(&mut plan.deployment_mut().status, condition);
    true
}
