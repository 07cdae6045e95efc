use std::fmt;

use serde::{Serialize, Serializer};

/// Reason for the number of pods that a plan creates or deletes. `Display` gives a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanReason {
    /// Earlier creations or deletions are not observed yet.
    ExpectationsPending,
    /// The ReplicaSet is being deleted.
    BeingDeleted,
    /// The number of active pods is right.
    Settled {
        /// `spec.replicas`.
        need: i32,
        /// Active pods.
        active: usize,
    },
    /// Pods are missing.
    TooFewReplicas {
        /// `spec.replicas`.
        need: i32,
        /// Active pods.
        active: usize,
        /// Pods to create in this sync.
        creating: usize,
    },
    /// There are surplus pods.
    TooManyReplicas {
        /// `spec.replicas`.
        need: i32,
        /// Active pods.
        active: usize,
        /// Pods to delete in this sync.
        deleting: usize,
    },
}

impl fmt::Display for PlanReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExpectationsPending => f.write_str("earlier creations or deletions are not observed yet"),
            Self::BeingDeleted => f.write_str("the ReplicaSet is being deleted"),
            Self::Settled { need, active } => write!(f, "{need} replicas required, {active} active"),
            Self::TooFewReplicas { need, active, creating } => {
                write!(f, "{need} replicas required, {active} active, creating {creating}")
            }
            Self::TooManyReplicas { need, active, deleting } => {
                write!(f, "{need} replicas required, {active} active, deleting {deleting}")
            }
        }
    }
}

impl Serialize for PlanReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
