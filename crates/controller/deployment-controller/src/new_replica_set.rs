//! The new ReplicaSet: found and brought up to date, or created (US-4.8).

use std::sync::Arc;

use kcm_api::{
    Deployment, DeploymentCondition, LabelSelector, POD_TEMPLATE_HASH_LABEL, ReplicaSet, ReplicaSetSpec,
    condition_status::{FALSE, TRUE},
};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_deployment_util::{
    annotations::REVISION,
    conditions::{self, condition_type::PROGRESSING, reason},
    fenceposts::new_rs_new_replicas,
    names::replica_set_name,
    replica_sets::{ReplicaSetSplit, replica_count},
    revisions::{
        Existence, MAX_HISTORY_LENGTH, RevisionProblem, deployment_revision_differs, max_revision,
        set_deployment_revision, set_new_replica_set_annotations,
    },
    rollout::progress_deadline,
};
use kcm_events::EventType;

use crate::{
    SyncError,
    pass::{Created, Need, Pass, Step, ignore_error},
    scale::SCALING_REPLICA_SET,
};

/// Tells new and old apart and brings the new one up to date, if there is one.
///
/// Upstream counterpart: `getAllReplicaSetsAndSyncRevision`, not creating.
pub(crate) fn find_and_sync(pass: &mut Pass<'_>) -> Step<ReplicaSetSplit> {
    let mut roles = ReplicaSetSplit::find(&pass.deployment, &pass.replica_sets);
    if let Some(existing) = roles.new.take() {
        let revision = next_revision(&roles);
        roles.new = Some(sync_existing(pass, existing, revision)?);
    }
    Ok(roles)
}

/// The same, and creates the new one if there is none. It is in the roles, and by itself.
///
/// Upstream counterpart: `getAllReplicaSetsAndSyncRevision`, creating.
pub(crate) fn find_or_create(pass: &mut Pass<'_>) -> Step<(ReplicaSetSplit, Arc<ReplicaSet>)> {
    let mut roles = ReplicaSetSplit::find(&pass.deployment, &pass.replica_sets);
    let revision = next_revision(&roles);
    let new = match roles.new.take() {
        Some(existing) => sync_existing(pass, existing, revision)?,
        None => create(pass, &roles.old, revision)?,
    };
    roles.new = Some(Arc::clone(&new));
    Ok((roles, new))
}

/// The number of the new ReplicaSet: one more than the highest of the old.
fn next_revision(roles: &ReplicaSetSplit) -> i64 {
    max_revision(&roles.old).wrapping_add(1)
}

fn sync_existing(pass: &mut Pass<'_>, existing: Arc<ReplicaSet>, revision: i64) -> Step<Arc<ReplicaSet>> {
    let d = &pass.deployment;
    let mut annotations = existing.metadata.annotations.clone();
    let update =
        set_new_replica_set_annotations(d, &mut annotations, revision, Existence::Exists, MAX_HISTORY_LENGTH);
    log_problem(d, update.problem.as_ref());
    let raised = update.needs_write;
    let min_ready_seconds = d.spec.min_ready_seconds;
    let readiness_differs = existing.spec.min_ready_seconds != min_ready_seconds;

    // Annotations can differ and not be worth a write of their own; they then travel with the next one.
    let current = if raised || readiness_differs || annotations != existing.metadata.annotations {
        let mut changed = (*existing).clone();
        changed.metadata.annotations = annotations;
        changed.spec.min_ready_seconds = min_ready_seconds;
        Arc::new(changed)
    } else {
        existing
    };
    if raised || readiness_differs {
        let why = if readiness_differs {
            format!("pods are to be ready for {min_ready_seconds} s before they count as available")
        } else {
            format!(
                "its template is the current one, revision {revision}: annotations follow the deployment's"
            )
        };
        let answer = pass.update_replica_set((*current).clone(), Need::Answer, why)?;
        pass.hold(&answer);
        return Ok(answer);
    }
    follow(pass, &current)?;
    Ok(current)
}

