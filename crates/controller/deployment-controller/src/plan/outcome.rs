//! Outcome of a sync.

use std::{fmt, time::Duration};

use kcm_runtime::Requeue;

use crate::error::SyncError;

/// Result of a sync that did not fail.
#[derive(Debug, Clone)]
pub struct SyncOutcome {
    /// Change that must happen before the next sync has work to do.
    pub blocked_on: BlockedOn,
    /// Next check of the progress deadline. `None` if the sync wrote the status, whose watch event starts the next
    /// sync, and if the deadline does not apply.
    pub progress_check: Option<ProgressCheck>,
    /// First write error that the sync ignored. Upstream ignores the errors of the same writes.
    pub ignored_error: Option<SyncError>,
}

/// Check of the progress deadline. It detects a rollout that has stopped and causes no more events.
///
/// Upstream counterpart: the key that `requeueStuckDeployment` adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressCheck {
    /// Time until the check. `None` if less than a second is left, or none.
    pub after: Option<Duration>,
    /// `true` if the rollout can time out. A rollout that was complete cannot, even if it loses its pods (US-4.12).
    pub can_time_out: bool,
}

/// Change that must happen before the next sync has work to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockedOn {
    /// Nothing: all pods are updated and available.
    Nothing,
    /// The ReplicaSet controller must process ReplicaSets that were scaled.
    ReplicaSetStatus,
    /// New pods must become available.
    NewPods {
        /// Number of available pods of the new ReplicaSet.
        available: i32,
        /// Size of the new ReplicaSet.
        replicas: i32,
        /// Size of the Deployment.
        desired: i32,
    },
    /// The old pods must be deleted.
    OldPods,
    /// The size of the Deployment must change.
    ///
    /// A ReplicaSet has the correct size, and its annotation `desired-replicas` has another value. Each sync then takes
    /// the Deployment for scaled, and no rollout starts. Upstream has this defect, too (US-9.9).
    DesiredReplicasAnnotation,
    /// The watch event of the Deployment that this sync has updated.
    DeploymentUpdate,
    /// The Deployment must be resumed.
    Resume,
    /// The Deployment is being deleted.
    Deletion,
    /// The Deployment must receive a selector that is not empty.
    Selector,
}

impl fmt::Display for BlockedOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing, all replicas are updated and available"),
            Self::ReplicaSetStatus => f.write_str("status of the replica sets"),
            Self::NewPods { available, replicas, desired } => {
                write!(f, "new pods: {available} of {replicas} available, {desired} desired")
            }
            Self::OldPods => f.write_str("deletion of the old pods"),
            Self::DesiredReplicasAnnotation => {
                f.write_str("change of spec.replicas: annotation desired-replicas of a replica set differs")
            }
            Self::DeploymentUpdate => f.write_str("watch event of the updated deployment"),
            Self::Resume => f.write_str("resume of the deployment"),
            Self::Deletion => f.write_str("deletion of the deployment"),
            Self::Selector => f.write_str("a non-empty selector"),
        }
    }
}

impl SyncOutcome {
    /// Returns an outcome without progress check and ignored error.
    pub(crate) fn blocked_on(blocked_on: BlockedOn) -> Self {
        Self { blocked_on, progress_check: None, ignored_error: None }
    }

    /// Returns the time of the next sync if no event comes before it.
    ///
    /// DEVIATION: upstream waits for an event after an ignored write error, and no event comes if nothing was written.
    /// Here the sync is retried.
    ///
    /// DEVIATION: a rollout that cannot time out is not checked. Upstream checks it, and once the deadline has passed
    /// as often as its queue permits: ten times a second for as long as one pod is not available (US-4.12).
    pub fn requeue(&self) -> Requeue {
        match self.progress_check {
            _ if self.ignored_error.is_some() => Requeue::RateLimited,
            Some(ProgressCheck { after, can_time_out: true }) => {
                after.map_or(Requeue::RateLimited, Requeue::After)
            }
            Some(ProgressCheck { can_time_out: false, .. }) | None => Requeue::Done,
        }
    }
}
