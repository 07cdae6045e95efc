//! How a change of size in mid-rollout is shared out between the ReplicaSets that have pods.

use kcm_api::{Deployment, ReplicaSet};

use crate::{annotations, fenceposts::max_surge};

/// By how much `replica_set` should change if all were exact: its part of the Deployment's old size, taken of
/// the new size.
///
/// Upstream counterpart: `getReplicaSetFraction`. The old size is the one noted on the ReplicaSet when it was
/// last scaled; without a note, or with a zero one, the Deployment's number of pods stands in for it.
pub fn replica_set_fraction(replica_set: &ReplicaSet, deployment: &Deployment) -> i32 {
    let (desired, size) = (deployment.replicas(), replica_set.replicas());
    if desired == 0 {
        return size.wrapping_neg();
    }
    let before = match annotations::max_replicas(replica_set) {
        None | Some(0) => deployment.status.replicas,
        Some(max) => max,
    };
    if before == 0 {
        return 0;
    }
    let now = desired.wrapping_add(max_surge(deployment));
    // The product wraps as an i32 before it becomes a float, as upstream's does (US-4.8b).
    let exact = f64::from(size.wrapping_mul(now)) / f64::from(before);
    round_half_away_from_zero(exact).wrapping_sub(size)
}

/// By how much `replica_set` changes, when `to_add` pods are to be added in all and `added` have been given to
/// others. Both are negative when pods are to go.
///
/// Upstream counterpart: `GetReplicaSetProportion`. Never more than is left to be given.
pub fn replica_set_proportion(
    replica_set: &ReplicaSet,
    deployment: &Deployment,
    to_add: i32,
    added: i32,
) -> i32 {
    if replica_set.replicas() == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let fraction = replica_set_fraction(replica_set, deployment);
    let left = to_add.wrapping_sub(added);
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}

/// The new size of each of `sets`, which share a change by `to_add` pods in this order.
///
/// Upstream counterpart: the second half of `scale`. What rounding leaves over goes to the first, which by the
/// caller's order is the largest; none gets a negative size for it.
pub fn proportional_sizes<'a>(
    deployment: &Deployment,
    sets: impl IntoIterator<Item = &'a ReplicaSet>,
    to_add: i32,
) -> Vec<i32> {
    let mut added = 0_i32;
    let mut sizes: Vec<i32> = sets
        .into_iter()
        .map(|set| {
            let part = replica_set_proportion(set, deployment, to_add, added);
            added = added.wrapping_add(part);
            set.replicas().wrapping_add(part)
        })
        .collect();
    if to_add != 0
        && let Some(first) = sizes.first_mut()
    {
        *first = first.wrapping_add(to_add.wrapping_sub(added)).max(0);
    }
    sizes
}

/// Upstream counterpart: `integer.RoundToInt32`.
fn round_half_away_from_zero(value: f64) -> i32 {
    // Not `f64::round`, which differs from this in the last bit below one half.
    let shifted = if value < 0.0 { value - 0.5 } else { value + 0.5 };
    #[expect(clippy::cast_possible_truncation, reason = "truncation is what is meant")]
    let truncated = shifted as i32;
    truncated
}

#[cfg(test)]
mod tests;