/// Writes on the Deployment which ReplicaSet is its new one, unless it is there already.
fn follow(pass: &mut Pass<'_>, new: &ReplicaSet) -> Step<()> {
    let revision = new.metadata.annotations.get(REVISION).map_or("", String::as_str);
    let mut reasons = Vec::new();
    if deployment_revision_differs(&pass.deployment.metadata.annotations, revision) {
        set_deployment_revision(pass.deployment_mut(), revision);
        reasons.push(format!("revision {revision} is the current one"));
    }
    if progress_deadline(&pass.deployment).is_some() && pass.deployment.condition(PROGRESSING).is_none() {
        let message = format!("Found new replica set \"{}\"", new.metadata.name);
        let condition =
            conditions::new(PROGRESSING, TRUE, reason::FOUND_NEW_REPLICA_SET, message, pass.now.into());
        conditions::set(&mut pass.deployment_mut().status, condition);
        reasons.push(format!("replica set {} has the current template already", new.metadata.name));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    pass.update_deployment_status(Need::Answer, reasons.join("; "))
}

fn create(pass: &mut Pass<'_>, old: &[Arc<ReplicaSet>], revision: i64) -> Step<Arc<ReplicaSet>> {
    let set = desired_replica_set(&pass.deployment, old, revision)?;
    let (name, replicas) = (Arc::clone(&set.metadata.name), set.replicas());
    let why = format!(
        "no replica set has the template of revision {revision}; it can start with {replicas} of {} pods",
        pass.deployment.replicas()
    );
    let created = match pass.create_replica_set(set, why)? {
        // The create was executed, and its answer was lost.
        Created::NameTaken { error, holder: Some(holder) }
            if !error.is_already_exists() && is_the_same(&pass.deployment, &holder) =>
        {
            Created::New(holder)
        }
        created => created,
    };
    match created {
        Created::New(created) => {
            if replicas > 0 {
                let message = format!("Scaled up replica set {} from 0 to {replicas}", created.metadata.name);
                pass.event(EventType::Normal, SCALING_REPLICA_SET, message, "it was created with that size")?;
            }
            let message = format!("Created new replica set \"{}\"", created.metadata.name);
            announce(pass, revision, Some(message))?;
            Ok(created)
        }
        Created::NameTaken { error, holder } => {
            let Some(holder) = holder else {
                let replica_set =
                    kcm_api::ObjectKey::new(Arc::clone(&pass.deployment.metadata.namespace), name);
                return Err(SyncError::HolderUnknown { replica_set, source: error }.into());
            };
            if is_the_same(&pass.deployment, &holder) {
                announce(pass, revision, None)?;
                return Ok(holder);
            }
            bump_collision_count(pass, &name)?;
            Err(create_error(pass, &name, error).into())
        }
        Created::Failed(error) => {
            if !error.is_namespace_terminating() {
                report_failed_create(pass, &name, &error)?;
            }
            Err(create_error(pass, &name, error).into())
        }
    }
}

fn create_error(pass: &Pass<'_>, name: &Arc<str>, source: kcm_api::ApiError) -> SyncError {
    let object = kcm_api::ObjectKey::new(Arc::clone(&pass.deployment.metadata.namespace), Arc::clone(name));
    SyncError::Write { what: "create replica set", object, source }
}

/// The ReplicaSet that has the Deployment's template, at the size that there is room for.
fn desired_replica_set(
    deployment: &Deployment,
    old: &[Arc<ReplicaSet>],
    revision: i64,
) -> Result<ReplicaSet, SyncError> {
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
    set.metadata.owner_references = vec![OwnerIdentity::from(deployment).controller_reference()];
    // The template's labels, the hash among them; not the Deployment's own.
    set.metadata.labels = template.labels().clone();
    set.spec = ReplicaSetSpec {
        replicas: Some(0),
        min_ready_seconds: deployment.spec.min_ready_seconds,
        selector: Some(selector_with_hash(deployment.spec.selector.as_ref(), &hash)),
        template,
        ..ReplicaSetSpec::default()
    };
    set.spec.replicas = Some(new_rs_new_replicas(deployment, 0, replica_count(old))?);
    let update = set_new_replica_set_annotations(
        deployment,
        &mut set.metadata.annotations,
        revision,
        Existence::ToBeCreated,
        MAX_HISTORY_LENGTH,
    );
    log_problem(deployment, update.problem.as_ref());
    Ok(set)
}

fn log_problem(deployment: &Deployment, problem: Option<&RevisionProblem>) {
    if let Some(problem) = problem {
        tracing::info!(deployment = %deployment.metadata.key(), ?problem, "Failed to update the revision history");
    }
}

fn selector_with_hash(selector: Option<&LabelSelector>, hash: &str) -> LabelSelector {
    let mut selector = selector.cloned().unwrap_or_default();
    selector.match_labels.insert(POD_TEMPLATE_HASH_LABEL.to_owned(), hash.to_owned());
    selector
}

/// `true` if the ReplicaSet that has the name is the one to be created: an earlier create was executed.
fn is_the_same(deployment: &Deployment, holder: &ReplicaSet) -> bool {
    holder.metadata.controller().is_some_and(|owner| owner.uid == deployment.metadata.uid)
        && holder.spec.template.equal_ignore_hash(&deployment.spec.template)
}

/// Writes on the Deployment that its new ReplicaSet is there; `created` is the text for one that was not before.
fn announce(pass: &mut Pass<'_>, revision: i64, created: Option<String>) -> Step<()> {
    let mut changed = set_deployment_revision(pass.deployment_mut(), &revision.to_string());
    // Right after a resumption upstream's write of this condition is refused as out of date, and by its next sync the
    // ReplicaSet is no longer new: the resumption is what people see until pods move (story d06).
    let created = created.filter(|_| progress_deadline(&pass.deployment).is_some() && !pass.resumed);
    if let Some(message) = created {
        let condition = conditions::new(PROGRESSING, TRUE, reason::NEW_REPLICA_SET, message, pass.now.into());
        conditions::set(&mut pass.deployment_mut().status, condition);
        changed = true;
    }
    if !changed {
        return Ok(());
    }
    let why = format!("revision {revision} is the current one, and its rollout starts now");
    pass.update_deployment_status(Need::Answer, why)
}

/// Another's template has the name: the next sync hashes with a higher count and comes to another name.
fn bump_collision_count(pass: &mut Pass<'_>, name: &str) -> Step<()> {
    let before = pass.deployment.status.collision_count.unwrap_or(0);
    pass.deployment_mut().status.collision_count = Some(before.wrapping_add(1));
    let why = format!("the name {name} is taken by another template; the next try has another name");
    let written = ignore_error(pass, |pass| pass.update_deployment_status(Need::Success, why))?;
    if written.is_some() {
        tracing::debug!(
            deployment = %pass.key(), from = before, to = before.wrapping_add(1),
            "Found a hash collision for deployment - bumping collisionCount to resolve it",
        );
    }
    Ok(())
}

/// Sets the condition `Progressing`. Returns `false` if the Deployment has it already, with the same status and reason.
///
/// DEVIATION: upstream writes the status with each retry of a create that is refused.
fn set_progressing(pass: &mut Pass<'_>, condition: DeploymentCondition) -> bool {
    let same = |current: &DeploymentCondition| {
        current.status == condition.status && current.reason == condition.reason
    };
    if pass.deployment.condition(PROGRESSING).is_some_and(same) {
        return false;
    }
    conditions::set(&mut pass.deployment_mut().status, condition);
    true
}

fn report_failed_create(pass: &mut Pass<'_>, name: &str, error: &kcm_api::ApiError) -> Step<()> {
    let message = format!("Failed to create new replica set \"{name}\": {error}");
    if progress_deadline(&pass.deployment).is_some() {
        let condition = conditions::new(
            PROGRESSING,
            FALSE,
            reason::FAILED_REPLICA_SET_CREATE,
            message.clone(),
            pass.now.into(),
        );
        if set_progressing(pass, condition) {
            let why = "the rollout cannot move without its replica set".to_owned();
            ignore_error(pass, |pass| pass.update_deployment_status(Need::Success, why))?;
        }
    }
    pass.event(EventType::Warning, reason::FAILED_REPLICA_SET_CREATE, message, "the create was refused")
}
