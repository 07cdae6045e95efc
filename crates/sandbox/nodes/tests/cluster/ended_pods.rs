//! Pods in a terminal phase, in simulated time.

use std::time::Duration;

use kcm_apiserver::{Patch, Resource, Subresource, WriteOptions};
use serde_json::json;

use crate::test_server::TestServer;

#[tokio::test(start_paused = true)]
async fn pod_that_failed_before_its_start_is_not_started() {
    let test = TestServer::new();
    let _sandbox = test.run_sandbox(1);
    let TestServer { server, clock, .. } = &test;
    let options = WriteOptions::default();
    let pod = json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c", "image": "nginx:1" }] } });
    server.create(Resource::PODS, "default", pod, &options).unwrap();
    clock.sleep(Duration::from_millis(100)).await;
    let failed = json!({ "status": { "phase": "Failed" } });
    let status = Some(Subresource::Status);
    server.patch(Resource::PODS, "default", "p", status, Patch::merge(failed), &options).unwrap();
    clock.sleep(Duration::from_secs(60)).await;
    let pod = server.get(Resource::PODS, "default", "p").unwrap();
    assert_eq!(pod.value()["status"]["phase"], "Failed");
}
