//! A complete cluster in one program, without sockets: API server, simulated components and both controllers. Creates a
//! Deployment and waits until all its pods are available.
//!
//! `cargo run -p kcm-sandbox --example cluster`

use std::{error::Error, sync::Arc};

use kcm_apiserver::{ApiServer, Resource, WatchEvent, WatchStart, WriteOptions};
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_controller_manager::ManagerConfig;
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let random: Arc<dyn Random> = Arc::new(SeededRandom::from_entropy());
    let server = ApiServer::new(kcm_apiserver::ApiServerConfig::default());

    let sandbox = Sandbox::new(SandboxConfig {
        server: Arc::clone(&server),
        clock: Arc::clone(&clock),
        random: Arc::clone(&random),
        nodes: 3,
        kubelet: KubeletConfig::default(),
    })?;
    let stop = CancellationToken::new();
    let components = tokio::spawn({
        let stop = stop.clone();
        async move { sandbox.run(stop).await }
    });
    let controllers = kcm_controller_manager::start_in_process(
        &ManagerConfig::default(),
        server.service(),
        &clock,
        &random,
    );

    let web = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "web", "image": "nginx:1.27" }] },
            },
        },
    });
    server.create(Resource::DEPLOYMENTS, "default", web, &WriteOptions::default())?;

    let mut deployments = server.watch(Resource::DEPLOYMENTS, Some("default"), WatchStart::Initial);
    loop {
        let event = deployments.next().await?;
        let (WatchEvent::Added(deployment) | WatchEvent::Modified(deployment)) = event else { continue };
        let available = deployment.value()["status"]["availableReplicas"].as_i64().unwrap_or(0);
        println!("{available} of 3 pods are available");
        if available == 3 {
            break;
        }
    }
    controllers.stop().await?;
    stop.cancel();
    components.await?;
    Ok(())
}
