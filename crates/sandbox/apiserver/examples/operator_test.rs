//! Test of an operator against an API server in the same process: no socket, no installation, no waiting, and a clock
//! controlled by the test.
//!
//! The operator maintains a ConfigMap with the names of all Deployments with the label `listed`. It is written for
//! `kube_client`, as for a real cluster.
//!
//! ```text
//! cargo run -p kcm-apiserver --example operator_test
//! ```

use std::{collections::BTreeSet, error::Error, pin::pin};

use futures_util::TryStreamExt;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kcm_apiserver::{
    ApiServer, ApiServerConfig, DeleteOptions, Resource, WatchEvent, WatchStart, WriteOptions,
};
use kube_client::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use kube_runtime::watcher::{Config as WatcherConfig, Event, watcher};
use serde_json::json;

/// The operator.
async fn keep_list(client: Client) -> Result<(), Box<dyn Error + Send + Sync>> {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let lists: Api<ConfigMap> = Api::default_namespaced(client);
    let mut names: BTreeSet<String> = BTreeSet::new();
    let mut events = pin!(watcher(deployments, WatcherConfig::default().labels("listed")));
    while let Some(event) = events.try_next().await? {
        match event {
            Event::Init => names.clear(),
            Event::InitApply(deployment) | Event::Apply(deployment) => {
                names.insert(deployment.name_any());
            }
            Event::Delete(deployment) => {
                names.remove(&deployment.name_any());
            }
            Event::InitDone => {}
        }
        let text = names.iter().cloned().collect::<Vec<_>>().join(" ");
        let patch = Patch::Merge(json!({"data": {"deployments": text}}));
        lists.patch("list", &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let server = ApiServer::new(ApiServerConfig::default());
    let options = WriteOptions::default();
    let list = json!({"metadata": {"name": "list"}});
    server.create(Resource::CONFIG_MAPS, "default", list, &options)?;

    // The operator sends HTTP requests to a service instead of a socket.
    let operator = tokio::spawn(keep_list(Client::new(server.service(), "default")));
    // The test uses the Rust methods.
    let mut watch = server.watch(Resource::CONFIG_MAPS, Some("default"), WatchStart::Now);
    for (name, labels) in [("web", json!({"app": "web", "listed": ""})), ("db", json!({"app": "db"}))] {
        let deployment = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
                },
            },
        });
        server.create(Resource::DEPLOYMENTS, "default", deployment, &options)?;
    }

    let mut wanted = ["web", ""].into_iter().peekable();
    while let Some(expected) = wanted.peek() {
        let WatchEvent::Modified(list) = watch.next().await? else { continue };
        let names = list.value()["data"]["deployments"].as_str().unwrap_or_default();
        println!("the list is now {names:?}");
        if names == *expected {
            if !names.is_empty() {
                server.delete(Resource::DEPLOYMENTS, "default", "web", &DeleteOptions::default())?;
            }
            wanted.next();
        }
    }
    operator.abort();
    println!("the operator keeps its list");
    Ok(())
}
