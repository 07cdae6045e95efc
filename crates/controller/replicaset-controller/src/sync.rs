use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use kcm_api::{ApiError, ObjectKey, Pod, ReplicaSet, Selector};
use kcm_clock::{Clock, Random, Timestamp};
use kcm_controller_ref_manager::{ClaimErrors, FreshOwner, OwnerControl, OwnerIdentity, OwnerPatch, claim};
use kcm_controller_util::{
    ConsistencyStore, GroupResource, PodControl, ReplicaSetControl, Requeue,
    availability::min_next_pod_availability, consistency::NotReady,
};
use kcm_events::{EventRecorder, EventType, ObjectReference};
use kcm_expectations::UidTrackingExpectations;
use kcm_informer::Store;
use thiserror::Error;
use tracing::{Span, error, trace};

use crate::{
    Hold, KindConfig, ManageError, ReplicaSetMetrics, View,
    pending_creates::PendingCreates,
    plan::plan,
    status::next_status,
    view::{Candidates, related_pods},
};

/// All that a sync reads from and writes to.
pub(crate) struct Syncer {
    pub(crate) kind_config: KindConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) pods: Store<Pod>,
    pub(crate) replica_sets: Store<ReplicaSet>,
    pub(crate) pod_control: Arc<dyn PodControl>,
    pub(crate) replica_set_control: Arc<dyn ReplicaSetControl>,
    pub(crate) recorder: Arc<dyn EventRecorder>,
    pub(crate) metrics: Arc<dyn ReplicaSetMetrics>,
    pub(crate) expectations: UidTrackingExpectations<ObjectKey, ObjectKey>,
    pub(crate) consistency: ConsistencyStore,
    pub(crate) pending_creates: PendingCreates,
    pub(crate) burst_replicas: usize,
}

