//! Sync of one Deployment: reads the caches, claims ReplicaSets, and carries out the plan.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use kcm_api::{ApiError, Deployment, ObjectKey, Pod, ReplicaSet, Selector};
use kcm_clock::{Clock, Timestamp};
use kcm_controller_ref_manager::{LiveOwner, OwnerControl, OwnerIdentity, OwnerPatch, claim};
use kcm_controller_util::index::pods_of;
use kcm_deployment_util::{fenceposts::RECREATE, replica_sets::selects_everything};
use kcm_informer::Store;
use tracing::{Span, debug};

use crate::{
    error::SyncError,
    execute::{Executor, log_notice},
    lookup::claimable,
    plan::{Plan, PlanEnd, SyncOutcome, plan},
    view::View,
};

/// Caches and clients of a sync.
pub(crate) struct Syncer {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) deployments: Store<Deployment>,
    pub(crate) replica_sets: Store<ReplicaSet>,
    pub(crate) pods: Store<Pod>,
    pub(crate) executor: Executor,
    pub(crate) terminating_replicas: bool,
    pub(crate) coalesce_status_writes: bool,
}

impl Syncer {
    /// See [`DeploymentController::sync`](crate::DeploymentController::sync).
    pub(crate) async fn sync_deployment(&self, key: &ObjectKey) -> Result<Option<SyncOutcome>, SyncError> {
        let now = self.clock.now();
        let Some(deployment) = self.deployments.get(key) else {
            debug!("Deployment has been deleted");
            self.executor.own_writes.forget(key);
            self.executor.status_turns.give_back(key);
            return Ok(None);
        };
        Span::current().record("uid", &*deployment.metadata.uid);
        let view = self.view(self.executor.own_writes.objects.newest(key, deployment)).await?;
        self.plan_and_perform(&view, now).await.map(Some)
    }

    /// Plans and performs in turn, until the plan is complete.
    ///
    /// Actions are performed one after the other, in upstream's order. After a failure the sync is planned again before
    /// another action is performed.
    ///
    /// # Errors
    ///
    /// If the plan ends with an error. Writes that were performed before are not undone.
    async fn plan_and_perform(&self, view: &View, now: Timestamp) -> Result<SyncOutcome, SyncError> {
        let deployment = view.deployment.metadata.key();
        let (mut performed, mut results) = (Vec::new(), Vec::new());
        loop {
            let Plan { mut actions, notices, end } = plan(view, &results, now);
            debug_assert!(
                actions.starts_with(&performed),
                "a plan with more results must begin with the same actions"
            );
            let mut succeeded = true;
            for planned in actions.iter().skip(results.len()) {
                let result = self.executor.perform(&deployment, planned).await;
                succeeded = !result.is_failure();
                results.push(result);
                if !succeeded {
                    break;
                }
            }
            if let PlanEnd::Done(outcome) = end
                && succeeded
            {
                if outcome.is_ok() && !actions.iter().any(|planned| planned.action.is_status_update()) {
                    self.executor.status_turns.give_back(&deployment);
                }
                notices.iter().for_each(log_notice);
                return outcome;
            }
            actions.truncate(results.len());
            performed = actions;
        }
    }

    /// Returns the input of the plan. Claims the ReplicaSets first.
    async fn view(&self, deployment: Arc<Deployment>) -> Result<View, SyncError> {
        let mut view = View {
            deployment,
            replica_sets: Vec::new(),
            running: BTreeSet::new(),
            unobserved_scale_downs: BTreeSet::new(),
            terminating_replicas: self.terminating_replicas,
            coalesce_status_writes: self.coalesce_status_writes,
        };
        let deployment = &*view.deployment;
        // The plan rejects an empty selector, which would match every ReplicaSet.
        if selects_everything(deployment.spec.selector.as_ref()) {
            return Ok(view);
        }
        view.replica_sets = self.claim_replica_sets(deployment).await?;
        if deployment.spec.strategy.type_ == RECREATE {
            self.add_old_pods(&mut view);
        }
        Ok(view)
    }

    /// Fills the fields of `view` that only Recreate uses.
    ///
    /// The pods are read last: once a scale-down is observed, their cache contains all that were created before it.
    pub(crate) fn add_old_pods(&self, view: &mut View) {
        let key = view.deployment.metadata.key();
        view.unobserved_scale_downs = self.executor.own_writes.objects.unobserved(&key);
        let running = view.replica_sets.iter().filter(|set| self.has_running_pod(set));
        view.running = running.map(|set| Arc::clone(&set.metadata.uid)).collect();
    }

    /// Adopts and releases ReplicaSets. Returns those that the Deployment then controls.
    ///
    /// DEVIATION: upstream lists all ReplicaSets of the namespace. Here an index returns the candidates. Upstream also
    /// continues with an adopted ReplicaSet as it was before the patch, so that its next write fails with 409. Here the
    /// sync continues with the object that the API server returned (US-4.4).
    ///
    /// Upstream counterpart: `getReplicaSetsForDeployment`.
    async fn claim_replica_sets(&self, deployment: &Deployment) -> Result<Vec<Arc<ReplicaSet>>, SyncError> {
        let metadata = &deployment.metadata;
        let selector = Selector::new(deployment.spec.selector.as_ref())
            .map_err(|source| SyncError::Selector { deployment: metadata.key(), source })?;
        let owner = OwnerIdentity::from(deployment);
        let candidates = claimable(&self.executor.own_writes.objects, &owner, &self.replica_sets.read());
        let control = ReplicaSetOwner { executor: &self.executor, deployment: metadata.key() };
        Ok(claim(&owner, &selector, candidates, &control).await.into_result()?)
    }

    fn has_running_pod(&self, replica_set: &ReplicaSet) -> bool {
        pods_of(&self.pods.read(), &OwnerIdentity::from(replica_set)).any(|pod| !pod.is_finished())
    }
}

/// Requests of a Deployment that claims ReplicaSets.
struct ReplicaSetOwner<'a> {
    executor: &'a Executor,
    deployment: ObjectKey,
}

#[async_trait]
impl OwnerControl<ReplicaSet> for ReplicaSetOwner<'_> {
    fn kind(&self) -> Cow<'static, str> {
        kcm_api::replica_set::KIND.into()
    }

    async fn live_owner(&self) -> Result<LiveOwner, ApiError> {
        let live = self.executor.deployment_control.get_deployment(&self.deployment).await?;
        Ok(LiveOwner::from(&live.metadata))
    }

    async fn patch(&self, object: &ReplicaSet, patch: &OwnerPatch) -> Result<ReplicaSet, ApiError> {
        let object = &object.metadata.key();
        let patched = self.executor.replica_set_control.patch_replica_set(object, patch).await;
        let objects = &self.executor.own_writes.objects;
        match &patched {
            Ok(set) => objects.wrote(&self.deployment, &Arc::new(set.clone())),
            Err(error) if error.is_not_found() => objects.gone::<ReplicaSet>(&self.deployment, object),
            Err(_) => {}
        }
        patched
    }
}

#[cfg(test)]
mod tests;
