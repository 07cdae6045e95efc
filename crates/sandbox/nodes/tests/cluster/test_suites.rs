//! Behaviour that test suites of other projects require, in simulated time: nodes without a kubelet, missing images,
//! quota status.

use std::{sync::Arc, time::Duration};

use kcm_apiserver::{ApiServer, Object, Patch, Resource, Subresource, WriteOptions};
use serde_json::{Value, json};

use crate::test_server::TestServer;

/// Time after which all pods have started.
const STARTED: Duration = Duration::from_secs(5);

fn pod(name: &str, image: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

fn create(server: &ApiServer, resource: Resource, object: Value) -> Arc<Object> {
    let namespace = if resource.is_namespaced() { "default" } else { "" };
    server.create(resource, namespace, object, &WriteOptions::default()).unwrap()
}

fn get(server: &ApiServer, resource: Resource, name: &str) -> Value {
    server.get(resource, "default", name).unwrap().value().clone()
}

#[tokio::test(start_paused = true)]
async fn pods_of_other_nodes_are_ignored() {
    let test = TestServer::new();
    let _sandbox = test.run_sandbox(1);
    let TestServer { server, clock, .. } = &test;
    create(server, Resource::NODES, json!({ "metadata": { "name": "real" } }));
    for node in ["real", "absent", "sim-node-0"] {
        let mut pod = pod(node, "nginx:1");
        pod["spec"]["nodeName"] = json!(node);
        create(server, Resource::PODS, pod);
    }
    clock.sleep(STARTED).await;
    let phase = |name: &str| get(server, Resource::PODS, name)["status"]["phase"].clone();
    assert_eq!((phase("real"), phase("absent")), (json!("Pending"), json!("Pending")));
    assert_eq!(phase("sim-node-0"), "Running");

    // Only the kubelet of its node removes a terminating pod.
    for name in ["real", "sim-node-0"] {
        server.delete(Resource::PODS, "default", name, &kcm_apiserver::DeleteOptions::default()).unwrap();
    }
    clock.sleep(STARTED).await;
    assert!(get(server, Resource::PODS, "real")["metadata"]["deletionTimestamp"].is_string());
    assert!(server.get(Resource::PODS, "default", "sim-node-0").unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn stored_simulated_nodes_keep_their_kubelet() {
    let test = TestServer::new();
    drop(test.run_sandbox(2));
    let _sandbox = test.run_sandbox(0);
    let TestServer { server, clock, .. } = &test;
    create(server, Resource::PODS, pod("p", "nginx:1"));
    clock.sleep(STARTED).await;
    assert_eq!(get(server, Resource::PODS, "p")["status"]["phase"], "Running");
}

#[tokio::test(start_paused = true)]
async fn pods_are_bound_to_nodes_that_their_selector_matches() {
    let test = TestServer::new();
    let _sandbox = test.run_sandbox(2);
    let TestServer { server, clock, .. } = &test;
    for (name, node) in [("matched", "sim-node-1"), ("unmatched", "sim-node-2")] {
        let mut pod = pod(name, "nginx:1");
        pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
        create(server, Resource::PODS, pod);
    }
    clock.sleep(STARTED).await;
    assert_eq!(get(server, Resource::PODS, "matched")["spec"]["nodeName"], "sim-node-1");
    let condition = get(server, Resource::PODS, "unmatched")["status"]["conditions"][0].clone();
    assert_eq!(condition["reason"], "Unschedulable");
    assert_eq!(
        condition["message"],
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    );
}

#[tokio::test(start_paused = true)]
async fn kubelets_report_the_observed_generation() {
    let test = TestServer::new();
    let _sandbox = test.run_sandbox(1);
    let TestServer { server, clock, .. } = &test;
    create(server, Resource::PODS, pod("p", "nginx:1"));
    clock.sleep(STARTED).await;
    let generations = || {
        let pod = get(server, Resource::PODS, "p");
        (pod["metadata"]["generation"].clone(), pod["status"]["observedGeneration"].clone())
    };
    assert_eq!(generations(), (json!(1), json!(1)));
    let patch = json!({ "spec": { "activeDeadlineSeconds": 5000 } });
    let options = WriteOptions::default();
    server.patch(Resource::PODS, "default", "p", None, Patch::merge(patch), &options).unwrap();
    clock.sleep(STARTED).await;
    assert_eq!(generations(), (json!(2), json!(2)));
}

#[tokio::test(start_paused = true)]
async fn kubelets_report_resized_containers() {
    let test = TestServer::new();
    let _sandbox = test.run_sandbox(1);
    let TestServer { server, clock, .. } = &test;
    let container = |cpu: &str| json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } });
    let mut object = pod("p", "nginx:1");
    object["spec"]["containers"][0]["resources"] = container("100m")["resources"].clone();
    create(server, Resource::PODS, object);
    clock.sleep(STARTED).await;
    let reported = || {
        let statuses = get(server, Resource::PODS, "p")["status"]["containerStatuses"].clone();
        assert_eq!(statuses.as_array().unwrap().len(), 1);
        statuses[0]["resources"].clone()
    };
    assert_eq!(reported(), container("100m")["resources"]);
    let patch = Patch::strategic(json!({ "spec": { "containers": [container("200m")] } }));
    let (part, options) = (Some(Subresource::Resize), WriteOptions::default());
    server.patch(Resource::PODS, "default", "p", part, patch, &options).unwrap();
    clock.sleep(STARTED).await;
    assert_eq!(reported(), container("200m")["resources"]);
}

