//! Parts of an environment.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Pod},
};
use kcm_apiserver::ApiServerConfig;
use kcm_client::{DeleteOptions, RateLimit};
use kcm_testing::{KubeletConfig, TestEnv};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config_map;

#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.org",
    version = "v1",
    kind = "Website",
    namespaced,
    crates(kube_core = "::kube_core")
)]
struct WebsiteSpec {
    host: String,
}

fn website() -> Website {
    Website::new("web", WebsiteSpec { host: "shop.example.org".to_owned() })
}

fn pod(name: &str, owner: Option<&ConfigMap>) -> Pod {
    let owner = owner.map(|owner| {
        let (name, uid) = (owner.metadata.name.clone().unwrap(), owner.metadata.uid.clone().unwrap());
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
    });
    let owners: Vec<Value> = owner.into_iter().collect();
    let spec = json!({"containers": [{"name": "main", "image": "nginx:1"}]});
    serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": owners}, "spec": spec}))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn objects_are_in_the_first_namespace() {
    let env = TestEnv::builder().crd::<Website>().namespace("shop").namespace("farm").start().await;
    let created = env.api::<Website>().create(&website()).await.unwrap();
    assert_eq!(created.metadata.namespace.as_deref(), Some("shop"));
    assert_eq!(env.api::<Namespace>().get("farm").await.unwrap().metadata.name.as_deref(), Some("farm"));
    let api = kube_client::Api::<Website>::default_namespaced(env.kube_client());
    assert_eq!(api.get("web").await.unwrap().metadata, created.metadata);
}

#[tokio::test(start_paused = true)]
async fn definition_from_a_value() {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "websites.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": "websites", "kind": "Website"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    let env = TestEnv::builder().crd_value(definition).start().await;
    let created = env.api::<Website>().create(&website()).await.unwrap();
    assert_eq!(created.metadata.namespace.as_deref(), Some("default"));
}

#[tokio::test(start_paused = true)]
async fn nodes_run_pods_and_collect_garbage() {
    let kubelet = KubeletConfig { pod_ready_delay: Duration::from_secs(5), ..KubeletConfig::default() };
    let env = TestEnv::builder().nodes(2).kubelet(kubelet).start().await;
    let owner = env.api::<ConfigMap>().create(&config_map("owner")).await.unwrap();
    let pods = env.api::<Pod>();
    pods.create(&pod("web", Some(&owner))).await.unwrap();
    let runs = async || pods.get("web").await.unwrap().status.unwrap().phase.as_deref() == Some("Running");
    env.advance(Duration::from_secs(4)).await;
    assert!(!runs().await);
    env.eventually("the pod runs", runs).await;
    env.api::<ConfigMap>().delete("owner", &DeleteOptions::default()).await.unwrap();
    env.eventually("the pod is deleted", async || pods.find("web").await.unwrap().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn controllers_make_deployments_available() {
    let env = TestEnv::builder().nodes(1).controllers().start().await;
    let labels = json!({"app": "web"});
    let deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
        }},
    }));
    let deployments = env.api::<Deployment>();
    deployments.create(&deployment.unwrap()).await.unwrap();
    env.eventually("the Deployment is available", async || {
        deployments.get("web").await.unwrap().status.unwrap().available_replicas == Some(3)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn seed_determines_names() {
    let uid = async |seed| {
        let env = TestEnv::builder().seed(seed).start().await;
        env.api::<ConfigMap>().create(&config_map("web")).await.unwrap().metadata.uid
    };
    assert_eq!(uid(1).await, uid(1).await);
    assert_ne!(uid(1).await, uid(2).await);
}

#[tokio::test(start_paused = true)]
async fn failure_names_the_state_and_refused_requests() {
    let env = TestEnv::builder().start().await;
    let operator =
        env.clients().client("operator", RateLimit::DEFAULT).api::<ConfigMap>().namespaced("default");
    assert!(operator.get("missing").await.is_err());
    let waits =
        env.eventually("the ConfigMap exists", async || env.api::<ConfigMap>().get("missing").await.is_ok());
    let panic = AssertUnwindSafe(waits).catch_unwind().await.unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    let (place, state) = message.split_once(": ").unwrap();
    assert!(place.contains("environment.rs:"), "{place}");
    let request = "get /api/v1/namespaces/default/configmaps/missing: 404 configmaps \"missing\" not found";
    assert_eq!(state, format!("not within 30s: the ConfigMap exists\n  {request}"));
    assert_eq!(env.clock().monotonic(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn state_that_never_answers_fails_in_time() {
    let env = TestEnv::builder().start().await;
    let waits = env.within(Duration::from_secs(2), "an answer", async || std::future::pending().await);
    assert!(AssertUnwindSafe(waits).catch_unwind().await.is_err());
    assert_eq!(env.clock().monotonic(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn server_is_configured() {
    let server = ApiServerConfig {
        admission: Some(std::sync::Arc::new(|_, object| {
            object["data"] = json!({"seen": "yes"});
            Ok(())
        })),
        ..ApiServerConfig::default()
    };
    let env = TestEnv::builder().server(server).start().await;
    let created = env.api::<ConfigMap>().create(&config_map("web")).await.unwrap();
    assert_eq!(created.data.unwrap()["seen"], "yes");
}

/// The environment of a cluster is tested with an embedded server of another environment.
#[tokio::test(start_paused = true)]
async fn cluster_in_place_of_the_embedded_server() {
    let cluster = TestEnv::builder().crd::<Website>().namespace("shop").start().await;
    let builder = TestEnv::builder().cluster(cluster.clients().clone(), cluster.clock().clone());
    // Both exist.
    let env = builder.crd::<Website>().namespace("shop").start().await;
    env.api::<Website>().create(&website()).await.unwrap();
    assert!(cluster.api::<Website>().find("web").await.unwrap().is_some());
}
