//! State of a plan under construction.

use std::{mem, slice, sync::Arc};

use kcm_api::{ApiError, Deployment, DeploymentStatus, ObjectKey, ReplicaSet};
use kcm_clock::Timestamp;
use kcm_deployment_util::replica_sets::ReplicaSetSplit;

use super::{
    action::{Action, ActionResult, PlannedAction},
    event::Event,
    notice::Notice,
    reason::Reason,
};
use crate::{error::SyncError, status::calculate_status, view::View};

/// Cause why planning ends before the end of the sync.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// The next decision requires the result of the last action.
    ResultRequired,
    /// The sync has failed.
    Failed(SyncError),
}

impl<E: Into<SyncError>> From<E> for Interrupt {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Result of a decision. `?` propagates both failures and missing results.
pub(crate) type PlanResult<T> = Result<T, Interrupt>;

/// Part of a write's result that the rest of the plan requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requires {
    /// The returned object. Without a result, planning ends at this write.
    Object,
    /// Success. Without a result, planning continues as if the write had succeeded.
    Success,
}

/// State that the decisions of a sync share, and the actions planned so far.
pub(crate) struct PlanBuilder<'a> {
    /// Deployment of the view with the changes of this sync, or the last one returned by the API server.
    pub(crate) deployment: Arc<Deployment>,
    /// ReplicaSets of the view, updated by [`replace_replica_set`](Self::replace_replica_set).
    pub(crate) replica_sets: Vec<Arc<ReplicaSet>>,
    pub(crate) view: &'a View,
    pub(crate) now: Timestamp,
    /// `true` if this sync has written, or will write, that the Deployment is resumed.
    pub(crate) resumed: bool,
    /// First write error that was ignored.
    pub(crate) ignored_error: Option<SyncError>,
    /// Reasons of the status updates that the next one includes.
    deferred: Vec<Reason>,
    /// Results of the first actions.
    results: slice::Iter<'a, ActionResult>,
    actions: Vec<PlannedAction>,
    notices: Vec<Notice>,
}

