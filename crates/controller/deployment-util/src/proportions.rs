//! Proportional scaling: distributes a change of the Deployment's size over its active ReplicaSets during a rollout.

use std::{num::Wrapping, sync::Arc};

use kcm_api::{Deployment, ReplicaSet};

use crate::{annotations, fenceposts::max_total_replicas};

/// Returns the new size of each of `replica_sets`, which together change by `replicas_to_add` (negative to scale down).
///
/// Each ReplicaSet, in this order, changes by
///
/// ```text
/// fraction = round(size * (replicas + maxSurge) / old_max_replicas) - size
/// ```
///
/// limited to what remains of `replicas_to_add`. `old_max_replicas` is the annotation
/// [`MAX_REPLICAS`](annotations::MAX_REPLICAS), written when the ReplicaSet was last scaled. If it is missing, 0 or
/// invalid, the Deployment's `status.replicas` is used. The first ReplicaSet, by the caller's order the largest, also
/// receives what rounding leaves over. No size becomes negative by that.
///
/// Example: a Deployment with `maxSurge: 3` is scaled from 10 to 30 replicas. Its ReplicaSets have 8 and 5 pods, and both
/// have the annotation 13. 33 pods are permitted, so 20 are added:
///
/// * first: `round(8 * 33 / 13) - 8 = 20 - 8 = 12`
/// * second: `round(5 * 33 / 13) - 5 = 13 - 5 = 8`
///
/// The sizes are 20 and 13, and nothing is left over.
///
/// Upstream counterpart: the second half of `scale`.
pub fn proportional_sizes<'a>(
    deployment: &Deployment,
    replica_sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>,
    replicas_to_add: i32,
) -> Vec<i32> {
    let replicas_to_add = Wrapping(replicas_to_add);
    let mut replicas_added = Wrapping(0);
    let mut sizes: Vec<_> = replica_sets
        .into_iter()
        .map(|set| {
            let proportion = replica_set_proportion(set, deployment, replicas_to_add, replicas_added);
            replicas_added += proportion;
            Wrapping(set.replicas()) + proportion
        })
        .collect();
    if replicas_to_add.0 != 0
        && let Some(first) = sizes.first_mut()
    {
        let leftover = replicas_to_add - replicas_added;
        *first = (*first + leftover).max(Wrapping(0));
    }
    sizes.into_iter().map(|size| size.0).collect()
}

/// Returns the change of `replica_set`, limited to what `replicas_added` leaves of `replicas_to_add`.
///
/// Upstream counterpart: `GetReplicaSetProportion`.
fn replica_set_proportion(
    replica_set: &ReplicaSet,
    deployment: &Deployment,
    replicas_to_add: Wrapping<i32>,
    replicas_added: Wrapping<i32>,
) -> Wrapping<i32> {
    if replica_set.replicas() == 0 || replicas_to_add.0 == 0 || replicas_to_add == replicas_added {
        return Wrapping(0);
    }
    let fraction = replica_set_fraction(replica_set, deployment);
    let allowed = replicas_to_add - replicas_added;
    if replicas_to_add.0 > 0 { fraction.min(allowed) } else { fraction.max(allowed) }
}

/// Returns the change of `replica_set` that keeps its share of the pods.
///
/// Upstream counterpart: `getReplicaSetFraction`.
fn replica_set_fraction(replica_set: &ReplicaSet, deployment: &Deployment) -> Wrapping<i32> {
    let size = Wrapping(replica_set.replicas());
    if deployment.replicas() == 0 {
        return -size;
    }
    let old_max_replicas = match annotations::max_replicas(replica_set) {
        Err(_) | Ok(None | Some(0)) => deployment.status.replicas,
        Ok(Some(max_replicas)) => max_replicas,
    };
    if old_max_replicas == 0 {
        return Wrapping(0);
    }
    // The product wraps as an `i32` before the division, as upstream (US-4.8b).
    let product = size * Wrapping(max_total_replicas(deployment));
    Wrapping(round_to_i32(f64::from(product.0) / f64::from(old_max_replicas))) - size
}

/// Rounds to the nearest integer, and halves away from zero.
///
/// Upstream counterpart: `integer.RoundToInt32`.
fn round_to_i32(value: f64) -> i32 {
    // Differs from `f64::round` for the largest number below 0.5.
    let shifted = if value < 0.0 { value - 0.5 } else { value + 0.5 };
    #[expect(clippy::cast_possible_truncation, reason = "upstream truncates, too")]
    let truncated = shifted as i32;
    truncated
}

#[cfg(test)]
mod tests;
