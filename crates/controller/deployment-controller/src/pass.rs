//! One pass over a Deployment: what is known, what has been done, and how decisions do more.

use std::{slice, sync::Arc};

use kcm_api::{ApiError, Deployment, ObjectKey, ReplicaSet};
use kcm_clock::Timestamp;
use kcm_events::EventType;

use crate::{Action, Answer, Event, PlannedAction, SyncError, View};

/// Why a decision cannot go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// What comes next depends on the answer to the last action.
    NeedsAnswer,
    /// The sync has failed.
    Failed(SyncError),
}

impl<E: Into<SyncError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The outcome of a part of the sync. `?` passes on both that it failed and that it must wait.
pub(crate) type Step<T> = Result<T, Stop>;

/// What of the answer to a write the rest of the plan depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The object that the server answers with: without it the plan ends here.
    Answer,
    /// Only that the write does not fail: without an answer the plan goes on as if it had succeeded, and is
    /// made anew should it fail.
    Success,
}

/// What came of a create.
pub(crate) enum Created {
    New(Arc<ReplicaSet>),
    NameTaken { error: ApiError, holder: Option<Arc<ReplicaSet>> },
    Failed(ApiError),
}

/// The state that a sync's decisions share.
pub(crate) struct Pass<'a> {
    /// The Deployment: as it was given, then as decisions changed it, then as the server has it.
    pub(crate) deployment: Arc<Deployment>,
    /// The ReplicaSets that belong to it, likewise.
    pub(crate) replica_sets: Vec<Arc<ReplicaSet>>,
    pub(crate) view: &'a View,
    pub(crate) now: Timestamp,
    /// Whether this sync has written that the Deployment is resumed.
    pub(crate) resumed: bool,
    /// First write error that was ignored.
    pub(crate) ignored_error: Option<SyncError>,
    answers: slice::Iter<'a, Answer>,
    actions: Vec<PlannedAction>,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(view: &'a View, answers: &'a [Answer], now: Timestamp) -> Self {
        Self {
            deployment: Arc::clone(&view.deployment),
            replica_sets: view.replica_sets.clone(),
            view,
            now,
            resumed: false,
            ignored_error: None,
            answers: answers.iter(),
            actions: Vec::new(),
        }
    }

    pub(crate) fn into_actions(self) -> Vec<PlannedAction> {
        self.actions
    }

    /// How many actions there are so far.
    pub(crate) fn action_count(&self) -> usize {
        self.actions.len()
    }

    /// The Deployment, to be changed. It is copied only now, and its template not even then.
    pub(crate) fn deployment_mut(&mut self) -> &mut Deployment {
        Arc::make_mut(&mut self.deployment)
    }

    /// The Deployment's key, for messages.
    pub(crate) fn key(&self) -> ObjectKey {
        self.deployment.metadata.key()
    }

    /// Tells the world something about the Deployment.
    pub(crate) fn event(
        &mut self,
        type_: EventType,
        reason: &'static str,
        message: String,
        why: &str,
    ) -> Step<()> {
        let event = Event { regarding: Arc::clone(&self.deployment), type_, reason, message };
        match self.act(Action::Event(event), why.to_owned()) {
            None | Some(Answer::Done) => Ok(()),
            Some(_) => self.misfit(),
        }
    }

    /// Creates a ReplicaSet. What follows depends on whether it works, so the plan ends here for the answer.
    pub(crate) fn create_replica_set(&mut self, set: ReplicaSet, why: String) -> Step<Created> {
        match self.act(Action::CreateReplicaSet(Arc::new(set)), why) {
            None => Err(Stop::NeedsAnswer),
            Some(Answer::ReplicaSet(created)) => Ok(Created::New(Arc::clone(created))),
            Some(Answer::NameTaken { error, holder }) => {
                Ok(Created::NameTaken { error: error.clone(), holder: holder.clone() })
            }
            Some(Answer::Failed(error)) => Ok(Created::Failed(error.clone())),
            Some(_) => self.misfit(),
        }
    }

    /// Writes a ReplicaSet; gives it as the server has it, or as sent where only success is needed.
    pub(crate) fn update_replica_set(
        &mut self,
        set: ReplicaSet,
        need: Need,
        why: String,
    ) -> Step<Arc<ReplicaSet>> {
        let set = Arc::new(set);
        match self.act(Action::UpdateReplicaSet(Arc::clone(&set)), why) {
            None if need == Need::Answer => Err(Stop::NeedsAnswer),
            None => Ok(set),
            Some(Answer::ReplicaSet(answer)) => Ok(Arc::clone(answer)),
            Some(Answer::Failed(error)) => Err(failed("update replica set", set.metadata.key(), error)),
            Some(_) => self.misfit(),
        }
    }

    /// Deletes a ReplicaSet; one that is gone already is as good as deleted.
    pub(crate) fn delete_replica_set(&mut self, set: &Arc<ReplicaSet>, why: String) -> Step<()> {
        match self.act(Action::DeleteReplicaSet(Arc::clone(set)), why) {
            None | Some(Answer::Done) => Ok(()),
            Some(Answer::Failed(error)) if error.is_not_found() => Ok(()),
            Some(Answer::Failed(error)) => Err(failed("delete replica set", set.metadata.key(), error)),
            Some(_) => self.misfit(),
        }
    }

    /// Writes the Deployment as it stands, and ends the sync's interest in it.
    pub(crate) fn update_deployment(&mut self, why: String) -> Step<()> {
        let action = Action::UpdateDeployment(Arc::clone(&self.deployment));
        self.put_deployment("update deployment", action, Need::Success, why)
    }

    /// Writes the Deployment's status and annotations as they stand.
    ///
    /// DEVIATION: the sync goes on with the Deployment that the server returns. Upstream goes on with the one it
    /// has, whose resource version is out of date from here on, and its next write is refused (US-4.6, US-4.8).
    pub(crate) fn update_deployment_status(&mut self, need: Need, why: String) -> Step<()> {
        let action = Action::UpdateDeploymentStatus(Arc::clone(&self.deployment));
        self.put_deployment("update status of deployment", action, need, why)
    }

    fn put_deployment(&mut self, what: &'static str, action: Action, need: Need, why: String) -> Step<()> {
        match self.act(action, why) {
            None if need == Need::Answer => Err(Stop::NeedsAnswer),
            None => Ok(()),
            Some(Answer::Deployment(answer)) => {
                if answer.metadata.resource_version != self.deployment.metadata.resource_version {
                    self.deployment = Arc::clone(answer);
                }
                Ok(())
            }
            Some(Answer::Failed(error)) => Err(failed(what, self.key(), error)),
            Some(_) => self.misfit(),
        }
    }

    /// Goes on with `answer` in place of the ReplicaSet that it answers for.
    ///
    /// DEVIATION: upstream keeps the object it read; finding the same difference again later in the sync, it sends
    /// the same PUT again and is refused (US-4.8).
    ///
    /// An answer of the version that is held already brings nothing new. A server gives every change a new
    /// version; only the client that recorded upstream's answers does not.
    pub(crate) fn hold(&mut self, answer: &Arc<ReplicaSet>) {
        let held = self.replica_sets.iter_mut().find(|held| held.uid() == answer.uid());
        if let Some(held) = held
            && held.metadata.resource_version != answer.metadata.resource_version
        {
            *held = Arc::clone(answer);
        }
    }

    fn act(&mut self, action: Action, reason: String) -> Option<&'a Answer> {
        self.actions.push(PlannedAction { action, reason });
        self.answers.next()
    }

    fn misfit<T>(&self) -> Step<T> {
        Err(SyncError::AnswerMisfit(self.actions.len() - 1).into())
    }
}

/// Runs `step` and returns `None` if it fails. The plan continues.
///
/// A write error is recorded in the plan, so that the sync is retried. The other errors follow from what was read, and
/// a retry would return them again.
pub(crate) fn ignore_error<'a, T>(
    pass: &mut Pass<'a>,
    step: impl FnOnce(&mut Pass<'a>) -> Step<T>,
) -> Step<Option<T>> {
    match step(pass) {
        Ok(value) => Ok(Some(value)),
        Err(Stop::Failed(SyncError::AnswerMisfit(position))) => Err(SyncError::AnswerMisfit(position).into()),
        Err(Stop::Failed(error)) => {
            if matches!(error, SyncError::Write { .. }) {
                pass.ignored_error.get_or_insert(error);
            }
            Ok(None)
        }
        Err(Stop::NeedsAnswer) => Err(Stop::NeedsAnswer),
    }
}

fn failed(what: &'static str, object: ObjectKey, error: &ApiError) -> Stop {
    SyncError::Write { what, object, source: error.clone() }.into()
}
