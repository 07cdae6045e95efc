//! Claims objects of a custom resource.
//!
//! `cargo run -p kcm-controller-ref-manager --example claim`

use std::{borrow::Cow, error::Error, sync::Arc};

use async_trait::async_trait;
use kcm_api::{ApiError, LabelSelector, Selector};
use kcm_controller_ref_manager::{LiveOwner, OwnerControl, OwnerIdentity, OwnerPatch, claim};
use kcm_meta::Object;
use kube_core::Resource;
use kube_derive::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Debug, Clone, Deserialize, Serialize)]
#[kube(
    group = "example.org",
    version = "v1",
    kind = "MachineSet",
    namespaced,
    schema = "disabled",
    crates(kube_core = "::kube_core")
)]
struct MachineSetSpec {
    selector: LabelSelector,
}

#[derive(CustomResource, Debug, Clone, Deserialize, Serialize)]
#[kube(
    group = "example.org",
    version = "v1",
    kind = "Machine",
    namespaced,
    schema = "disabled",
    crates(kube_core = "::kube_core")
)]
struct MachineSpec {}

/// Fake API server that prints requests and accepts all of them.
struct Server {
    set: MachineSet,
}

#[async_trait]
impl OwnerControl<Machine> for Server {
    fn kind(&self) -> Cow<'static, str> {
        Machine::kind(&())
    }

    async fn live_owner(&self) -> Result<LiveOwner, ApiError> {
        println!("GET the owner");
        Ok(LiveOwner::of(&self.set))
    }

    async fn patch(&self, machine: &Machine, patch: &OwnerPatch) -> Result<Machine, ApiError> {
        let references = machine.metadata.owner_references.as_deref().unwrap_or_default();
        let body = patch.merge(machine.resource_version_str(), references);
        if let Some(body) = body.map_err(|error| ApiError::InvalidRequest(error.to_string().into()))? {
            println!("PATCH {} {body}", machine.key());
        }
        Ok(machine.clone())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let set: MachineSet = serde_json::from_value(json!({
        "apiVersion": "example.org/v1", "kind": "MachineSet",
        "metadata": {"namespace": "default", "name": "workers", "uid": "set-1"},
        "spec": {"selector": {"matchLabels": {"role": "worker"}}},
    }))?;
    let orphan: Machine = serde_json::from_value(json!({
        "apiVersion": "example.org/v1", "kind": "Machine",
        "metadata": {
            "namespace": "default", "name": "worker-1", "uid": "m-1", "resourceVersion": "7",
            "labels": {"role": "worker"},
        },
        "spec": {},
    }))?;

    let owner = OwnerIdentity::of(&set);
    let selector = Selector::new(Some(&set.spec.selector))?;
    let claimed = claim(&owner, &selector, [Arc::new(orphan)], &Server { set }).await.into_result()?;
    println!("{} owns {} machine(s)", owner.key(), claimed.len());
    Ok(())
}
