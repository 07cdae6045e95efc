//! The rollback that an annotation asks for (US-4.14). kubectl does without it; older clients do not.

use kcm_api::{POD_TEMPLATE_HASH_LABEL, ReplicaSet};
use kcm_deployment_util::{
    annotations::{ROLLBACK_TO, set_deployment_annotations_to},
    revisions::{last_revision, revision},
};
use kcm_events::EventType;
use std::sync::Arc;

use crate::{
    Outcome, SyncError, WaitsFor, new_replica_set,
    pass::{Pass, Step},
};

const REVISION_NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";
const TEMPLATE_UNCHANGED: &str = "DeploymentRollbackTemplateUnchanged";
const ROLLBACK_DONE: &str = "DeploymentRollback";

/// Puts the template of revision `to` back; 0 means the last but one. Whatever comes of it, the annotation goes.
///
/// Upstream counterpart: `rollback`. The rollout itself is the next sync's.
pub(crate) fn rollback(pass: &mut Pass<'_>, to: i64) -> Step<Outcome> {
    let (roles, _) = new_replica_set::find_or_create(pass)?;
    let to = if to == 0 { last_revision(roles.all()) } else { to };
    if to == 0 {
        let message = "Unable to find last revision.".to_owned();
        return give_up(pass, REVISION_NOT_FOUND, message, "there is no earlier revision");
    }
    let Some(target) = roles.all().find(|set| revision(&set.metadata) == Ok(to)) else {
        let message = "Unable to find the revision to rollback to.".to_owned();
        return give_up(pass, REVISION_NOT_FOUND, message, "no replica set has that revision");
    };
    if target.spec.template.equal_ignore_hash(&pass.deployment.spec.template) {
        let name = &pass.deployment.metadata.name;
        let message =
            format!("The rollback revision contains the same template as current deployment \"{name}\"");
        return give_up(pass, TEMPLATE_UNCHANGED, message, "there is nothing to roll back");
    }
    set_template(pass, target)?;
    set_deployment_annotations_to(pass.deployment_mut(), target);
    clear_rollback_to(pass, format!("its template is to be that of revision {to} again"))?;
    let name = &pass.deployment.metadata.name;
    let message = format!("Rolled back deployment \"{name}\" to revision {to}");
    pass.event(EventType::Normal, ROLLBACK_DONE, message, "the template was put back")?;
    Ok(Outcome::waiting(WaitsFor::NextSync))
}

fn give_up(pass: &mut Pass<'_>, reason: &'static str, message: String, why: &str) -> Step<Outcome> {
    pass.event(EventType::Warning, reason, message, why)?;
    clear_rollback_to(pass, format!("the rollback asked for is over: {why}"))?;
    Ok(Outcome::waiting(WaitsFor::NextSync))
}

/// Upstream counterpart: `SetFromReplicaSetTemplate`.
fn set_template(pass: &mut Pass<'_>, target: &ReplicaSet) -> Result<(), SyncError> {
    let template = target.spec.template.with_label(POD_TEMPLATE_HASH_LABEL, None);
    pass.deployment_mut().spec.template = template
        .map_err(|source| SyncError::Template { object: target.metadata.key(), source: Arc::new(source) })?;
    Ok(())
}

/// Upstream counterpart: `updateDeploymentAndClearRollbackTo`.
fn clear_rollback_to(pass: &mut Pass<'_>, why: String) -> Step<()> {
    pass.deployment_mut().metadata.annotations.remove(ROLLBACK_TO);
    pass.update_deployment(why)
}