impl<'a> PlanBuilder<'a> {
    pub(crate) fn new(view: &'a View, results: &'a [ActionResult], now: Timestamp) -> Self {
        Self {
            deployment: Arc::clone(&view.deployment),
            replica_sets: view.replica_sets.clone(),
            view,
            now,
            resumed: false,
            ignored_error: None,
            deferred: Vec::new(),
            results: results.iter(),
            actions: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Returns the planned actions and the notices.
    pub(crate) fn into_parts(self) -> (Vec<PlannedAction>, Vec<Notice>) {
        (self.actions, self.notices)
    }

    /// Number of actions planned so far.
    pub(crate) fn action_count(&self) -> usize {
        self.actions.len()
    }

    /// Returns the Deployment for modification. The first call copies it, without its template.
    pub(crate) fn deployment_mut(&mut self) -> &mut Deployment {
        Arc::make_mut(&mut self.deployment)
    }

    /// Reports a fact for the log. Repetitions are omitted.
    pub(crate) fn notice(&mut self, notice: Notice) {
        if !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

    /// Returns the status of the Deployment. See [`calculate_status`].
    pub(crate) fn calculate_status(&self, replica_sets: &ReplicaSetSplit) -> DeploymentStatus {
        calculate_status(&self.deployment, replica_sets, self.view.terminating_replicas, self.now)
    }

    /// Plans an event about the Deployment.
    pub(crate) fn record_event(&mut self, event: Event) -> PlanResult<()> {
        let action = Action::RecordEvent { regarding: Arc::clone(&self.deployment), event };
        match self.push(action, None) {
            None | Some(ActionResult::Done) => Ok(()),
            Some(_) => self.unexpected_result(),
        }
    }

    /// Plans the creation of a ReplicaSet. The next decision requires the result.
    pub(crate) fn create_replica_set(
        &mut self,
        set: ReplicaSet,
        reason: Reason,
    ) -> PlanResult<&'a ActionResult> {
        self.push(Action::CreateReplicaSet(Arc::new(set)), Some(reason)).ok_or(Interrupt::ResultRequired)
    }

    /// Plans the update of a ReplicaSet. Returns the object that the API server returned, or `set` without a result.
    pub(crate) fn update_replica_set(
        &mut self,
        set: ReplicaSet,
        requires: Requires,
        reason: Reason,
    ) -> PlanResult<Arc<ReplicaSet>> {
        let set = Arc::new(set);
        match self.push(Action::UpdateReplicaSet(Arc::clone(&set)), Some(reason)) {
            None if requires == Requires::Object => Err(Interrupt::ResultRequired),
            None => Ok(set),
            Some(ActionResult::ReplicaSet(updated)) => Ok(Arc::clone(updated)),
            Some(ActionResult::Failed(error)) => {
                Err(write_error("update replica set", set.metadata.key(), error))
            }
            Some(_) => self.unexpected_result(),
        }
    }

    /// Plans the deletion of a ReplicaSet. `NotFound` is success.
    pub(crate) fn delete_replica_set(&mut self, set: &Arc<ReplicaSet>, reason: Reason) -> PlanResult<()> {
        match self.push(Action::DeleteReplicaSet(Arc::clone(set)), Some(reason)) {
            None | Some(ActionResult::Done) => Ok(()),
            Some(ActionResult::Failed(error)) if error.is_not_found() => Ok(()),
            Some(ActionResult::Failed(error)) => {
                Err(write_error("delete replica set", set.metadata.key(), error))
            }
            Some(_) => self.unexpected_result(),
        }
    }

    /// Plans the update of the Deployment with the changes so far.
    pub(crate) fn update_deployment(&mut self, reason: Reason) -> PlanResult<()> {
        let action = Action::UpdateDeployment(Arc::clone(&self.deployment));
        self.write_deployment("update deployment", action, Requires::Success, reason)
    }

    /// Plans the update of the Deployment's status and annotations with the changes so far.
    ///
    /// DEVIATION: the sync continues with the Deployment that the API server returns. Upstream continues with its own
    /// copy, whose resource version is out of date, and its next write fails with 409 (US-4.6, US-4.8).
    pub(crate) fn update_deployment_status(&mut self, requires: Requires, reason: Reason) -> PlanResult<()> {
        self.deferred.push(reason);
        self.write_deferred_status(requires)
    }

    /// Plans an update of the Deployment's status and annotations that later decisions do not require. The next update
    /// of the status in this sync includes it.
    ///
    /// DEVIATION: upstream updates the status at once, and again at the end of the sync. The second update fails with
    /// 409 (US-4.6, US-4.8).
    pub(crate) fn defer_status_update(&mut self, reason: Reason) -> PlanResult<()> {
        if self.view.coalesce_status_writes {
            self.deferred.push(reason);
            return Ok(());
        }
        self.update_deployment_status(Requires::Object, reason)
    }

    /// Plans the update of the Deployment's status for all deferred updates, if there are any.
    pub(crate) fn write_deferred_status(&mut self, requires: Requires) -> PlanResult<()> {
        let Some(reason) = Reason::combine(mem::take(&mut self.deferred)) else { return Ok(()) };
        let action = Action::UpdateDeploymentStatus(Arc::clone(&self.deployment));
        self.write_deployment("update status of deployment", action, requires, reason)
    }

    fn write_deployment(
        &mut self,
        operation: &'static str,
        action: Action,
        requires: Requires,
        reason: Reason,
    ) -> PlanResult<()> {
        match self.push(action, Some(reason)) {
            None if requires == Requires::Object => Err(Interrupt::ResultRequired),
            None => Ok(()),
            Some(ActionResult::Deployment(updated)) => {
                if updated.metadata.resource_version != self.deployment.metadata.resource_version {
                    self.deployment = Arc::clone(updated);
                }
                Ok(())
            }
            Some(ActionResult::Failed(error)) => {
                Err(write_error(operation, self.deployment.metadata.key(), error))
            }
            Some(_) => self.unexpected_result(),
        }
    }

    /// Replaces the ReplicaSet with the UID of `updated`, unless both have the same resource version.
    ///
    /// An API server assigns a new resource version to each change. The client that recorded upstream's responses does
    /// not, and its objects must not be replaced.
    ///
    /// DEVIATION: upstream keeps the object that it read. Later in the sync it finds the same difference, sends the same
    /// PUT again, and fails with 409 (US-4.8).
    pub(crate) fn replace_replica_set(&mut self, updated: &Arc<ReplicaSet>) {
        let current = self.replica_sets.iter_mut().find(|set| set.metadata.uid == updated.metadata.uid);
        if let Some(current) = current
            && current.metadata.resource_version != updated.metadata.resource_version
        {
            *current = Arc::clone(updated);
        }
    }

    /// Adds an action and returns its result, if it was carried out already.
    fn push(&mut self, action: Action, reason: Option<Reason>) -> Option<&'a ActionResult> {
        self.actions.push(PlannedAction { action, reason });
        self.results.next()
    }

    /// Returns an error: the result of the last action is not one of that action.
    pub(crate) fn unexpected_result<T>(&self) -> PlanResult<T> {
        Err(SyncError::UnexpectedResult(self.actions.len() - 1).into())
    }
}

/// Runs `decide`, and returns `None` if it fails. The plan continues.
///
/// A write error is recorded in the plan, so that the sync is retried. Other errors are caused by the objects themselves,
/// and a retry would return them again.
pub(crate) fn ignore_write_error<'a, T>(
    plan: &mut PlanBuilder<'a>,
    decide: impl FnOnce(&mut PlanBuilder<'a>) -> PlanResult<T>,
) -> PlanResult<Option<T>> {
    match decide(plan) {
        Ok(value) => Ok(Some(value)),
        Err(Interrupt::Failed(error @ SyncError::UnexpectedResult(_))) => Err(error.into()),
        Err(Interrupt::Failed(error)) => {
            if matches!(error, SyncError::Write { .. }) {
                plan.ignored_error.get_or_insert(error);
            }
            Ok(None)
        }
        Err(Interrupt::ResultRequired) => Err(Interrupt::ResultRequired),
    }
}

fn write_error(operation: &'static str, object: ObjectKey, error: &ApiError) -> Interrupt {
    SyncError::Write { operation, object, source: error.clone() }.into()
}
