use std::sync::Arc;

use kcm_api::{Pod, ReplicaSet};

/// Input of a [`Plan`](crate::Plan), apart from the time.
#[derive(Debug, Clone)]
pub struct View {
    /// Cached ReplicaSet.
    pub replica_set: Arc<ReplicaSet>,
    /// Pods of the ReplicaSet that are neither finished nor terminating.
    pub active: Vec<Arc<Pod>>,
    /// Number of terminating pods. `None` if the status does not contain it.
    pub terminating: Option<usize>,
    /// Reason why pods must not be created or deleted.
    pub block: Option<ManageBlock>,
    /// Maximum number of pods to create or delete in one sync.
    pub burst_replicas: usize,
    /// If `false`, deletion costs of pods are ignored (feature gate `PodDeletionCost`).
    pub pod_deletion_cost: bool,
    /// Pods of all ReplicaSets with the same owner. Empty unless pods must be ranked for deletion.
    pub related: Vec<Arc<Pod>>,
}

/// Reason why a sync creates and deletes no pods. The status is still updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManageBlock {
    /// Earlier creations or deletions are not observed yet.
    ExpectationsPending,
    /// The ReplicaSet is being deleted.
    BeingDeleted,
}

impl View {
    /// Number of active pods minus number of replicas: negative if pods are missing.
    pub fn difference(&self) -> i64 {
        i64::try_from(self.active.len()).unwrap_or(i64::MAX) - i64::from(self.replica_set.replicas())
    }

    /// Number of pods to delete.
    pub(crate) fn surplus(&self) -> usize {
        let surplus = usize::try_from(self.difference()).unwrap_or(0);
        // The API server accepts no negative number of replicas, which would exceed the number of pods.
        surplus.min(self.burst_replicas).min(self.active.len())
    }

    /// Returns `true` if some pods are deleted and others are kept, so that pods must be ranked.
    pub(crate) fn must_rank(&self) -> bool {
        let surplus = self.surplus();
        surplus > 0 && surplus < self.active.len()
    }
}
