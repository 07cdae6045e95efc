//! Lookups of pods in the caches.

use std::{collections::HashSet, sync::Arc};

use kcm_api::{Pod, ReplicaSet, Selector};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::{filters, index};
use kcm_informer::Store;
use tracing::{debug, trace};

use crate::KindConfig;

/// Pods that an owner may claim.
pub(crate) struct Candidates {
    /// Pods that are neither finished nor terminating.
    pub(crate) active: Vec<Arc<Pod>>,
    /// Number of terminating pods that the owner manages and its selector matches.
    pub(crate) terminating: usize,
}

impl Candidates {
    /// Finds the pods that `owner` manages, and the orphans of its namespace.
    ///
    /// Upstream counterpart: `FilterPodsByOwner`, `FilterActivePods`, `FilterTerminatingPods` and
    /// `FilterClaimedPods`.
    pub(crate) fn find(pods: &Store<Pod>, owner: &OwnerIdentity, selector: &Selector) -> Self {
        // Both lookups read one state of the store. A pod that is adopted or released meanwhile is in one of the two.
        let pods = pods.read();
        let owned = || index::pods_of(&pods, owner);
        let terminating = owned().filter(|pod| pod.is_terminating() && selector.matches(&pod.labels));
        Self {
            terminating: filters::count_terminating_pods(terminating),
            active: filters::active_pods(owned().chain(index::orphan_pods(&pods, &owner.namespace))),
        }
    }
}

/// Finds the pods of all ReplicaSets with the same owner as `replica_set`, which is one of them.
///
/// Upstream counterpart: `getIndirectlyRelatedPods`.
///
/// DEVIATION: pods are found by owner and template hash. Upstream lists the pods of the namespace for each ReplicaSet.
pub(crate) fn related_pods(
    kind_config: &KindConfig,
    replica_set: &ReplicaSet,
    replica_sets: &Store<ReplicaSet>,
    pods: &Store<Pod>,
) -> Vec<Arc<Pod>> {
    if !kind_config.ranks_by_related_pods {
        return Vec::new();
    }
    let Some(controller) = replica_set.metadata.controller() else {
        // DEVIATION: upstream logs an error, though most ReplicaSets that users create have no controller.
        debug!("{} has no controller", kind_config.kind);
        return Vec::new();
    };
    let siblings: Vec<_> = index::replica_sets_of(&replica_sets.read(), &controller.uid).cloned().collect();
    let mut seen = HashSet::new();
    let mut related = Vec::new();
    for sibling in &siblings {
        // A selector that cannot be parsed matches nothing.
        let Ok(selector) = Selector::new(sibling.spec.selector.as_ref()) else { continue };
        for pod in index::pods_matching(pods, &sibling.metadata.namespace, &selector) {
            if seen.insert(Arc::clone(&pod.uid)) {
                related.push(pod);
            }
        }
    }
    trace!(pods = related.len(), replica_sets = siblings.len(), "Found related pods");
    related
}
