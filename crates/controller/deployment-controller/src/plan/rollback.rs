//! Rollback requested by the annotation `deprecated.deployment.rollback.to` (US-4.14).
//!
//! Current versions of kubectl write the old template instead.

use std::sync::Arc;

use kcm_api::{POD_TEMPLATE_HASH_LABEL, ReplicaSet};
use kcm_deployment_util::{
    annotations::{ROLLBACK_TO, set_deployment_annotations_to},
    revisions::{last_revision, revision},
};

use super::{
    builder::{PlanBuilder, PlanResult, Requires},
    event::Event,
    new_replica_set::get_or_create_new_replica_set,
    outcome::{BlockedOn, SyncOutcome},
    reason::Reason,
};
use crate::error::SyncError;

/// Restores the template of revision `to`. 0 means the previous revision. Removes the annotation in any case.
///
/// The next sync performs the rollout.
///
/// Upstream counterpart: `rollback`.
pub(super) fn rollback(plan: &mut PlanBuilder<'_>, to: i64) -> PlanResult<SyncOutcome> {
    let (replica_sets, _) = get_or_create_new_replica_set(plan)?;
    // The update of the spec requires the resource version of the status.
    plan.write_deferred_status(Requires::Object)?;
    let to = if to == 0 { last_revision(replica_sets.all()) } else { to };
    if to == 0 {
        return reject(plan, Event::LastRevisionNotFound, Reason::RollbackRevisionNotFound);
    }
    let Some(target) = replica_sets.all().find(|set| revision(&set.metadata) == Ok(to)) else {
        return reject(plan, Event::RevisionNotFound, Reason::RollbackRevisionNotFound);
    };
    let deployment = Arc::clone(&plan.deployment.metadata.name);
    if target.spec.template.equal_ignore_hash(&plan.deployment.spec.template) {
        let event = Event::TemplateUnchanged { deployment };
        return reject(plan, event, Reason::RollbackTemplateUnchanged);
    }
    set_template(plan, target)?;
    set_deployment_annotations_to(plan.deployment_mut(), target);
    clear_rollback_to(plan, Reason::Rollback { revision: to })?;
    plan.record_event(Event::RolledBack { deployment, revision: to })?;
    Ok(SyncOutcome::blocked_on(BlockedOn::DeploymentUpdate))
}

/// Records `event` and removes the annotation.
fn reject(plan: &mut PlanBuilder<'_>, event: Event, reason: Reason) -> PlanResult<SyncOutcome> {
    plan.record_event(event)?;
    clear_rollback_to(plan, reason)?;
    Ok(SyncOutcome::blocked_on(BlockedOn::DeploymentUpdate))
}

/// Upstream counterpart: `SetFromReplicaSetTemplate`.
fn set_template(plan: &mut PlanBuilder<'_>, target: &ReplicaSet) -> Result<(), SyncError> {
    let template = target.spec.template.with_label(POD_TEMPLATE_HASH_LABEL, None);
    plan.deployment_mut().spec.template = template
        .map_err(|source| SyncError::Template { object: target.metadata.key(), source: Arc::new(source) })?;
    Ok(())
}

/// Upstream counterpart: `updateDeploymentAndClearRollbackTo`.
fn clear_rollback_to(plan: &mut PlanBuilder<'_>, reason: Reason) -> PlanResult<()> {
    plan.deployment_mut().metadata.annotations.remove(ROLLBACK_TO);
    plan.update_deployment(reason)
}
