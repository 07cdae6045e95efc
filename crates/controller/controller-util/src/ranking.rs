//! Ranking of pods for deletion (US-5.6).
//!
//! Upstream counterpart: `ActivePodsWithRanks`.
//!
//! # Order of pods without a defined order
//!
//! Upstream's comparison is not transitive: pods that became ready at different times of the same logarithmic age compare
//! by UID, other pods of that age by the criteria that follow. If two pods are equal, the result of upstream's sort
//! depends on the iteration order of a Go map. Here, pods are first put into a fixed order and then sorted stably by
//! upstream's comparison. If upstream's result is deterministic, this result is the same; otherwise it is one of the
//! results that upstream can return, and always the same one.
//!
//! DEVIATION: of pods that are equal in all criteria, the pod with the greater reversed UID is deleted first. The last
//! characters of a UID are random in all versions of UUID, so the order does not depend on name or age. Upstream's
//! recorded cases 121, 665, 862 and 1078 have a random result, which this order happens to reproduce.

use std::{
    cmp::{Ordering, Reverse},
    fmt,
    sync::Arc,
};

// Its hash function is cheaper: the standard one took a third of the time of ranking 500 pods.
use hashbrown::HashMap;
use jiff::Timestamp;
use kcm_api::{Phase, Pod, Ready, Time};

use crate::PodView;

/// Criterion in which a pod that is deleted differs from a pod that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Criterion {
    /// The pod is not bound to a node.
    NotScheduled,
    /// The pod has an earlier phase: pending before unknown before running.
    Phase,
    /// The pod is not ready.
    NotReady,
    /// The pod has a lower deletion cost.
    DeletionCost,
    /// More related pods run on its node.
    CrowdedNode,
    /// The pod became ready more recently, by order of magnitude.
    ReadyMoreRecently,
    /// The pod became ready at a similar time and has the lower UID.
    ReadyUid,
    /// The containers of the pod restarted more often.
    MoreRestarts,
    /// The sidecar containers of the pod restarted more often.
    MoreSidecarRestarts,
    /// The pod was created more recently, by order of magnitude.
    CreatedMoreRecently,
    /// The pod was created at a similar time and has the lower UID.
    CreatedUid,
    /// The pods are equal in all criteria.
    SameRank,
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotScheduled => "not scheduled",
            Self::Phase => "earlier phase",
            Self::NotReady => "not ready",
            Self::DeletionCost => "lower deletion cost",
            Self::CrowdedNode => "more related pods on its node",
            Self::ReadyMoreRecently => "became ready more recently",
            Self::ReadyUid => "became ready at a similar time, lower UID",
            Self::MoreRestarts => "more container restarts",
            Self::MoreSidecarRestarts => "more sidecar container restarts",
            Self::CreatedMoreRecently => "created more recently",
            Self::CreatedUid => "created at a similar time, lower UID",
            Self::SameRank => "same rank as other candidates",
        })
    }
}

/// Number of active pods on each node. Pods without a node are counted as pods of one node.
///
/// Upstream counterpart: `podsOnNode` in `getPodsRankedByRelatedPodsOnSameNode`.
#[derive(Debug, Clone, Default)]
pub struct NodeCounts<'a>(HashMap<&'a str, u32>);

impl<'a> NodeCounts<'a> {
    /// Counts the active pods of `pods`.
    pub fn of<P: PodView>(pods: impl IntoIterator<Item = &'a Arc<P>>) -> Self {
        let mut counts = HashMap::new();
        for pod in pods {
            if pod.is_active() {
                *counts.entry(pod.node()).or_default() += 1;
            }
        }
        Self(counts)
    }

    fn get(&self, node: &str) -> u32 {
        self.0.get(node).copied().unwrap_or(0)
    }
}

/// Pod that is selected for deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedPod<P = Pod> {
    /// The pod.
    pub pod: Arc<P>,
    /// First criterion in which the pod differs from the first pod that is kept.
    pub criterion: Criterion,
}

/// Parameters of the ranking that are the same for all pods.
#[derive(Debug, Clone, Copy)]
pub struct Ranking<'a> {
    /// Active related pods on each node.
    pub related: &'a NodeCounts<'a>,
    /// If `false`, deletion costs are ignored, as upstream with the feature gate `PodDeletionCost` off.
    pub deletion_cost: bool,
    /// Time that ages are measured at.
    pub now: Timestamp,
}

impl<'a> Ranking<'a> {
    /// Ranking with upstream's default feature gates.
    pub fn new(related: &'a NodeCounts<'a>, now: Timestamp) -> Self {
        Self { related, deletion_cost: true, now }
    }
}

/// Returns the first `count` pods of the ranking, in its order.
///
/// If no pod is kept, all pods are returned with [`Criterion::SameRank`].
pub fn rank_for_deletion<P: PodView>(
    pods: &[Arc<P>],
    count: usize,
    ranking: &Ranking<'_>,
) -> Vec<RankedPod<P>> {
    let now = ranking.now;
    let mut ranked: Vec<_> = pods.iter().map(|pod| Ranked::new(pod, ranking)).collect();
    // The grade is a total order and cheap to compare. Only pods of the same grade need the remaining criteria, and only
    // if at least one pod of the grade is deleted.
    ranked.sort_unstable_by_key(|pod| pod.grade);
    let mut rest = ranked.as_mut_slice();
    let mut ordered = 0;
    while let Some(first) = rest.first().filter(|_| ordered <= count) {
        let grade = first.grade;
        let group = rest.partition_point(|pod| pod.grade == grade);
        let (group, after) = rest.split_at_mut(group);
        order_group(group, now);
        ordered += group.len();
        rest = after;
    }

    let stays = ranked.get(count);
    ranked
        .iter()
        .take(count)
        .map(|goes| RankedPod {
            pod: Arc::clone(goes.pod),
            criterion: stays.map_or(Criterion::SameRank, |stays| goes.difference(stays, now)),
        })
        .collect()
}

