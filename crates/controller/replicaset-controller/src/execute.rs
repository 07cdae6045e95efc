use std::sync::Arc;

use futures_util::{StreamExt, stream::FuturesUnordered};
use kcm_api::{ApiError, ObjectKey, Pod, ReplicaSet, ReplicaSetStatus};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::{GroupResource, ManifestError};
use kcm_events::EventType;
use thiserror::Error;
use tracing::{debug, trace};

use crate::{Plan, Victim, View, sync::Syncer};

/// What came of carrying a plan out.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The first thing that went wrong.
    pub error: Option<ManageError>,
}

/// Why pods could not be created or deleted. Displays as what the status and the log quote.
#[derive(Debug, Clone, Error)]
pub enum ManageError {
    /// The template makes no pod.
    #[error(transparent)]
    Manifest(Arc<ManifestError>),
    /// A create was refused.
    #[error(transparent)]
    Create(ApiError),
    /// A delete was refused.
    #[error("unable to delete pods: {0}")]
    Delete(#[source] ApiError),
}

/// How often a refused status write is tried again.
///
/// Upstream counterpart: `statusUpdateRetries`.
const STATUS_UPDATE_RETRIES: usize = 1;

impl Syncer {
    /// Carries `plan` out.
    ///
    /// Upstream counterpart: `manageReplicas`, as far as it does things.
    pub(crate) async fn execute(&self, view: &View, owner: &OwnerIdentity, plan: &Plan) -> Outcome {
        let error = match plan {
            Plan::Nothing { .. } => None,
            Plan::CreatePods { count, reason } => {
                debug!(creating = count, %reason, "Too few replicas");
                self.create_pods(&view.replica_set, owner, *count).await
            }
            Plan::DeletePods { victims, reason } => {
                debug!(deleting = victims.len(), %reason, "Too many replicas");
                self.delete_pods(&view.replica_set, owner, victims).await
            }
        };
        Outcome { error }
    }

    async fn delete_pods(
        &self,
        replica_set: &ReplicaSet,
        owner: &OwnerIdentity,
        victims: &[Victim],
    ) -> Option<ManageError> {
        let key = owner.key();
        self.expectations.expect_deletions(&key, victims.iter().map(|victim| victim.pod.key.clone()));
        for ratio in victims.iter().filter_map(|victim| victim.age_ratio) {
            self.metrics.sorting_deletion_age_ratio(ratio);
        }
        let deletions = victims.iter().map(|victim| self.delete_pod(replica_set, &key, victim));
        let mut deletions: FuturesUnordered<_> = deletions.collect();
        let mut first_error = None;
        while let Some(outcome) = deletions.next().await {
            first_error = first_error.or(outcome.err());
        }
        first_error
    }

    async fn delete_pod(
        &self,
        replica_set: &ReplicaSet,
        owner: &ObjectKey,
        victim: &Victim,
    ) -> Result<(), ManageError> {
        let pod = &victim.pod.key;
        debug!(%pod, why = %victim.why, "Deleting pod");
        let Err(error) = self.pod_control.delete_pod(pod).await else {
            let message = format!("Deleted pod: {}", pod.name);
            self.event(replica_set, EventType::Normal, "SuccessfulDelete", message);
            return Ok(());
        };
        // Its event may have come long ago, or will come because of somebody else.
        self.expectations.deletion_observed(owner, pod);
        if error.is_not_found() {
            trace!(%pod, "Pod has already been deleted");
            return Ok(());
        }
        debug!(%pod, err = %error, "Failed to delete pod, decremented expectations");
        let message = format!("Error deleting: {error}");
        self.event(replica_set, EventType::Warning, "FailedDelete", message);
        Err(ManageError::Delete(error))
    }

    /// Notes the version of a pod that a write was answered with, if it is ours by that answer (US-3.7).
    pub(crate) fn note_pod_write(&self, owner: &OwnerIdentity, pod: &Pod) {
        if pod.controller.as_ref().is_some_and(|controller| controller.uid == owner.uid) {
            let (key, version) = (owner.key(), &pod.resource_version);
            self.consistency.wrote_at(&key, &owner.uid, GroupResource::PODS, version);
        }
    }

    /// Writes `status` if it says anything new, and answers with the ReplicaSet as it is then (US-5.8).
    ///
    /// A refused write is tried once more, with the same status on a fresh copy: whoever wrote in between loses.
    ///
    /// Upstream counterpart: `updateReplicaSetStatus`.
    pub(crate) async fn write_status(
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
        let mut retries = STATUS_UPDATE_RETRIES;
        loop {
            let error = match self.replica_set_control.update_replica_set_status(&current).await {
                Ok(updated) => return Ok(Arc::new(updated)),
                Err(error) if retries == 0 => return Err(error),
                Err(error) => error,
            };
            retries -= 1;
            let fresh = self.replica_set_control.get_replica_set(&key).await?;
            // DEVIATION: upstream does not compare UIDs, and writes the status to another object of the same name.
            if fresh.uid() != replica_set.uid() {
                return Err(error);
            }
            current = ReplicaSet { status: current.status, ..fresh };
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
