//! Operator for the custom resource `ConfigCopy`, with kube-rs alone: a ConfigMap in several namespaces.
//!
//! Owner references do not cross namespaces, so a finalizer deletes the ConfigMaps.

use std::{collections::BTreeMap, future::ready, sync::Arc, time::Duration};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use kube_core::ResourceExt;
use kube_derive::CustomResource;
use kube_runtime::{
    Controller,
    controller::Action,
    finalizer::{Event, finalizer},
    reflector::ObjectRef,
    watcher,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use thiserror::Error;

/// Finalizer of a ConfigCopy.
pub const FINALIZER: &str = "example.org/config-copies";

/// Label of the ConfigMaps. Its value is `NAMESPACE.NAME` of their ConfigCopy.
pub const LABEL: &str = "example.org/copy-of";

/// A ConfigMap in several namespaces.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.org",
    version = "v1",
    kind = "ConfigCopy",
    plural = "configcopies",
    namespaced,
    status = "ConfigCopyStatus",
    doc = "A ConfigMap in several namespaces.",
    crates(kube_core = "::kube_core")
)]
pub struct ConfigCopySpec {
    /// Data of the ConfigMaps.
    pub data: BTreeMap<String, String>,
    /// Namespaces of the ConfigMaps.
    pub namespaces: Vec<String>,
}

/// Observed state of a ConfigCopy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigCopyStatus {
    /// Generation of the specification that this status is for.
    pub observed_generation: Option<i64>,
    /// Number of ConfigMaps.
    pub copies: usize,
}

/// Error of a reconciliation.
#[derive(Debug, Error)]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] kube_client::Error),
    /// The finalizer or what depends on it failed.
    #[error(transparent)]
    Finalizer(#[from] Box<kube_runtime::finalizer::Error<Self>>),
}

/// Runs the operator.
pub async fn run(client: Client) {
    let config_maps = watcher::Config::default().labels(LABEL);
    Controller::new(Api::<ConfigCopy>::all(client.clone()), watcher::Config::default())
        .watches(Api::<ConfigMap>::all(client.clone()), config_maps, |copy| owner(&copy))
        .run(reconcile, retry, Arc::new(client))
        .for_each(|_| ready(()))
        .await;
}

/// ConfigCopy of a ConfigMap.
pub fn owner(config_map: &ConfigMap) -> Option<ObjectRef<ConfigCopy>> {
    let (namespace, name) = config_map.labels().get(LABEL)?.split_once('.')?;
    Some(ObjectRef::new(name).within(namespace))
}

/// Retries a reconciliation after 5 s.
pub fn retry<E>(_: Arc<ConfigCopy>, _: &E, _: Arc<Client>) -> Action {
    Action::requeue(Duration::from_secs(5))
}

/// Reconciles a ConfigCopy.
///
/// # Errors
///
/// If a request fails.
pub async fn reconcile(copy: Arc<ConfigCopy>, client: Arc<Client>) -> Result<Action, Error> {
    let api: Api<ConfigCopy> = Api::namespaced((*client).clone(), &copy.namespace().unwrap_or_default());
    let reconciled = finalizer(&api, FINALIZER, copy, |event| async {
        match event {
            Event::Apply(copy) => {
                write_copies(&client, &copy).await?;
                delete_copies(&client, &copy, &copy.spec.namespaces).await?;
                write_status(&client, &copy).await?;
            }
            Event::Cleanup(copy) => delete_copies(&client, &copy, &[]).await?,
        }
        Ok(Action::await_change())
    });
    Ok(reconciled.await.map_err(Box::new)?)
}

/// Writes the ConfigMaps.
///
/// # Errors
///
/// If a request fails.
pub async fn write_copies(client: &Client, copy: &ConfigCopy) -> Result<(), Error> {
    let (name, params) = (copy.name_any(), PatchParams::apply("config-copies").force());
    for namespace in &copy.spec.namespaces {
        let config_map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {LABEL: label(copy)}},
            "data": copy.spec.data,
        });
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        api.patch(&name, &params, &Patch::Apply(config_map)).await?;
    }
    Ok(())
}

/// Deletes the ConfigMaps in other namespaces than `kept`.
///
/// # Errors
///
/// If a request fails.
pub async fn delete_copies(client: &Client, copy: &ConfigCopy, kept: &[String]) -> Result<(), Error> {
    let selector = ListParams::default().labels(&format!("{LABEL}={}", label(copy)));
    for config_map in Api::<ConfigMap>::all(client.clone()).list(&selector).await? {
        let namespace = config_map.namespace().unwrap_or_default();
        if kept.contains(&namespace) {
            continue;
        }
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        match api.delete(&config_map.name_any(), &DeleteParams::default()).await {
            Err(kube_client::Error::Api(status)) if status.code == 404 => {}
            result => drop(result?),
        }
    }
    Ok(())
}

/// Writes the status, if it changes.
///
/// # Errors
///
/// If the request fails.
pub async fn write_status(client: &Client, copy: &ConfigCopy) -> Result<(), Error> {
    let status = ConfigCopyStatus {
        observed_generation: copy.metadata.generation,
        copies: copy.spec.namespaces.len(),
    };
    if copy.status.as_ref() != Some(&status) {
        let api: Api<ConfigCopy> = Api::namespaced(client.clone(), &copy.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(&copy.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

fn label(copy: &ConfigCopy) -> String {
    format!("{}.{}", copy.namespace().unwrap_or_default(), copy.name_any())
}