#[tokio::test(start_paused = true)]
async fn pods_fail_after_their_active_deadline() {
    let test = TestServer::new();
    let _sandbox = test.run_sandbox(1);
    let TestServer { server, clock, .. } = &test;
    let mut object = pod("p", "nginx:1");
    object["spec"]["activeDeadlineSeconds"] = json!(100);
    create(server, Resource::PODS, object);
    clock.sleep(STARTED).await;
    let patch = json!({ "spec": { "activeDeadlineSeconds": 20 } });
    let options = WriteOptions::default();
    server.patch(Resource::PODS, "default", "p", None, Patch::merge(patch), &options).unwrap();
    clock.sleep(Duration::from_secs(10)).await;
    let status = || get(server, Resource::PODS, "p")["status"].clone();
    assert_eq!(status()["phase"], "Running");
    clock.sleep(Duration::from_secs(10)).await;
    assert_eq!((&status()["phase"], &status()["reason"]), (&json!("Failed"), &json!("DeadlineExceeded")));
    assert!(status()["containerStatuses"][0]["state"]["terminated"].is_object());
}

#[tokio::test(start_paused = true)]
async fn images_with_missing_tags_are_not_pulled() {
    let test = TestServer::new();
    let _sandbox = test.run_sandbox_with(1, |sandbox| sandbox.with_missing_image_tags(["v0".to_owned()]));
    let TestServer { server, clock, .. } = &test;
    let images = ["nginx:1", "a:broken", "a:404", "a:does-not-exist", "a:v0"];
    for (number, image) in images.iter().enumerate() {
        create(server, Resource::PODS, pod(&format!("p{number}"), image));
    }
    clock.sleep(STARTED).await;
    let reason = |number: usize| {
        let pod = get(server, Resource::PODS, &format!("p{number}"));
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone()
    };
    assert_eq!(reason(0), Value::Null);
    for (number, image) in images.iter().enumerate().skip(1) {
        assert_eq!(reason(number), "ImagePullBackOff", "{image}");
    }
}

#[tokio::test(start_paused = true)]
async fn quota_status_follows_objects() {
    let test = TestServer::new();
    let _sandbox = test.run_sandbox(1);
    let TestServer { server, clock, .. } = &test;
    let settle = || clock.sleep(Duration::from_secs(1));
    let hard = json!({ "pods": "2", "configmaps": "5" });
    create(
        server,
        Resource::RESOURCE_QUOTAS,
        json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } }),
    );
    settle().await;
    let status = || get(server, Resource::RESOURCE_QUOTAS, "q")["status"].clone();
    assert_eq!(status(), json!({ "hard": hard, "used": { "pods": "0", "configmaps": "0" } }));

    create(server, Resource::PODS, pod("p", "nginx:1"));
    settle().await;
    assert_eq!(status()["used"], json!({ "pods": "1", "configmaps": "0" }));

    let patch = |part, patch| {
        let options = WriteOptions::default();
        let (resource, namespace) = (Resource::RESOURCE_QUOTAS, "default");
        server.patch(resource, namespace, "q", part, Patch::merge(patch), &options).unwrap()
    };
    patch(None, json!({ "spec": { "hard": { "configmaps": null } } }));
    settle().await;
    assert_eq!(status(), json!({ "hard": { "pods": "2" }, "used": { "pods": "1" } }));
    // A status of another client is corrected.
    patch(Some(Subresource::Status), json!({ "status": { "hard": { "pods": "9" } } }));
    settle().await;
    assert_eq!(status()["hard"], json!({ "pods": "2" }));

    server.delete(Resource::PODS, "default", "p", &kcm_apiserver::DeleteOptions::default()).unwrap();
    settle().await;
    assert_eq!(status()["used"], json!({ "pods": "0" }));
    let settled = server.revision();
    settle().await;
    assert_eq!(server.revision(), settled);
}
