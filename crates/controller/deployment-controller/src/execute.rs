//! Carries plans out.

use std::sync::Arc;

use kcm_api::{ApiError, Deployment, ObjectKey, ReplicaSet};
use kcm_clock::Timestamp;
use kcm_controller_util::{DeploymentControl, ReplicaSetControl};
use kcm_events::{EventRecorder, ObjectReference};
use kcm_informer::Store;
use tracing::{debug, warn};

use crate::{Action, Answer, End, Outcome, Plan, SyncError, View, own_writes::OwnWrites, plan};

/// What a plan is carried out with.
pub(crate) struct Executor {
    pub(crate) deployment_control: Arc<dyn DeploymentControl>,
    pub(crate) replica_set_control: Arc<dyn ReplicaSetControl>,
    pub(crate) recorder: Arc<dyn EventRecorder>,
    /// Cache in which the ReplicaSet that has a name is found.
    pub(crate) replica_sets: Store<ReplicaSet>,
    /// Objects that the API server returned.
    pub(crate) own_writes: OwnWrites,
}

impl Executor {
    /// Plans and acts in turn, until the plan is done.
    ///
    /// Actions are taken one after the other: upstream's order is kept, and none is taken after one that failed
    /// before the plan has been made anew with that failure.
    pub(crate) async fn execute(&self, view: &View, now: Timestamp) -> Result<Outcome, SyncError> {
        let mut taken = Vec::new();
        let mut answers = Vec::new();
        loop {
            let Plan { mut actions, end } = plan(view, &answers, now);
            debug_assert!(
                actions.len() >= taken.len() && actions[..taken.len()] == *taken,
                "a plan with one answer more must begin as the one before"
            );
            let mut all_well = true;
            let known = answers.len().min(actions.len());
            for planned in &actions[known..] {
                debug!(why = planned.reason, "{}", planned.action);
                let answer = self.perform(&planned.action).await;
                self.remember(view, &planned.action, &answer);
                all_well = !answer.is_failure();
                answers.push(answer);
                if !all_well {
                    break;
                }
            }
            match end {
                End::Done(outcome) if all_well => return outcome,
                _ => {}
            }
            actions.truncate(answers.len());
            taken = actions;
        }
    }

    fn remember(&self, view: &View, action: &Action, answer: &Answer) {
        let key = || view.deployment.metadata.key();
        match (answer, action) {
            (Answer::Deployment(deployment), _) => self.own_writes.deployment(deployment),
            (Answer::ReplicaSet(set) | Answer::NameTaken { holder: Some(set), .. }, _) => {
                self.own_writes.replica_set(&key(), set);
            }
            (Answer::Failed(error), Action::UpdateReplicaSet(set) | Action::DeleteReplicaSet(set))
                if error.is_not_found() =>
            {
                self.own_writes.forget_replica_set(&key(), &set.metadata.key());
            }
            (Answer::NameTaken { .. } | Answer::Failed(_) | Answer::Done, _) => {}
        }
    }

    /// Finds the ReplicaSet with the name of one that could not be created: in the cache if `error` is its refusal, and
    /// else on the API server.
    ///
    /// DEVIATION: upstream only reads the cache. While the cache is behind it sends the create again with each retry,
    /// and reports a create that was executed without an answer as failed.
    async fn holder(&self, key: &ObjectKey, error: &ApiError) -> Option<Arc<ReplicaSet>> {
        if error.is_already_exists()
            && let Some(cached) = self.replica_sets.get(key)
        {
            return Some(cached);
        }
        match self.replica_set_control.get_replica_set(key).await {
            Ok(stored) => Some(Arc::new(stored)),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                warn!(replica_set = %key, err = %error, "Failed to read the ReplicaSet that may have been created");
                None
            }
        }
    }

    async fn create_replica_set(&self, set: &ReplicaSet) -> Answer {
        let error = match self.replica_set_control.create_replica_set(set).await {
            Ok(created) => return Answer::ReplicaSet(Arc::new(created)),
            Err(error) => error,
        };
        let may_exist = error.may_have_taken_effect() && !error.is_not_leading();
        if !may_exist && !error.is_already_exists() {
            return Answer::Failed(error);
        }
        match self.holder(&set.metadata.key(), &error).await {
            None if !error.is_already_exists() => Answer::Failed(error),
            holder => Answer::NameTaken { error, holder },
        }
    }

    async fn perform(&self, action: &Action) -> Answer {
        match action {
            Action::CreateReplicaSet(set) => self.create_replica_set(set).await,
            Action::UpdateReplicaSet(set) => {
                let updated = self.replica_set_control.update_replica_set(set).await;
                updated.map_or_else(Answer::Failed, |set| Answer::ReplicaSet(Arc::new(set)))
            }
            Action::DeleteReplicaSet(set) => {
                let deleted = self.replica_set_control.delete_replica_set(&set.metadata.key()).await;
                deleted.map_or_else(Answer::Failed, |()| Answer::Done)
            }
            Action::UpdateDeployment(sent) => {
                deployment(self.deployment_control.update_deployment(sent).await)
            }
            Action::UpdateDeploymentStatus(sent) => {
                deployment(self.deployment_control.update_deployment_status(sent).await)
            }
            Action::Event(event) => {
                let regarding = ObjectReference::from(&*event.regarding);
                self.recorder.event(&regarding, event.type_, event.reason, event.message.clone());
                Answer::Done
            }
        }
    }
}

fn deployment(answer: Result<Deployment, ApiError>) -> Answer {
    answer.map_or_else(Answer::Failed, |deployment| Answer::Deployment(Arc::new(deployment)))
}
