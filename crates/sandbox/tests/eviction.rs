//! Evictions are granted as long as the budget allows, in simulated time.

use std::{sync::Arc, time::Duration};

use kcm_apiserver::{ApiServer, DeleteOptions, Resource, WriteOptions};
use kcm_clock::{Clock, Random, SeededRandom, SimulatedClock};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::test(start_paused = true)]
async fn eviction_beyond_the_budget_is_refused_until_another_pod_is_healthy() {
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
    let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
    let server = ApiServer::new(kcm_apiserver::Config {
        clock: Arc::clone(&clock),
        random: Arc::clone(&random),
        ..kcm_apiserver::Config::default()
    });
    let sandbox = Sandbox::new(SandboxConfig {
        server: Arc::clone(&server),
        clock: Arc::clone(&clock),
        random,
        nodes: 1,
        kubelet: KubeletConfig::default(),
    })
    .unwrap();
    let stop = CancellationToken::new();
    tokio::spawn({
        let stop = stop.clone();
        async move { sandbox.run(stop).await }
    });
    let options = WriteOptions::default();
    let pod = |name: &str| {
        json!({
            "metadata": { "name": name, "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "c", "image": "nginx:1" }] },
        })
    };
    for name in ["a", "b", "c"] {
        server.create(Resource::PODS, "default", pod(name), &options).unwrap();
    }
    let budget = json!({
        "metadata": { "name": "web" },
        "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": "web" } } },
    });
    server.create(Resource::POD_DISRUPTION_BUDGETS, "default", budget, &options).unwrap();
    clock.sleep(Duration::from_secs(2)).await;

    let evict = |name: &str| server.evict("default", name, &DeleteOptions::default());
    evict("a").unwrap();
    assert!(evict("b").is_err(), "two must stay");
    clock.sleep(Duration::from_secs(60)).await;
    assert!(evict("b").is_err(), "two must stay, however long one waits");
    server.create(Resource::PODS, "default", pod("d"), &options).unwrap();
    clock.sleep(Duration::from_secs(2)).await;
    evict("b").unwrap();
    stop.cancel();
}
