//! Number of pods to create or delete, and the pods to delete.

use kcm_clock::Timestamp;
use serde::Serialize;

use crate::{ManageBlock, View};

mod pods_to_delete;
mod reason;

pub use pods_to_delete::{DeletionReason, PodDeletion};
pub use reason::PlanReason;

/// Creations or deletions of pods in one sync.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "action")]
pub enum Plan {
    /// No pod is created or deleted.
    Nothing {
        /// Reason.
        reason: PlanReason,
    },
    /// Creates pods from the template.
    CreatePods {
        /// Number of pods.
        count: usize,
        /// Reason for the number.
        reason: PlanReason,
    },
    /// Deletes pods.
    DeletePods {
        /// Pods in the order of their ranking.
        pods: Vec<PodDeletion>,
        /// Reason for the number.
        reason: PlanReason,
    },
}

impl Plan {
    /// Reason of the plan.
    pub fn reason(&self) -> PlanReason {
        let (Self::Nothing { reason } | Self::CreatePods { reason, .. } | Self::DeletePods { reason, .. }) =
            self;
        *reason
    }
}

/// Plans the creations or deletions of a sync of `view` at `now` (US-5.4, US-5.5).
///
/// With `difference = active pods - replicas`, the plan creates `min(-difference, burst_replicas)` or deletes
/// `min(difference, burst_replicas)` pods. Example: 1200 replicas, 1 active pod, a burst of 500. The difference is -1199,
/// and the plan creates 500 pods.
///
/// Upstream counterpart: the decisions of `manageReplicas`.
pub fn plan(view: &View, now: Timestamp) -> Plan {
    match view.block {
        Some(ManageBlock::BeingDeleted) => return Plan::Nothing { reason: PlanReason::BeingDeleted },
        Some(ManageBlock::ExpectationsPending) => {
            return Plan::Nothing { reason: PlanReason::ExpectationsPending };
        }
        None => {}
    }
    let (need, active) = (view.replica_set.replicas(), view.active.len());
    let missing = usize::try_from(view.difference().saturating_neg()).unwrap_or(0);
    if missing > 0 {
        let count = missing.min(view.burst_replicas);
        return Plan::CreatePods {
            count,
            reason: PlanReason::TooFewReplicas { need, active, creating: count },
        };
    }
    let deleting = view.surplus();
    if deleting == 0 {
        return Plan::Nothing { reason: PlanReason::Settled { need, active } };
    }
    let pods = pods_to_delete::get_pods_to_delete(view, now);
    Plan::DeletePods { pods, reason: PlanReason::TooManyReplicas { need, active, deleting } }
}

#[cfg(test)]
mod tests;
