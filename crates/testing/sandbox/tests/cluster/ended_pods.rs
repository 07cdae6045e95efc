//! Pods that have ended, in simulated time.

use std::time::Duration;

use kcm_apiserver::{PatchType, Resource, Subresource, WriteOptions};
use serde_json::json;

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn pod_that_somebody_says_has_failed_before_it_was_started_is_not_started() {
    let world = World::new();
    let _sandbox = world.run_sandbox(1);
    let World { server, clock, .. } = &world;
    let options = WriteOptions::default();
    let pod = json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c", "image": "nginx:1" }] } });
    server.create(Resource::PODS, "default", pod, &options).unwrap();
    clock.sleep(Duration::from_millis(100)).await;
    let failed = json!({ "status": { "phase": "Failed" } });
    let status = Some(Subresource::Status);
    server.patch(Resource::PODS, "default", "p", status, PatchType::Merge, failed, &options).unwrap();
    clock.sleep(Duration::from_secs(60)).await;
    let pod = server.get(Resource::PODS, "default", "p").unwrap();
    assert_eq!(pod.value()["status"]["phase"], "Failed");
}
