//! New and old ReplicaSets of a Deployment, and their totals.

use std::{num::Wrapping, sync::Arc};

use kcm_api::{Deployment, LabelSelector, ReplicaSet, Selector};

use crate::{annotations::DESIRED_REPLICAS, sort};

/// The ReplicaSets of one Deployment, split into the new one and the old ones.
#[derive(Debug, Clone, Default)]
pub struct ReplicaSetSplit {
    /// Oldest ReplicaSet whose template equals the Deployment's, apart from the hash label.
    pub new: Option<Arc<ReplicaSet>>,
    /// All other ReplicaSets, oldest first, including those without pods.
    pub old: Vec<Arc<ReplicaSet>>,
}

impl ReplicaSetSplit {
    /// Splits `replica_sets`.
    ///
    /// The hash in a ReplicaSet's name is not compared: it differs between versions of Kubernetes (US-4.8).
    ///
    /// Upstream counterparts: `FindNewReplicaSet` and `FindOldReplicaSets`.
    pub fn find(deployment: &Deployment, replica_sets: &[Arc<ReplicaSet>]) -> Self {
        let mut old = replica_sets.to_vec();
        sort::by_creation(&mut old);
        let new = old.iter().position(|set| set.spec.template.equal_ignore_hash(&deployment.spec.template));
        let new = new.map(|position| old.remove(position));
        Self { new, old }
    }

    /// Returns the old ReplicaSets in their order, and then the new one.
    pub fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> + Clone {
        self.old.iter().chain(&self.new)
    }

    /// Returns the old ReplicaSets that are [active](is_active), oldest first.
    ///
    /// Upstream counterpart: `FilterActiveReplicaSets`.
    pub fn active_old(&self) -> impl DoubleEndedIterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().filter(|set| is_active(set))
    }
}

/// Returns `true` if `spec.replicas` of the ReplicaSet is positive.
pub fn is_active(replica_set: &ReplicaSet) -> bool {
    replica_set.replicas() > 0
}

/// Returns the only active ReplicaSet. If none is active, returns the new one, or else the newest old one.
///
/// Returns `None` if several are active or if there are none.
///
/// Upstream counterpart: `FindActiveOrLatest`.
pub fn find_active_or_latest(replica_sets: &ReplicaSetSplit) -> Option<&Arc<ReplicaSet>> {
    let mut active = replica_sets.all().filter(|set| is_active(set));
    match (active.next(), active.next()) {
        (Some(only), None) => Some(only),
        (Some(_), Some(_)) => None,
        (None, _) => replica_sets
            .new
            .as_ref()
            .or_else(|| replica_sets.old.iter().max_by(|a, b| sort::creation_order(a, b))),
    }
}

/// Returns `true` if the new ReplicaSet was scaled to the size of the Deployment and all its pods are available.
///
/// The annotation [`DESIRED_REPLICAS`] must equal the size, too. Otherwise the ReplicaSet was last scaled for another
/// size of the Deployment.
///
/// Upstream counterpart: `IsSaturated`.
pub fn is_saturated(deployment: &Deployment, new_rs: Option<&ReplicaSet>) -> bool {
    let Some(new_rs) = new_rs else { return false };
    let annotation =
        new_rs.metadata.annotations.get(DESIRED_REPLICAS).and_then(|text| text.parse::<i64>().ok());
    #[expect(clippy::cast_possible_truncation, reason = "upstream converts an int to an int32")]
    let desired_replicas = annotation.map(|number| number as i32);
    let replicas = deployment.replicas();
    new_rs.replicas() == replicas
        && desired_replicas == Some(replicas)
        && new_rs.status.available_replicas == replicas
}

/// Returns the sum of `spec.replicas`.
///
/// Upstream counterpart: `GetReplicaCountForReplicaSets`.
pub fn replica_count<'a>(replica_sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>) -> i32 {
    sum(replica_sets, ReplicaSet::replicas)
}

/// Returns the sum of `status.replicas`.
///
/// Upstream counterpart: `GetActualReplicaCountForReplicaSets`.
pub fn actual_replica_count<'a>(replica_sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>) -> i32 {
    sum(replica_sets, |set| set.status.replicas)
}

/// Returns the sum of `status.readyReplicas`.
///
/// Upstream counterpart: `GetReadyReplicaCountForReplicaSets`.
pub fn ready_replica_count<'a>(replica_sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>) -> i32 {
    sum(replica_sets, |set| set.status.ready_replicas)
}

/// Returns the sum of `status.availableReplicas`.
///
/// Upstream counterpart: `GetAvailableReplicaCountForReplicaSets`.
pub fn available_replica_count<'a>(replica_sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>) -> i32 {
    sum(replica_sets, |set| set.status.available_replicas)
}

/// Returns the sum of `status.terminatingReplicas`, or `None` if an observed ReplicaSet has no such field.
///
/// A ReplicaSet that its controller has not observed yet counts as 0.
///
/// Upstream counterpart: `GetTerminatingReplicaCountForReplicaSets`.
pub fn terminating_replica_count<'a>(
    replica_sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>,
) -> Option<i32> {
    let counts = replica_sets.into_iter().map(|set| match set.status.terminating_replicas {
        Some(count) => Some(Wrapping(count)),
        None if set.status.observed_generation == 0 => Some(Wrapping(0)),
        None => None,
    });
    counts.sum::<Option<Wrapping<i32>>>().map(|total| total.0)
}

fn sum<'a>(
    replica_sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>,
    count: impl Fn(&ReplicaSet) -> i32,
) -> i32 {
    replica_sets.into_iter().map(|set| Wrapping(count(set))).sum::<Wrapping<i32>>().0
}

/// Returns `true` if `selector` is set and empty, so that it matches every object.
///
/// A missing selector matches none. Upstream compares with the zero `LabelSelector`.
pub fn selects_everything(selector: Option<&LabelSelector>) -> bool {
    selector.is_some_and(|s| s.match_labels.is_empty() && s.match_expressions.is_empty())
}

/// Returns the Deployments whose selector matches the labels of `replica_set`.
///
/// A ReplicaSet without labels is matched by none. An empty or invalid selector matches none.
///
/// Upstream counterpart: `GetDeploymentsForReplicaSet`, which returns an error if there are none.
pub fn deployments_for_replica_set<'a>(
    deployments: impl IntoIterator<Item = &'a Arc<Deployment>>,
    replica_set: &ReplicaSet,
) -> Vec<&'a Arc<Deployment>> {
    let labels = &replica_set.metadata.labels;
    if labels.is_empty() {
        return Vec::new();
    }
    let matches = |deployment: &&Arc<Deployment>| {
        deployment.metadata.namespace == replica_set.metadata.namespace
            && Selector::new(deployment.spec.selector.as_ref())
                .is_ok_and(|selector| !selector.is_empty() && selector.matches(labels))
    };
    deployments.into_iter().filter(matches).collect()
}

#[cfg(test)]
mod tests;
