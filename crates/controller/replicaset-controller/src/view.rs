use std::{collections::HashSet, sync::Arc};

use kcm_api::{Pod, ReplicaSet, Selector};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::{filters, index};
use kcm_informer::Store;
use tracing::{debug, trace};

use crate::KindConfig;

/// What a sync sees: all that a [`Plan`](crate::Plan) is made from, apart from the time.
#[derive(Debug, Clone)]
pub struct View {
    /// The owner, as cached.
    pub replica_set: Arc<ReplicaSet>,
    /// Its pods that are neither finished nor terminating.
    pub active: Vec<Arc<Pod>>,
    /// How many of its pods are terminating; none where the status does not tell.
    pub terminating: Option<usize>,
    /// Why no pods may be created or deleted now, if so.
    pub hold: Option<Hold>,
    /// The most pods to create or delete in one sync.
    pub burst_replicas: usize,
    /// If `false`, deletion costs of pods are ignored (feature gate `PodDeletionCost`).
    pub pod_deletion_cost: bool,
    /// Pods that are to be spread together with these over the nodes, whoever owns them. Looked up only when a
    /// choice depends on them.
    pub related: Vec<Arc<Pod>>,
}

/// Why a sync creates and deletes nothing, and only keeps the status up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Not all earlier creations and deletions have been seen.
    ExpectationsPending,
    /// The owner is being deleted.
    BeingDeleted,
}

impl View {
    /// By how many the active pods are too many; negative when some are missing.
    pub fn difference(&self) -> i64 {
        // No machine holds more pods than an i64 counts.
        i64::try_from(self.active.len()).unwrap_or(i64::MAX) - i64::from(self.replica_set.replicas())
    }

    /// How many pods must go now, and whether that leaves a choice.
    pub(crate) fn surplus(&self) -> (usize, bool) {
        let surplus = usize::try_from(self.difference()).unwrap_or(0);
        // A negative size, which no server lets through, would ask for more than there are.
        let surplus = surplus.min(self.burst_replicas).min(self.active.len());
        (surplus, surplus > 0 && surplus < self.active.len())
    }
}

/// The pods that might be an owner's, before they are claimed.
pub(crate) struct Candidates {
    /// Neither finished nor terminating.
    pub(crate) active: Vec<Arc<Pod>>,
    /// How many terminating pods the owner manages that its selector matches.
    pub(crate) terminating: usize,
}

impl Candidates {
    /// The pods that `owner` manages and the orphans of its namespace.
    ///
    /// Upstream counterpart: `FilterPodsByOwner`, `FilterActivePods`, `FilterTerminatingPods` and
    /// `FilterClaimedPods`.
    pub(crate) fn gather(pods: &Store<Pod>, owner: &OwnerIdentity, selector: &Selector) -> Self {
        // From one state of the store: a pod that is adopted or released at the same time is in one of the two.
        let (owned, orphans): (Vec<_>, Vec<_>) = {
            let pods = pods.read();
            (
                index::pods_of(&pods, owner).cloned().collect(),
                index::orphan_pods(&pods, &owner.namespace).cloned().collect(),
            )
        };
        let claimed = owned.iter().filter(|pod| selector.matches(&pod.labels));
        let terminating = filters::count_terminating_pods(claimed);
        Self { active: filters::active_pods(owned.iter().chain(&orphans)), terminating }
    }
}

/// The pods that any ReplicaSet with the same owner selects, `replica_set` among them.
///
/// Upstream counterpart: `getIndirectlyRelatedPods`.
///
/// DEVIATION: found by owner and template hash; upstream lists the pods of the namespace for each ReplicaSet.
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
        // DEVIATION: an error in upstream's log. Most ReplicaSets that people make by hand are like that.
        debug!("{} has no controller", kind_config.kind);
        return Vec::new();
    };
    let siblings: Vec<_> = index::replica_sets_of(&replica_sets.read(), &controller.uid).cloned().collect();
    let mut seen = HashSet::new();
    let mut related = Vec::new();
    for sibling in &siblings {
        // One that cannot be parsed selects nothing.
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
