//! Which ReplicaSet of a Deployment is the new one, which are old, and what they add up to.

use std::sync::Arc;

use kcm_api::{Deployment, LabelSelector, ReplicaSet, Selector};

use crate::{annotations::DESIRED_REPLICAS, sort};

/// The ReplicaSets of one Deployment by role.
#[derive(Debug, Clone, Default)]
pub struct Roles {
    /// The one that has the Deployment's template, the hash label aside; of several, the oldest.
    pub new: Option<Arc<ReplicaSet>>,
    /// All others, the oldest first, also those without pods.
    pub old: Vec<Arc<ReplicaSet>>,
}

impl Roles {
    /// Tells which of `replica_sets` is the new one.
    ///
    /// Upstream counterparts: `FindNewReplicaSet` and `FindOldReplicaSets`. The hash in the name takes no part
    /// in it: it differs between versions of Kubernetes, the template does not (US-4.8).
    pub fn find(deployment: &Deployment, replica_sets: &[Arc<ReplicaSet>]) -> Self {
        let mut old = replica_sets.to_vec();
        sort::by_creation(&mut old);
        let new = old.iter().position(|set| set.spec.template.equal_ignore_hash(&deployment.spec.template));
        let new = new.map(|position| old.remove(position));
        Self { new, old }
    }

    /// The old ones in their order, then the new one.
    pub fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> + Clone {
        self.old.iter().chain(&self.new)
    }

    /// The same, to be looked at.
    pub fn iter(&self) -> impl Iterator<Item = &ReplicaSet> + Clone {
        self.all().map(|set| &**set)
    }
}

/// Whether a ReplicaSet is meant to have pods.
pub fn is_active(replica_set: &ReplicaSet) -> bool {
    replica_set.replicas() > 0
}

/// The only ReplicaSet that is meant to have pods; if none is, the new one, or else the newest of the old.
/// `None` when there are several, or none at all.
///
/// Upstream counterpart: `FindActiveOrLatest`.
pub fn find_active_or_latest(roles: &Roles) -> Option<&Arc<ReplicaSet>> {
    let mut active = roles.all().filter(|set| is_active(set));
    match (active.next(), active.next()) {
        (Some(only), None) => Some(only),
        (Some(_), Some(_)) => None,
        (None, _) => roles.new.as_ref().or_else(|| {
            // `max_by` would do, but of equals it takes the last: with names in play there are none.
            roles.old.iter().max_by(|a, b| sort::creation_order(a, b))
        }),
    }
}

/// Whether the new ReplicaSet has all the pods that the Deployment wants, available, and knows that it is all.
///
/// Upstream counterpart: `IsSaturated`. The number noted on the ReplicaSet counts too: without it, one that
/// was just scaled for another size would pass for complete.
pub fn is_saturated(deployment: &Deployment, new: Option<&ReplicaSet>) -> bool {
    let Some(new) = new else { return false };
    let desired = deployment.replicas();
    let noted = new.metadata.annotations.get(DESIRED_REPLICAS).and_then(|text| text.parse::<i64>().ok());
    #[expect(clippy::cast_possible_truncation, reason = "upstream narrows an int to an int32 too")]
    let noted = noted.map(|number| number as i32);
    new.replicas() == desired && noted == Some(desired) && new.status.available_replicas == desired
}

/// How many pods are asked for.
///
/// Upstream counterpart: `GetReplicaCountForReplicaSets`.
pub fn replica_count<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i32 {
    sum(sets, ReplicaSet::replicas)
}

/// How many pods there were when last counted.
///
/// Upstream counterpart: `GetActualReplicaCountForReplicaSets`.
pub fn actual_replica_count<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i32 {
    sum(sets, |set| set.status.replicas)
}

/// How many of them were ready.
///
/// Upstream counterpart: `GetReadyReplicaCountForReplicaSets`.
pub fn ready_replica_count<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i32 {
    sum(sets, |set| set.status.ready_replicas)
}

/// How many of them were available.
///
/// Upstream counterpart: `GetAvailableReplicaCountForReplicaSets`.
pub fn available_replica_count<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i32 {
    sum(sets, |set| set.status.available_replicas)
}

/// How many pods are on their way out; `None` when a ReplicaSet that has been looked at does not say.
///
/// Upstream counterpart: `GetTerminatingReplicaCountForReplicaSets`. One that nobody has looked at yet is
/// passed over: it has none.
pub fn terminating_replica_count<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> Option<i32> {
    sets.into_iter().try_fold(0_i32, |total, set| match set.status.terminating_replicas {
        Some(count) => Some(total.wrapping_add(count)),
        None if set.status.observed_generation == 0 => Some(total),
        None => None,
    })
}

fn sum<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>, count: impl Fn(&ReplicaSet) -> i32) -> i32 {
    sets.into_iter().fold(0, |total, set| total.wrapping_add(count(set)))
}

/// Whether a selector was given and asks for nothing, and so would take every pod there is.
///
/// Upstream compares with the zero `LabelSelector`; a missing selector is not the same, it takes none.
pub fn selects_everything(selector: Option<&LabelSelector>) -> bool {
    selector.is_some_and(|s| s.match_labels.is_empty() && s.match_expressions.is_empty())
}

/// Those of `deployments` that would take `replica_set`, going by its labels.
///
/// Upstream counterpart: `GetDeploymentsForReplicaSet`, where finding none is an error. A ReplicaSet without
/// labels is taken by none; a Deployment whose selector is empty or cannot be parsed takes none.
pub fn deployments_for_replica_set<'a>(
    deployments: impl IntoIterator<Item = &'a Arc<Deployment>>,
    replica_set: &ReplicaSet,
) -> Vec<&'a Arc<Deployment>> {
    let labels = &replica_set.metadata.labels;
    if labels.is_empty() {
        return Vec::new();
    }
    let takes = |deployment: &&Arc<Deployment>| {
        deployment.metadata.namespace == replica_set.metadata.namespace
            && Selector::new(deployment.spec.selector.as_ref())
                .is_ok_and(|selector| !selector.is_empty() && selector.matches(labels))
    };
    deployments.into_iter().filter(takes).collect()
}

#[cfg(test)]
mod tests;
