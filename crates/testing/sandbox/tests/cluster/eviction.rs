//! Evictions are granted as long as the budget allows, in simulated time.

use std::time::Duration;

use kcm_apiserver::{DeleteOptions, Resource, WriteOptions};
use serde_json::json;

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn eviction_beyond_the_budget_is_refused_until_another_pod_is_healthy() {
    let world = World::new();
    let _sandbox = world.run_sandbox(1);
    let World { server, clock, .. } = &world;
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
}
