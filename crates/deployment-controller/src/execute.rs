//! Carries plans out.

use std::sync::Arc;

use kcm_api::{ApiError, Deployment, ReplicaSet};
use kcm_clock::Timestamp;
use kcm_controller_util::{DeploymentControl, ReplicaSetControl};
use kcm_events::{EventRecorder, ObjectReference};
use kcm_informer::Store;
use tracing::debug;

use crate::{Action, Answer, End, Outcome, Plan, SyncError, View, own_writes::OwnWrites, plan};

/// What a plan is carried out with.
pub(crate) struct Executor {
    pub(crate) deployment_control: Arc<dyn DeploymentControl>,
    pub(crate) replica_set_control: Arc<dyn ReplicaSetControl>,
    pub(crate) recorder: Arc<dyn EventRecorder>,
    /// Asked who has a name that is taken.
    pub(crate) replica_sets: Store<ReplicaSet>,
    /// Told what the server answered.
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
                self.remember(view, &answer);
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

    fn remember(&self, view: &View, answer: &Answer) {
        match answer {
            Answer::Deployment(deployment) => self.own_writes.deployment(deployment),
            Answer::ReplicaSet(set) => self.own_writes.replica_set(&view.deployment.metadata.key(), set),
            Answer::NameTaken { .. } | Answer::Failed(_) | Answer::Done => {}
        }
    }

    async fn perform(&self, action: &Action) -> Answer {
        match action {
            Action::CreateReplicaSet(set) => match self.replica_set_control.create_replica_set(set).await {
                Err(error) if error.is_already_exists() => {
                    let holder = self.replica_sets.get(&set.metadata.key());
                    Answer::NameTaken { error, holder }
                }
                answer => replica_set(answer),
            },
            Action::UpdateReplicaSet(set) => {
                replica_set(self.replica_set_control.update_replica_set(set).await)
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

fn replica_set(answer: Result<ReplicaSet, ApiError>) -> Answer {
    answer.map_or_else(Answer::Failed, |set| Answer::ReplicaSet(Arc::new(set)))
}

fn deployment(answer: Result<Deployment, ApiError>) -> Answer {
    answer.map_or_else(Answer::Failed, |deployment| Answer::Deployment(Arc::new(deployment)))
}
