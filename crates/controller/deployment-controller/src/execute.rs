//! Performs the actions of plans.

use std::sync::Arc;

use kcm_api::{ApiError, Deployment, ObjectKey, ReplicaSet};
use kcm_controller_util::{DeploymentControl, ReplicaSetControl, StatusTurns, StatusUrgency};
use kcm_deployment_util::{revisions::RevisionProblem, rollout::is_complete};
use kcm_events::{EventRecorder, ObjectReference};
use kcm_expectations::OwnWrites;
use kcm_informer::Store;
use tracing::{debug, info, trace, warn};

use crate::plan::{Action, ActionResult, Notice, PlannedAction, Reason};

/// Performs the actions of plans.
pub(crate) struct Executor {
    pub(crate) deployment_control: Arc<dyn DeploymentControl>,
    pub(crate) replica_set_control: Arc<dyn ReplicaSetControl>,
    pub(crate) recorder: Arc<dyn EventRecorder>,
    /// Cache that is read if the name of a new ReplicaSet exists.
    pub(crate) replica_sets: Store<ReplicaSet>,
    pub(crate) own_writes: Arc<OwnWrites>,
    pub(crate) status_turns: Arc<dyn StatusTurns>,
}

impl Executor {
    /// Performs `planned`, and stores the returned object. Logs a write before it is performed; the recorder logs events.
    ///
    /// A status whose turn at the rate limit has not come is not written. The result is then that of a write, so that the sync
    /// continues: the sync of its turn computes the status anew.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the result of a write in progress is lost. The next sync starts from the caches.
    pub(crate) async fn perform(&self, deployment: &ObjectKey, planned: &PlannedAction) -> ActionResult {
        if !self.has_turn(deployment, planned) {
            trace!("Status update waits for the rate limit");
            return planned.action.result_as_sent();
        }
        log_write(planned);
        let result = self.send(&planned.action).await;
        self.remember(deployment, &planned.action, &result);
        result
    }

    /// Returns `false` for a status that is written when its turn comes.
    fn has_turn(&self, deployment: &ObjectKey, planned: &PlannedAction) -> bool {
        let Action::UpdateDeploymentStatus(updated) = &planned.action else { return true };
        if planned.reason.as_ref().is_some_and(Reason::is_required) {
            return true;
        }
        // Callers such as `kubectl rollout status` wait for a complete rollout.
        let is_complete = is_complete(updated, &updated.status);
        let urgency = if is_complete { StatusUrgency::Awaited } else { StatusUrgency::Other };
        self.status_turns.take(deployment, urgency)
    }

    fn remember(&self, deployment: &ObjectKey, action: &Action, result: &ActionResult) {
        let objects = &self.own_writes.objects;
        if let Action::UpdateReplicaSet(sent) = action
            && sent.replicas() == 0
            && !matches!(result, ActionResult::Failed(error) if !error.may_have_taken_effect())
        {
            objects.sent(deployment, &**sent);
        }
        match (result, action) {
            (ActionResult::Deployment(written), _) => {
                self.own_writes.missing.remove(deployment);
                objects.wrote(deployment, written);
            }
            (ActionResult::ReplicaSet(set) | ActionResult::AlreadyExists { existing: Some(set), .. }, _) => {
                if set.replicas() > 0 {
                    objects.replaced(deployment, &set.metadata.uid);
                }
                objects.wrote(deployment, set);
            }
            (ActionResult::Failed(error), Action::UpdateReplicaSet(set) | Action::DeleteReplicaSet(set))
                if error.is_not_found() =>
            {
                objects.gone::<ReplicaSet>(deployment, &set.metadata.key());
            }
            (
                ActionResult::Failed(error),
                Action::UpdateDeployment(sent) | Action::UpdateDeploymentStatus(sent),
            ) if error.is_object_missing() => {
                self.own_writes.missing.not_found(deployment, &sent.metadata.uid);
            }
            (ActionResult::AlreadyExists { .. } | ActionResult::Failed(_) | ActionResult::Done, _) => {}
        }
    }

