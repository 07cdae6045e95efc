//! Steps of a sync, in upstream's order (US-5.3).

use std::{borrow::Cow, sync::Arc, time::Duration};

use async_trait::async_trait;
use kcm_api::{ApiError, ObjectKey, Pod, ReplicaSet, Selector};
use kcm_clock::{Clock, Timestamp};
use kcm_controller_ref_manager::{LiveOwner, OwnerControl, OwnerIdentity, OwnerPatch, claim};
use kcm_controller_util::{StatusTurns, availability::min_next_pod_availability};
use kcm_expectations::GroupResource;
use kcm_informer::Store;
use kcm_runtime::Requeue;
use tracing::{Span, error, trace};

use crate::{
    KindConfig, ManageBlock, SyncError, View,
    execute::Executor,
    lookup::{Candidates, related_pods},
    performed::Performed,
    plan::plan,
    status::{calculate_status, only_generation_differs, urgency},
};

/// Dependencies of a sync.
pub(crate) struct Syncer {
    pub(crate) kind_config: KindConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) replica_sets: Store<ReplicaSet>,
    pub(crate) executor: Executor,
    pub(crate) status_turns: Arc<dyn StatusTurns>,
    pub(crate) burst_replicas: usize,
    pub(crate) coalesce_status_writes: bool,
}

impl Syncer {
    /// Creates or deletes pods of the ReplicaSet at `key`, and updates its status.
    ///
    /// The order of the steps is upstream's (US-5.3). [`kcm_expectations`] has the reasons for that of the reads.
    ///
    /// Upstream counterpart: `syncReplicaSet`.
    pub(crate) async fn sync_replica_set(&self, key: &ObjectKey) -> Result<Requeue, SyncError> {
        let expectations_met = self
            .executor
            .pods
            .begin(key)
            .inspect_err(|behind| self.executor.metrics.stale_sync_skip(behind.resource))?;

        let Some(replica_set) = self.replica_sets.get(key) else {
            trace!("{} has been deleted", self.kind_config.kind);
            self.executor.pods.own_writes.forget(key);
            self.status_turns.give_back(key);
            return Ok(Requeue::Done);
        };
        Span::current().record("uid", &*replica_set.metadata.uid);

        let selector = match Selector::new(replica_set.spec.selector.as_ref()) {
            Ok(selector) => selector,
            Err(error) => {
                // Not retried: a change of the selector starts a sync.
                error!(replicaSet = %key, err = %error, "Error converting pod selector to selector");
                return Ok(Requeue::Done);
            }
        };

        let owner =
            OwnerIdentity::new(self.kind_config.api_version, self.kind_config.kind, &replica_set.metadata);
        let candidates = Candidates::find(&self.executor.pods.cache, &owner, &selector);
        let control = PodOwnerControl { executor: &self.executor, owner: &owner };
        let mut active = claim(&owner, &selector, candidates.active, &control).await.into_result()?;
        // DEVIATION: upstream counts a pod as active whose deletion started before its adoption.
        let claimed = active.len();
        active.retain(|pod| pod.deletion_timestamp.is_none());
        let terminating = candidates.terminating + claimed - active.len();

        let now = self.clock.now();
        let view = self.view(replica_set, active, terminating, expectations_met);
        let plan = plan(&view, now);
        let Performed { error, has_events, retry_after } =
            self.executor.execute(&view.replica_set, &owner, &plan).await;

        let status = calculate_status(&view, error.as_ref(), now);
        // DEVIATION: upstream writes the new generation with the old counts. The events of the pods start the next sync.
        let is_deferred = self.coalesce_status_writes
            && has_events
            && error.is_none()
            && only_generation_differs(&view.replica_set.status, &status);
        if is_deferred {
            let next = self.next_availability(&view.replica_set, &view, now);
            return Ok(next.map_or(Requeue::Done, Requeue::After));
        }
        // The status of a sync that failed waits here, as upstream's: a sync at its turn would repeat the failed requests.
        if error.is_some() || status == view.replica_set.status {
            self.status_turns.give_back(key);
        } else if !self.status_turns.take(key, urgency(&view.replica_set, &status)) {
            // The next sync also computes the time at which the next pod becomes available.
            return Ok(Requeue::Done);
        }
        let updated = self.executor.update_status(&view.replica_set, status).await?;
        let version = &updated.metadata.resource_version;
        self.executor.pods.own_writes.versions.wrote_at(
            key,
            Arc::clone(&owner.uid),
            GroupResource::REPLICA_SETS,
            version,
        );

        let next_availability = self.next_availability(&updated, &view, now);
        let Some(source) = error else { return Ok(next_availability.map_or(Requeue::Done, Requeue::After)) };
        match retry_after {
            Some(delay) => Ok(Requeue::After(next_availability.map_or(delay, |next| next.min(delay)))),
            None => Err(SyncError::Manage { source, next_availability }),
        }
    }

