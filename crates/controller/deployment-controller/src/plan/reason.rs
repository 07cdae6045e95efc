//! Reasons of planned writes.

use std::{fmt, sync::Arc};

use crate::status::StatusChange;

/// Reason for a planned write. `Display` returns the phrase that is logged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// `observedGeneration` is behind. Used for a Deployment with an empty selector, which is not synced further.
    GenerationObserved {
        /// Generation of the Deployment.
        generation: i64,
    },
    /// The Deployment was paused. The progress deadline does not apply until it is resumed.
    Paused,
    /// The Deployment was resumed.
    Resumed,
    /// `minReadySeconds` of the new ReplicaSet differs.
    MinReadySecondsChanged {
        /// Value of the Deployment, in seconds.
        min_ready_seconds: i32,
    },
    /// Annotations of the new ReplicaSet differ, or its revision is not the highest.
    NewReplicaSetAnnotations {
        /// Revision of the new ReplicaSet.
        revision: i64,
    },
    /// The new ReplicaSet existed already and is not recorded in the Deployment.
    NewReplicaSetFound {
        /// Name of the ReplicaSet.
        replica_set: Arc<str>,
        /// Revision to be recorded, if it differs.
        revision: Option<String>,
    },
    /// No ReplicaSet has the template of the Deployment.
    NoNewReplicaSet {
        /// Revision of the ReplicaSet to be created.
        revision: i64,
        /// Its size.
        replicas: i32,
        /// Size of the Deployment.
        desired: i32,
    },
    /// The new ReplicaSet was created by this sync or an earlier one, and is not recorded in the Deployment.
    RolloutStarted {
        /// Revision of the ReplicaSet.
        revision: i64,
    },
    /// The name of the new ReplicaSet is used by a ReplicaSet with another template.
    HashCollision {
        /// Name of the ReplicaSet.
        replica_set: Arc<str>,
        /// New `collisionCount`.
        collision_count: i32,
    },
    /// The new ReplicaSet could not be created.
    CreateFailed {
        /// Name of the ReplicaSet.
        replica_set: Arc<str>,
    },
    /// The new ReplicaSet is larger than the Deployment.
    NewReplicaSetTooLarge {
        /// Size of the ReplicaSet.
        replicas: i32,
        /// Size of the Deployment.
        desired: i32,
    },
    /// The surge bound permits more pods of the new ReplicaSet.
    SurgeAvailable {
        /// Size of the new ReplicaSet.
        replicas: i32,
        /// Size of the Deployment.
        desired: i32,
        /// Size of all ReplicaSets together.
        total: i32,
        /// Maximum size of all ReplicaSets together.
        max_total: i32,
    },
    /// An old ReplicaSet has unavailable pods, which can be removed without reducing availability.
    UnhealthyReplicas {
        /// Number of unavailable pods of the ReplicaSet.
        unavailable: i32,
        /// Maximum number of pods that may be removed from old ReplicaSets.
        max_scaled_down: i32,
    },
    /// More pods are available than the Deployment must keep.
    AvailabilityExceeded {
        /// Number of available pods.
        available: i32,
        /// Number of available pods to keep.
        min_available: i32,
    },
    /// Recreate scales the old ReplicaSets to 0 before it scales up the new one.
    RecreateScaleDown,
    /// Recreate scales up the new ReplicaSet: no old pods are left.
    RecreateScaleUp {
        /// Size of the Deployment.
        desired: i32,
    },
    /// The Deployment was scaled, and no other ReplicaSet is active.
    OnlyActiveReplicaSet {
        /// Size of the Deployment.
        desired: i32,
    },
    /// The Deployment was scaled, and the new ReplicaSet has its size with all pods available.
    NewReplicaSetSaturated {
        /// Size of the Deployment.
        desired: i32,
    },
    /// The Deployment was scaled during a rollout.
    ProportionalScaling {
        /// Number of pods to add to all ReplicaSets. Negative to remove pods.
        replicas_to_add: i32,
        /// Size of all active ReplicaSets together.
        total: i32,
        /// Maximum size of all ReplicaSets together.
        max_total: i32,
    },
    /// More old ReplicaSets exist than `revisionHistoryLimit` permits.
    RevisionHistoryLimit {
        /// Number of old ReplicaSets to keep.
        limit: usize,
    },
    /// A rollback to a revision is requested.
    Rollback {
        /// Revision.
        revision: i64,
    },
    /// The requested rollback is not possible. Its annotation is removed.
    RollbackRevisionNotFound,
    /// The requested rollback would not change the template. Its annotation is removed.
    RollbackTemplateUnchanged,
    /// The status of the Deployment differs from the computed status.
    StatusChanged(Vec<StatusChange>),
    /// Several reasons for one update of the status.
    Combined(Vec<Self>),
}