    /// Returns the ReplicaSet whose name prevented the creation of `set`. After `AlreadyExists`, the cached ReplicaSet is
    /// returned if it has the same controller as `set`. Otherwise, it is read from the API server.
    ///
    /// DEVIATION: upstream only reads the cache. While the cache is behind it sends the create again with each retry,
    /// reports a create that was executed without a response as failed, and counts a collision if the cache contains
    /// the ReplicaSet of a former Deployment.
    async fn existing(&self, set: &ReplicaSet, error: &ApiError) -> Option<Arc<ReplicaSet>> {
        let key = &set.metadata.key();
        let controller = set.metadata.controller().map(|owner| &owner.uid);
        let is_own =
            |cached: &Arc<ReplicaSet>| cached.metadata.controller().map(|owner| &owner.uid) == controller;
        if error.is_already_exists()
            && let Some(cached) = self.replica_sets.get(key).filter(is_own)
        {
            return Some(cached);
        }
        match self.replica_set_control.get_replica_set(key).await {
            Ok(stored) => Some(Arc::new(stored)),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                warn!(replicaSet = %key, err = %error, "Failed to read the ReplicaSet that may have been created");
                None
            }
        }
    }

    async fn create_replica_set(&self, set: &ReplicaSet) -> ActionResult {
        let error = match self.replica_set_control.create_replica_set(set).await {
            Ok(created) => return ActionResult::ReplicaSet(Arc::new(created)),
            Err(error) => error,
        };
        let may_exist = error.may_have_taken_effect() && !error.is_not_leading();
        if !may_exist && !error.is_already_exists() {
            return ActionResult::Failed(error);
        }
        match self.existing(set, &error).await {
            None if !error.is_already_exists() => ActionResult::Failed(error),
            existing => ActionResult::AlreadyExists { error, existing },
        }
    }

    async fn send(&self, action: &Action) -> ActionResult {
        match action {
            Action::CreateReplicaSet(set) => self.create_replica_set(set).await,
            Action::UpdateReplicaSet(set) => {
                let updated = self.replica_set_control.update_replica_set(set).await;
                updated.map_or_else(ActionResult::Failed, |set| ActionResult::ReplicaSet(Arc::new(set)))
            }
            Action::DeleteReplicaSet(set) => {
                let deleted = self.replica_set_control.delete_replica_set(&set.metadata.key()).await;
                deleted.map_or_else(ActionResult::Failed, |()| ActionResult::Done)
            }
            Action::UpdateDeployment(deployment) => {
                deployment_result(self.deployment_control.update_deployment(deployment).await)
            }
            Action::UpdateDeploymentStatus(deployment) => {
                deployment_result(self.deployment_control.update_deployment_status(deployment).await)
            }
            Action::RecordEvent { regarding, event } => {
                let regarding = ObjectReference::of(&**regarding);
                self.recorder.event(&regarding, event.type_(), event.reason(), event.to_string());
                ActionResult::Done
            }
        }
    }
}

fn deployment_result(result: Result<Deployment, ApiError>) -> ActionResult {
    result.map_or_else(ActionResult::Failed, |deployment| ActionResult::Deployment(Arc::new(deployment)))
}

fn log_write(planned: &PlannedAction) {
    let Some(reason) = &planned.reason else { return };
    match &planned.action {
        Action::CreateReplicaSet(set) => {
            debug!(replicaSet = %set.metadata.key(), replicas = set.replicas(), %reason, "Creating replica set");
        }
        Action::UpdateReplicaSet(set) => {
            debug!(replicaSet = %set.metadata.key(), replicas = set.replicas(), %reason, "Updating replica set");
        }
        Action::DeleteReplicaSet(set) => {
            debug!(replicaSet = %set.metadata.key(), %reason, "Deleting replica set");
        }
        Action::UpdateDeployment(_) => debug!(%reason, "Updating deployment"),
        Action::UpdateDeploymentStatus(_) => debug!(%reason, "Updating deployment status"),
        Action::RecordEvent { .. } => {}
    }
}

pub(crate) fn log_notice(notice: &Notice) {
    match notice {
        Notice::InvalidAnnotation(error) => {
            debug!(err = %error, "Could not convert the value with annotation key for the replica set");
        }
        Notice::Revision(RevisionProblem::InvalidRevision { revision, error }) => {
            info!(revision, err = %error, "Updating replica set revision OldRevision not int");
        }
        Notice::Revision(RevisionProblem::HistoryLimitReached { max_length }) => {
            info!(
                revisionHistoryLimit = max_length,
                "Not appending revision due to revision history length limit reached"
            );
        }
        Notice::HashCollision { from, to } => {
            debug!(from, to, "Found a hash collision for deployment - bumping collisionCount to resolve it");
        }
    }
}