/// Orders pods of one grade.
fn order_group<P: PodView>(group: &mut [Ranked<'_, P>], now: Timestamp) {
    if group.len() > 1 {
        group.sort_unstable_by(|a, b| fixed_order(&**a.pod, &**b.pod));
        merge_sort(group, |a, b| compare_in_grade(&**a.pod, &**b.pod, now).0);
    }
}

/// Order of pods that are equal in all criteria. See the module documentation.
fn fixed_order<P: PodView>(a: &P, b: &P) -> Ordering {
    b.uid_str().bytes().rev().cmp(a.uid_str().bytes().rev()).then_with(|| a.key().cmp(&b.key()))
}

/// Pod with its grade.
struct Ranked<'a, P> {
    pod: &'a Arc<P>,
    grade: Grade,
}

impl<P> Clone for Ranked<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Ranked<'_, P> {}

/// First six criteria of upstream's comparison as numbers. A pod with a smaller grade is deleted first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Grade {
    scheduled: bool,
    phase: u8,
    ready: bool,
    deletion_cost: i32,
    related: Reverse<u32>,
    ready_age: Age,
}

impl<'a, P: PodView> Ranked<'a, P> {
    fn new(pod: &'a Arc<P>, ranking: &Ranking<'_>) -> Self {
        let (node, Ready { is_ready, since }) = (pod.node(), pod.readiness());
        let grade = Grade {
            scheduled: !node.is_empty(),
            phase: match pod.phase() {
                Phase::Unknown => 1,
                Phase::Running => 2,
                Phase::Pending | Phase::Other | Phase::Succeeded | Phase::Failed => 0,
            },
            ready: is_ready,
            deletion_cost: if ranking.deletion_cost { pod.deletion_cost() } else { 0 },
            related: Reverse(ranking.related.get(node)),
            // The time since a pod is *not* ready is not a criterion.
            ready_age: Age::of(since.filter(|_| is_ready), ranking.now),
        };
        Self { pod, grade }
    }

    /// Returns the first criterion in which the pods differ.
    fn difference(&self, other: &Self, now: Timestamp) -> Criterion {
        let (a, b) = (&self.grade, &other.grade);
        if a.scheduled != b.scheduled {
            Criterion::NotScheduled
        } else if a.phase != b.phase {
            Criterion::Phase
        } else if a.ready != b.ready {
            Criterion::NotReady
        } else if a.deletion_cost != b.deletion_cost {
            Criterion::DeletionCost
        } else if a.related != b.related {
            Criterion::CrowdedNode
        } else if a.ready_age != b.ready_age {
            Criterion::ReadyMoreRecently
        } else {
            compare_in_grade(&**self.pod, &**other.pod, now).1
        }
    }
}

/// Remaining criteria of upstream's comparison, for pods of the same [`Grade`]. Not transitive: see the module
/// documentation.
fn compare_in_grade<P: PodView>(a: &P, b: &P, now: Timestamp) -> (Ordering, Criterion) {
    let ready = a.readiness();
    if ready.is_ready && ready.since != b.readiness().since {
        return (a.uid_str().cmp(b.uid_str()), Criterion::ReadyUid);
    }
    let restarts = b.max_restarts().cmp(&a.max_restarts());
    if restarts.is_ne() {
        return (restarts, Criterion::MoreRestarts);
    }
    let restarts = b.max_sidecar_restarts().cmp(&a.max_sidecar_restarts());
    if restarts.is_ne() {
        return (restarts, Criterion::MoreSidecarRestarts);
    }
    let (a_created, b_created) = (a.created_at(), b.created_at());
    if a_created != b_created {
        let age = Age::of(a_created, now).cmp(&Age::of(b_created, now));
        return if age.is_ne() {
            (age, Criterion::CreatedMoreRecently)
        } else {
            (a.uid_str().cmp(b.uid_str()), Criterion::CreatedUid)
        };
    }
    (Ordering::Equal, Criterion::SameRank)
}

/// Logarithmic age. A pod without a time is deleted first.
///
/// Example: ages of 5 s and 8 s are in the same magnitude, since 5,000,000,000 ns and 8,000,000,000 ns are both between
/// 2^32 and 2^33.
///
/// Upstream counterpart: `logarithmicRankDiff`, and `afterOrZero` for times that are not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Age {
    /// The time is not set.
    NoTime,
    /// Zero, or the time is in the future.
    None,
    /// `n` if the age in nanoseconds is at least 2^n and less than 2^(n+1).
    Magnitude(u32),
}

impl Age {
    fn of(time: Option<Time>, now: Timestamp) -> Self {
        let Some(time) = time else { return Self::NoTime };
        let age = time.age(now).as_nanos();
        age.checked_ilog2().map_or(Self::None, Self::Magnitude)
    }
}

/// Stable sort that terminates with a deterministic result if `compare` is not transitive.
///
/// The sort of the standard library may panic then.
fn merge_sort<T: Copy>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut merged = Vec::with_capacity(items.len());
    let mut width = 1;
    while width < items.len() {
        for pair in items.chunks(width * 2) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let ([l, left_rest @ ..], [r, right_rest @ ..]) = (left, right) {
                if compare(r, l).is_lt() {
                    merged.push(*r);
                    right = right_rest;
                } else {
                    merged.push(*l);
                    left = left_rest;
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        items.copy_from_slice(&merged);
        merged.clear();
        width *= 2;
    }
}

#[cfg(test)]
mod tests;
