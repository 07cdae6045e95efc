//! Writes of a sync.

use std::sync::Arc;

use kcm_api::{ApiError, ObjectKey, Pod, ReplicaSet, ReplicaSetStatus};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::{OwnedObjects, PodControl, ReplicaSetControl};
use kcm_events::EventType;
use tracing::{debug, trace};

use crate::{
    ManageError, Plan, PodDeletion, ReplicaSetMetrics, events::ReplicaSetEvents, performed::Performed,
};

/// Performs plans and status updates.
pub(crate) struct Executor {
    pub(crate) pods: OwnedObjects<Pod>,
    pub(crate) pod_control: Arc<dyn PodControl>,
    pub(crate) replica_set_control: Arc<dyn ReplicaSetControl>,
    pub(crate) metrics: Arc<dyn ReplicaSetMetrics>,
    pub(crate) events: Arc<ReplicaSetEvents>,
}

/// Number of retries of a rejected status update.
///
/// Upstream counterpart: `statusUpdateRetries`.
const STATUS_UPDATE_RETRIES: usize = 1;

impl Executor {
    /// Performs `plan`.
    ///
    /// Upstream counterpart: the writes of `manageReplicas`.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, requests may take effect without a response. Expectations of these requests last until
    /// they are observed or expire.
    pub(crate) async fn execute(
        &self,
        replica_set: &ReplicaSet,
        owner: &OwnerIdentity,
        plan: &Plan,
    ) -> Performed {
        let need = replica_set.replicas();
        match plan {
            Plan::Nothing { .. } => Performed::default(),
            Plan::CreatePods { count, .. } => {
                debug!(need, creating = count, "Too few replicas");
                self.create_pods(replica_set, owner, *count).await
            }
            Plan::DeletePods { pods, .. } => {
                debug!(need, deleting = pods.len(), "Too many replicas");
                self.delete_pods(replica_set, owner, pods).await
            }
        }
    }

    async fn delete_pods(
        &self,
        replica_set: &ReplicaSet,
        owner: &OwnerIdentity,
        deletions: &[PodDeletion],
    ) -> Performed {
        for ratio in deletions.iter().filter_map(|deletion| deletion.age_ratio) {
            self.metrics.sorting_deletion_age_ratio(ratio);
        }
        let requests = deletions
            .iter()
            .map(|deletion| (Arc::clone(&deletion.pod), self.delete_pod(replica_set, deletion)));
        let deleted = self.pods.delete(owner, requests).await;
        Performed {
            error: deleted.error.map(ManageError::Delete),
            has_events: deleted.has_events,
            retry_after: None,
        }
    }

    async fn delete_pod(&self, replica_set: &ReplicaSet, deletion: &PodDeletion) -> Result<(), ApiError> {
        let pod = &deletion.pod.key;
        debug!(%pod, reason = %deletion.reason, "Deleting pod");
        let result = self.pod_control.delete_pod(pod).await;
        match &result {
            Ok(()) => {
                let message = format!("Deleted pod: {}", pod.name);
                self.events.record(replica_set, EventType::Normal, "SuccessfulDelete", message);
            }
            Err(error) if error.is_not_found() => trace!(%pod, "Pod has already been deleted"),
            Err(error) => {
                debug!(%pod, err = %error, "Failed to delete pod, decremented expectations");
                let message = format!("Error deleting: {error}");
                self.events.record(replica_set, EventType::Warning, "FailedDelete", message);
            }
        }
        result
    }

    /// Writes `status` if it differs from the cached status. Returns the ReplicaSet that the API server returned, or the
    /// cached one (US-5.8).
    ///
    /// A rejected update is retried once with the same status and the current resource version. It overwrites a status
    /// that another client wrote meanwhile.
    ///
    /// Upstream counterpart: `updateReplicaSetStatus`.
    pub(crate) async fn update_status(
        &self,
        replica_set: &Arc<ReplicaSet>,
        status: ReplicaSetStatus,
    ) -> Result<Arc<ReplicaSet>, ApiError> {
        if status == replica_set.status {
            return Ok(Arc::clone(replica_set));
        }
        let key = replica_set.metadata.key();
        trace_status(&key, replica_set, &status);
        let mut current = ReplicaSet { status, ..(**replica_set).clone() };
        let missing = &self.pods.own_writes.missing;
        let mut retries = STATUS_UPDATE_RETRIES;
        loop {
            let error = match self.replica_set_control.update_replica_set_status(&current).await {
                Ok(updated) => {
                    missing.remove(&key);
                    return Ok(Arc::new(updated));
                }
                Err(error) if retries == 0 => return Err(error),
                Err(error) => error,
            };
            retries -= 1;
            let live = self.replica_set_control.get_replica_set(&key).await.inspect_err(|error| {
                if error.is_object_missing() {
                    missing.not_found(&key, &replica_set.metadata.uid);
                }
            })?;
            // DEVIATION: upstream does not compare UIDs, and writes the status to another object of the same name.
            if live.metadata.uid != replica_set.metadata.uid {
                missing.not_found(&key, &replica_set.metadata.uid);
                return Err(error);
            }
            current = ReplicaSet { status: current.status, ..live };
        }
    }
}

fn trace_status(key: &ObjectKey, replica_set: &ReplicaSet, next: &ReplicaSetStatus) {
    let old = &replica_set.status;
    trace!(
        "Updating status for {key}, replicas {}->{} (need {}), fullyLabeledReplicas {}->{}, \
         readyReplicas {}->{}, availableReplicas {}->{}, terminatingReplicas {:?}->{:?}, sequence No: {}->{}",
        old.replicas,
        next.replicas,
        replica_set.replicas(),
        old.fully_labeled_replicas,
        next.fully_labeled_replicas,
        old.ready_replicas,
        next.ready_replicas,
        old.available_replicas,
        next.available_replicas,
        old.terminating_replicas,
        next.terminating_replicas,
        old.observed_generation,
        next.observed_generation,
    );
}
