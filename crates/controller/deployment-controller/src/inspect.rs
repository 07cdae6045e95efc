//! Read-only view of one Deployment as the controller sees it, for debugging.

use std::{collections::BTreeSet, sync::Arc};

use kcm_api::{ObjectKey, Selector};
use kcm_controller_ref_manager::{Claim, OwnerIdentity, classify};
use kcm_deployment_util::{fenceposts::RECREATE, replica_sets::selects_everything};
use kcm_runtime::KeyState;

use crate::{
    lookup::claimable,
    plan::{Plan, plan_assuming_success},
    sync::Syncer,
    view::View,
};

/// State of one Deployment in the controller.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// State of its key.
    pub key: KeyState,
    /// Objects from which the next sync is planned. `None` if the cache does not contain the Deployment.
    pub view: Option<View>,
    /// Number of ReplicaSets that the next sync adopts or releases.
    pub claims: usize,
    /// Resource version of the cached Deployment, if the view contains a newer one that this controller has written.
    pub cached_version: Option<Arc<str>>,
    /// Plan of the next sync, if all writes succeed. ReplicaSets that must be adopted are not part of it.
    pub plan: Option<Plan>,
}

impl Syncer {
    /// Inspects the Deployment at `key`, without writes.
    pub(crate) fn inspect(&self, key: &ObjectKey, state: KeyState) -> Inspection {
        let mut inspection =
            Inspection { key: state, view: None, claims: 0, cached_version: None, plan: None };
        let Some(cached) = self.deployments.get(key) else { return inspection };
        let deployment = self.executor.own_writes.objects.newest(key, Arc::clone(&cached));
        let (cached_version, version) =
            (&cached.metadata.resource_version, &deployment.metadata.resource_version);
        if cached_version != version {
            inspection.cached_version = Some(Arc::from(&**cached_version));
        }
        let mut view = View {
            deployment,
            replica_sets: Vec::new(),
            running: BTreeSet::new(),
            unobserved_scale_downs: BTreeSet::new(),
            terminating_replicas: self.terminating_replicas,
            coalesce_status_writes: self.coalesce_status_writes,
        };
        let selector = view.deployment.spec.selector.as_ref();
        if let (false, Ok(selector)) = (selects_everything(selector), Selector::new(selector)) {
            let owner = OwnerIdentity::from(&*view.deployment);
            let candidates = claimable(&self.executor.own_writes.objects, &owner, &self.replica_sets.read());
            for set in candidates {
                match classify(&owner, &selector, &*set) {
                    Claim::Owned => view.replica_sets.push(set),
                    Claim::NotOurs | Claim::Ignore(_) => {}
                    Claim::Adopt | Claim::Release => inspection.claims += 1,
                }
            }
        }
        if view.deployment.spec.strategy.type_ == RECREATE {
            self.add_old_pods(&mut view);
        }
        inspection.plan = Some(plan_assuming_success(&view, self.clock.now()));
        inspection.view = Some(view);
        inspection
    }
}
