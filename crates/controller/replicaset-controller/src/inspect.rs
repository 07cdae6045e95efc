//! Read-only view of one ReplicaSet as the controller sees it, for debugging.

use std::sync::Arc;

use kcm_api::{ObjectKey, Selector};
use kcm_controller_ref_manager::{Claim, OwnerIdentity, classify};
use kcm_expectations::NotReady;
use kcm_runtime::KeyState;

use crate::{
    View,
    lookup::Candidates,
    plan::{Plan, plan},
    sync::Syncer,
};

/// State of one ReplicaSet in the controller.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// State of its key.
    pub key: KeyState,
    /// Number of creations and deletions of pods that the cache does not contain yet. `None` if there are none.
    pub expectations: Option<(i64, i64)>,
    /// Names of pods with an unconfirmed creation.
    pub pending_creates: Vec<Arc<str>>,
    /// Cache that does not contain a write of the controller yet, for which the next sync waits.
    pub not_ready: Option<NotReady>,
    /// Objects from which the next sync is planned. `None` if the cache does not contain the ReplicaSet, or its selector
    /// is invalid.
    pub view: Option<View>,
    /// Number of pods that the next sync adopts or releases.
    pub claims: usize,
    /// Plan of the next sync. Pods that must be adopted are not part of it.
    pub plan: Option<Plan>,
}

impl Syncer {
    /// Inspects the ReplicaSet at `key`, without writes.
    pub(crate) fn inspect(&self, key: &ObjectKey, state: KeyState) -> Inspection {
        let expectations = &self.executor.pods.own_writes.expectations;
        let mut inspection = Inspection {
            key: state,
            expectations: expectations.get(key).filter(|(add, del)| *add > 0 || *del > 0),
            pending_creates: Vec::new(),
            not_ready: self.executor.pods.own_writes.versions.not_ready(key),
            view: None,
            claims: 0,
            plan: None,
        };
        let Some(replica_set) = self.replica_sets.get(key) else { return inspection };
        let owner =
            OwnerIdentity::new(self.kind_config.api_version, self.kind_config.kind, &replica_set.metadata);
        let pending = self.executor.pods.own_writes.names.pending(key, &owner.uid);
        inspection.pending_creates = pending.into_iter().map(|(name, _)| name).collect();
        let Ok(selector) = Selector::new(replica_set.spec.selector.as_ref()) else { return inspection };
        let candidates = Candidates::find(&self.executor.pods.cache, &owner, &selector);
        let mut active = Vec::new();
        for pod in candidates.active {
            match classify(&owner, &selector, &*pod) {
                Claim::Owned => active.push(pod),
                Claim::NotOurs | Claim::Ignore(_) => {}
                Claim::Adopt | Claim::Release => inspection.claims += 1,
            }
        }
        let view = self.view(replica_set, active, candidates.terminating, expectations.satisfied(key));
        inspection.plan = Some(plan(&view, self.clock.now()));
        inspection.view = Some(view);
        inspection
    }
}
