// Client of the examples in the documentation, which include this file as a module.

use std::{error::Error, sync::Arc};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod},
};
use kcm_apiserver::{ApiServer, ApiServerConfig, Resource, WriteOptions};
use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, UserAgent};
use kcm_clock::RealClock;
use serde_json::json;

/// Runs `example` with a client of an API server in this process, which has the namespaces `shop` and `kube-system`.
pub fn run(example: impl AsyncFnOnce(ApiClient) -> Result<(), Box<dyn Error>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = ApiServer::new(ApiServerConfig::default());
        for name in ["shop", "kube-system"] {
            let namespace = json!({"metadata": {"name": name}});
            // `kube-system` exists from the start.
            drop(server.create(Resource::NAMESPACES, "", namespace, &WriteOptions::default()));
        }
        let agent = UserAgent::new("example", "v1.0.0", "");
        let options = ClientOptions::new(agent, Arc::new(RealClock::new()));
        let factory = ClientFactory::in_process(server.service(), options);
        example(factory.client("example", RateLimit::DEFAULT)).await.unwrap();
    });
}

/// A ConfigMap without content.
pub fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

/// A pod with one container.
pub fn pod(name: &str) -> Pod {
    let spec = json!({"containers": [{"name": "main", "image": "nginx:1"}]});
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})).unwrap()
}

/// A Deployment of such pods.
pub fn deployment(name: &str) -> Deployment {
    let template = serde_json::to_value(pod(name)).unwrap();
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
    }))
    .unwrap()
}
