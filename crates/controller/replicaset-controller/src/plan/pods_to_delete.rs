//! Pods that are deleted when there are too many.

use std::{fmt, sync::Arc};

use kcm_api::Pod;
use kcm_clock::Timestamp;
use kcm_controller_util::ranking::{Criterion, NodeCounts, Ranking, rank_for_deletion};
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::View;

/// A pod to delete.
#[derive(Debug, Clone, PartialEq)]
pub struct PodDeletion {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Reason why this pod was selected.
    pub reason: DeletionReason,
    /// For a ready pod that was ranked: its age divided by the age of the youngest ready pod.
    pub age_ratio: Option<f64>,
}

/// Reason why a pod was selected for deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionReason {
    /// All pods are deleted.
    AllPods,
    /// First criterion in which the pod differs from the first pod that is kept.
    Ranked(Criterion),
}

impl fmt::Display for DeletionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllPods => f.write_str("all pods are deleted"),
            Self::Ranked(criterion) => criterion.fmt(f),
        }
    }
}

impl Serialize for PodDeletion {
    /// Serializes the name of the pod and the reason.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut deletion = serializer.serialize_struct("PodDeletion", 2)?;
        deletion.serialize_field("pod", &*self.pod.key.name)?;
        deletion.serialize_field("reason", &self.reason.to_string())?;
        deletion.end()
    }
}

/// Returns the surplus pods: ranked if others are kept, and otherwise in any order.
///
/// Upstream counterpart: `getPodsToDelete`.
pub(super) fn get_pods_to_delete(view: &View, now: Timestamp) -> Vec<PodDeletion> {
    if !view.must_rank() {
        let all = view.active.iter().take(view.surplus());
        return all
            .map(|pod| PodDeletion { pod: Arc::clone(pod), reason: DeletionReason::AllPods, age_ratio: None })
            .collect();
    }
    let related = NodeCounts::of(&view.related);
    let youngest = youngest_ready_age(view, now);
    let ranking = Ranking { deletion_cost: view.pod_deletion_cost, ..Ranking::new(&related, now) };
    rank_for_deletion(&view.active, view.surplus(), &ranking)
        .into_iter()
        .map(|ranked| PodDeletion {
            age_ratio: age_ratio(&ranked.pod, youngest, now),
            pod: ranked.pod,
            reason: DeletionReason::Ranked(ranked.criterion),
        })
        .collect()
}

/// Age of the youngest ready pod in milliseconds. `None` if no pod is ready or the age is zero.
///
/// DEVIATION: upstream divides by the age and panics if it is zero (US-5.5). Here, no ratio is recorded.
fn youngest_ready_age(view: &View, now: Timestamp) -> Option<i128> {
    let ready = view.active.iter().filter(|pod| pod.ready.is_ready);
    let created = ready.filter_map(|pod| pod.creation_timestamp).max()?;
    Some(created.age(now).as_millis()).filter(|age| *age != 0)
}

/// Integer division, as upstream. Example: ages of 100 s and 40 s give 2.
fn age_ratio(pod: &Pod, youngest: Option<i128>, now: Timestamp) -> Option<f64> {
    let youngest = youngest.filter(|_| pod.ready.is_ready)?;
    Some((pod.creation_timestamp?.age(now).as_millis() / youngest) as f64)
}