impl Reason {
    /// Returns the reason of a write that has `reasons`, or `None` if there are none.
    pub(crate) fn combine(mut reasons: Vec<Self>) -> Option<Self> {
        if reasons.len() > 1 { Some(Self::Combined(reasons)) } else { reasons.pop() }
    }

    /// Returns `true` if the next sync fails in the same way without the write.
    pub(crate) fn is_required(&self) -> bool {
        match self {
            Self::HashCollision { .. } => true,
            Self::Combined(reasons) => reasons.iter().any(Self::is_required),
            _ => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GenerationObserved { generation } => write!(f, "update observedGeneration to {generation}"),
            Self::Paused => f.write_str("deployment is paused"),
            Self::Resumed => f.write_str("deployment is resumed"),
            Self::MinReadySecondsChanged { min_ready_seconds } => {
                write!(f, "update minReadySeconds to {min_ready_seconds}")
            }
            Self::NewReplicaSetAnnotations { revision } => {
                write!(f, "update annotations of new replica set, revision {revision}")
            }
            Self::NewReplicaSetFound { replica_set, revision } => {
                write!(f, "found new replica set {replica_set}")?;
                match revision {
                    Some(revision) => write!(f, ", update revision to {revision}"),
                    None => Ok(()),
                }
            }
            Self::NoNewReplicaSet { revision, replicas, desired } => {
                write!(f, "no new replica set for revision {revision}; {replicas} of {desired} new replicas")
            }
            Self::RolloutStarted { revision } => write!(f, "started rollout of revision {revision}"),
            Self::HashCollision { replica_set, collision_count } => write!(
                f,
                "replica set {replica_set} has another template; update collisionCount to {collision_count}"
            ),
            Self::CreateFailed { replica_set } => write!(f, "failed to create replica set {replica_set}"),
            Self::NewReplicaSetTooLarge { replicas, desired } => {
                write!(f, "{replicas} new replicas, {desired} desired")
            }
            Self::SurgeAvailable { replicas, desired, total, max_total } => {
                write!(f, "{replicas} of {desired} new replicas; {total} of at most {max_total} in total")
            }
            Self::UnhealthyReplicas { unavailable, max_scaled_down } => {
                write!(f, "{unavailable} unavailable replicas, at most {max_scaled_down} can be removed")
            }
            Self::AvailabilityExceeded { available, min_available } => {
                write!(f, "{available} available replicas, {min_available} required")
            }
            Self::RecreateScaleDown => f.write_str("Recreate removes old replicas first"),
            Self::RecreateScaleUp { desired } => write!(f, "no old replicas, {desired} desired"),
            Self::OnlyActiveReplicaSet { desired } => {
                write!(f, "no other active replica set, {desired} replicas desired")
            }
            Self::NewReplicaSetSaturated { desired } => {
                write!(f, "new replica set has all {desired} replicas available")
            }
            Self::ProportionalScaling { replicas_to_add, total, max_total } => {
                write!(f, "proportional scaling by {replicas_to_add:+} from {total} to {max_total} in total")
            }
            Self::RevisionHistoryLimit { limit } => write!(f, "revisionHistoryLimit is {limit}"),
            Self::Rollback { revision } => write!(f, "roll back to revision {revision}"),
            Self::RollbackRevisionNotFound => f.write_str("rollback revision not found"),
            Self::RollbackTemplateUnchanged => f.write_str("rollback does not change the template"),
            Self::StatusChanged(changes) => {
                for (position, change) in changes.iter().enumerate() {
                    if position > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{change}")?;
                }
                Ok(())
            }
            Self::Combined(reasons) => {
                for (position, reason) in reasons.iter().enumerate() {
                    if position > 0 {
                        f.write_str("; ")?;
                    }
                    write!(f, "{reason}")?;
                }
                Ok(())
            }
        }
    }
}
