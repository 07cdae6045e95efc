//! Evictions and disruption budgets, in simulated time.

use std::time::Duration;

use kcm_apiserver::{DeleteOptions, Resource, WriteOptions};
use serde_json::json;

use crate::test_server::TestServer;

#[tokio::test(start_paused = true)]
async fn eviction_beyond_the_budget_is_rejected() {
    let test = TestServer::new();
    let _sandbox = test.run_sandbox(1);
    let TestServer { server, clock, .. } = &test;
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
    assert!(evict("b").is_err(), "the budget allows one disruption");
    clock.sleep(Duration::from_secs(60)).await;
    assert!(evict("b").is_err(), "the budget must not change over time");
    server.create(Resource::PODS, "default", pod("d"), &options).unwrap();
    clock.sleep(Duration::from_secs(2)).await;
    evict("b").unwrap();
}