/// Why a sync is to be tried again.
#[derive(Debug, Clone, Error)]
pub enum SyncError {
    /// A cache has not seen what an earlier sync wrote.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// Pods could not be adopted or released.
    #[error(transparent)]
    Claim(#[from] ClaimErrors),
    /// The status could not be written. Hides what went wrong with the pods, if anything did.
    #[error(transparent)]
    Status(#[from] ApiError),
    /// Pods could not be created or deleted.
    #[error(transparent)]
    Manage(#[from] ManageError),
}

impl Syncer {
    /// Brings the pods of the ReplicaSet at `key` closer to what is wanted, and its status up to date.
    ///
    /// The order of the steps is upstream's, and each place in it has its reason (US-5.3).
    ///
    /// Upstream counterpart: `syncReplicaSet`.
    pub(crate) async fn sync_replica_set(&self, key: &ObjectKey) -> Result<Requeue, SyncError> {
        // Before anything is read, even whether there is such an object: a cache that has not seen what we wrote
        // last is no base for any decision.
        self.consistency.ensure_ready(key).inspect_err(|behind| {
            self.metrics.stale_sync_skip(behind.resource);
        })?;

        let Some(replica_set) = self.replica_sets.get(key) else {
            trace!("{} has been deleted", self.kind_config.kind);
            self.consistency.clear(key, None);
            self.expectations.delete(key);
            self.pending_creates.clear(key);
            return Ok(Requeue::Never);
        };

        Span::current().record("uid", &**replica_set.uid());

        // The cache contains all that was answered.
        if self.consistency.is_enabled() {
            self.expectations.observe_answered_creations(key);
        }
        // Before the pods are listed: a pod that comes in between is in the list, and counting it off first
        // would let us create it once more.
        let expectations_met = self.expectations.satisfied(key);

        let selector = match Selector::new(replica_set.spec.selector.as_ref()) {
            Ok(selector) => selector,
            Err(error) => {
                // No retry mends that; a changed object comes with its own event.
                error!(replicaSet = %key, err = %error, "Error converting pod selector to selector");
                return Ok(Requeue::Never);
            }
        };

        let owner =
            OwnerIdentity::new(self.kind_config.api_version, self.kind_config.kind, &replica_set.metadata);
        // Before the pods are listed: if a name stops being pending, the list must contain its pod.
        self.pending_creates.retain(&owner, |name| {
            let key = ObjectKey { namespace: Arc::clone(&key.namespace), name: name.into() };
            self.pods.get(&key).is_none()
        });
        let candidates = Candidates::gather(&self.pods, &owner, &selector);
        let links = PodLinks { syncer: self, owner: &owner };
        let mut active = claim(&owner, &selector, candidates.active, &links).await.into_result()?;
        // DEVIATION: upstream counts a pod whose deletion has begun before its adoption as active.
        let claimed = active.len();
        active.retain(|pod| pod.deletion_timestamp.is_none());
        let terminating = candidates.terminating + claimed - active.len();

        let now = self.clock.now();
        let view = self.view(replica_set, active, terminating, expectations_met);
        let plan = plan(&view, now);
        let outcome = self.execute(&view, &owner, &plan).await;

        let updated = self.write_status(&view.replica_set, next_status(&view, &outcome, now)).await?;
        let version = &updated.metadata.resource_version;
        self.consistency.wrote_at(key, &owner.uid, GroupResource::REPLICA_SETS, version);

        // After the status, which tells of it.
        if let Some(error) = outcome.error {
            return Err(error.into());
        }
        Ok(self.next_look(&updated, &view, now))
    }

    fn view(
        &self,
        replica_set: Arc<ReplicaSet>,
        active: Vec<Arc<Pod>>,
        terminating: usize,
        expectations_met: bool,
    ) -> View {
        let hold = if replica_set.metadata.is_being_deleted() {
            Some(Hold::BeingDeleted)
        } else if expectations_met {
            None
        } else {
            Some(Hold::ExpectationsPending)
        };
        let mut view = View {
            replica_set,
            active,
            terminating: self.kind_config.terminating_replicas.then_some(terminating),
            hold,
            burst_replicas: self.burst_replicas,
            pod_deletion_cost: self.kind_config.pod_deletion_cost,
            related: Vec::new(),
        };
        if view.hold.is_none() && view.surplus().1 {
            view.related = related_pods(&self.kind_config, &view.replica_set, &self.replica_sets, &self.pods);
        }
        view
    }

    /// In how long a pod becomes available without any event to tell of it.
    ///
    /// Whether one is still missing is read from the status as the server has it.
    fn next_look(&self, updated: &ReplicaSet, view: &View, judged_at: Timestamp) -> Requeue {
        let min_ready_seconds = updated.spec.min_ready_seconds;
        let all_available = updated.status.ready_replicas == updated.status.available_replicas;
        let fallback = u64::try_from(min_ready_seconds).unwrap_or(0);
        if fallback == 0 || all_available {
            return Requeue::Never;
        }
        // The one place that asks the clock a second time: writing may have taken a while, and this is a delay
        // from now on.
        let pods = view.active.iter().map(|pod| &**pod);
        let next = min_next_pod_availability(pods, min_ready_seconds, judged_at, self.clock.now());
        Requeue::After(next.unwrap_or(Duration::from_secs(fallback)))
    }

    pub(crate) fn event(&self, replica_set: &ReplicaSet, type_: EventType, reason: &str, message: String) {
        let metadata = &replica_set.metadata;
        let regarding = ObjectReference {
            api_version: self.kind_config.api_version.into(),
            kind: self.kind_config.kind.into(),
            namespace: Arc::clone(&metadata.namespace),
            name: Arc::clone(&metadata.name),
            uid: Arc::clone(&metadata.uid),
            resource_version: metadata.resource_version.clone(),
        };
        self.recorder.event(&regarding, type_, reason, message);
    }
}

/// Adopts and releases pods for one owner.
struct PodLinks<'a> {
    syncer: &'a Syncer,
    owner: &'a OwnerIdentity,
}

#[async_trait]
impl OwnerControl<Pod> for PodLinks<'_> {
    async fn fresh_owner(&self) -> Result<FreshOwner, ApiError> {
        let fresh = self.syncer.replica_set_control.get_replica_set(&self.owner.key()).await?;
        Ok(FreshOwner::from(&fresh.metadata))
    }

    async fn patch(&self, object: &ObjectKey, patch: &OwnerPatch) -> Result<Pod, ApiError> {
        let pod = self.syncer.pod_control.patch_pod(object, patch).await?;
        self.syncer.note_pod_write(self.owner, &pod);
        Ok(pod)
    }
}

#[cfg(test)]
mod tests;