    pub(crate) fn view(
        &self,
        replica_set: Arc<ReplicaSet>,
        active: Vec<Arc<Pod>>,
        terminating: usize,
        expectations_met: bool,
    ) -> View {
        let block = if replica_set.metadata.is_being_deleted() {
            Some(ManageBlock::BeingDeleted)
        } else if expectations_met {
            None
        } else {
            Some(ManageBlock::ExpectationsPending)
        };
        let mut view = View {
            replica_set,
            active,
            terminating: self.kind_config.terminating_replicas.then_some(terminating),
            block,
            burst_replicas: self.burst_replicas,
            pod_deletion_cost: self.kind_config.pod_deletion_cost,
            related: Vec::new(),
        };
        if view.block.is_none() && view.must_rank() {
            view.related = related_pods(
                &self.kind_config,
                &view.replica_set,
                &self.replica_sets,
                &self.executor.pods.cache,
            );
        }
        view
    }

    /// Returns the time until the next pod becomes available, which no event reports, or `minReadySeconds` if the time is not
    /// known.
    ///
    /// `evaluated_at` is the time of the status. The result is relative to the current time.
    ///
    /// Example: `minReadySeconds` is 30, and a pod has been ready for 10 s. If the writes took 2 s, the result is 18 s.
    fn next_availability(
        &self,
        updated: &ReplicaSet,
        view: &View,
        evaluated_at: Timestamp,
    ) -> Option<Duration> {
        let (min_ready_seconds, status) = (updated.spec.min_ready_seconds, &updated.status);
        let seconds = u64::try_from(min_ready_seconds).ok().filter(|seconds| *seconds > 0)?;
        if status.ready_replicas == status.available_replicas {
            return None;
        }
        let pods = view.active.iter().map(|pod| &**pod);
        min_next_pod_availability(pods, min_ready_seconds, evaluated_at, self.clock.now())
            .or(Some(Duration::from_secs(seconds)))
    }
}

/// Adopts and releases pods of one owner.
struct PodOwnerControl<'a> {
    executor: &'a Executor,
    owner: &'a OwnerIdentity,
}

#[async_trait]
impl OwnerControl<Pod> for PodOwnerControl<'_> {
    fn kind(&self) -> Cow<'static, str> {
        "Pod".into()
    }

    async fn live_owner(&self) -> Result<LiveOwner, ApiError> {
        let live = self.executor.replica_set_control.get_replica_set(&self.owner.key()).await?;
        Ok(LiveOwner::from(&live.metadata))
    }

    async fn patch(&self, pod: &Pod, patch: &OwnerPatch) -> Result<Pod, ApiError> {
        let pod = self.executor.pod_control.patch_pod(&pod.key, patch).await?;
        // As upstream, a sync does not wait for a released pod.
        if patch.is_adoption() {
            let (key, uid) = (self.owner.key(), Arc::clone(&self.owner.uid));
            let versions = &self.executor.pods.own_writes.versions;
            versions.wrote_at(&key, uid, GroupResource::PODS, &pod.resource_version);
        }
        Ok(pod)
    }
}

#[cfg(test)]
mod tests;
