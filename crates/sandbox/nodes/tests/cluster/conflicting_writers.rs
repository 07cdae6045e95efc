//! Clients that revert writes of the simulated components, and large numbers of objects. The server must stay responsive.

use std::{sync::Arc, time::Duration};

use kcm_apiserver::{
    ApiServer, DeleteOptions, DeletionPropagation, Object, Patch, Resource, Subresource, WatchEvent,
    WatchStart, WriteOptions,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::test_server::TestServer;

const MANY: usize = 2000;

/// Starts a client that calls `react` with each event of `resource`.
fn react(
    server: &Arc<ApiServer>,
    resource: Resource,
    react: impl Fn(&ApiServer, &WatchEvent) + Send + 'static,
) -> JoinHandle<()> {
    let server = Arc::clone(server);
    tokio::spawn(async move {
        let mut changes = server.watch(resource, None, WatchStart::Initial);
        while let Ok(event) = changes.next().await {
            react(&server, &event);
        }
    })
}

fn create(server: &ApiServer, resource: Resource, object: Value) -> Arc<Object> {
    server.create(resource, "default", object, &WriteOptions::default()).unwrap()
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "c", "image": "nginx:1" }] },
    })
}

fn patch(server: &ApiServer, object: &Object, part: Option<Subresource>, patch: Value) {
    let (resource, namespace, name) = (object.resource(), object.namespace(), object.name());
    // The object may have been deleted.
    let _ = server.patch(resource, namespace, name, part, Patch::merge(patch), &WriteOptions::default());
}

/// Runs the writer for 0.1 s, stops it, and checks that the cluster settles.
async fn check_settles_after_conflict(
    test: &TestServer,
    writer: JoinHandle<()>,
    is_settled: impl Fn(&ApiServer) -> bool,
) {
    let before = test.server.revision();
    test.clock.sleep(Duration::from_millis(100)).await;
    assert!(test.server.revision() > before + 3, "there was no conflict");
    writer.abort();
    test.clock.sleep(Duration::from_secs(5)).await;
    let revision = test.server.revision();
    test.clock.sleep(Duration::from_secs(5)).await;
    assert_eq!(test.server.revision(), revision, "the cluster is still writing");
    assert!(is_settled(&test.server));
}

#[tokio::test(start_paused = true)]
async fn object_recreated_with_its_finalizer_after_each_collection() {
    let test = TestServer::new();
    let _sandbox = test.run_sandbox(0);
    let object = || {
        json!({ "metadata": {
            "name": "a", "finalizers": ["example.com/a"],
            "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone" }],
        }})
    };
    create(&test.server, Resource::CONFIG_MAPS, object());
    let writer = react(&test.server, Resource::CONFIG_MAPS, move |server, event| match event {
        WatchEvent::Deleted(_) => drop(create(server, Resource::CONFIG_MAPS, object())),
        WatchEvent::Modified(marked) if marked.is_deleting() => {
            patch(server, marked, None, json!({ "metadata": { "finalizers": null } }));
        }
        _ => {}
    });
    check_settles_after_conflict(&test, writer, |server| {
        server.get(Resource::CONFIG_MAPS, "default", "a").unwrap().is_deleting()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn budget_with_reverted_status() {
    let test = TestServer::new();
    let _sandbox = test.run_sandbox(0);
    create(&test.server, Resource::PODS, pod("p"));
    let budget = json!({
        "metadata": { "name": "b" }, "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    });
    create(&test.server, Resource::POD_DISRUPTION_BUDGETS, budget);
    let expected = |budget: &Object| budget.value().pointer("/status/expectedPods") == Some(&json!(1));
    let writer = react(&test.server, Resource::POD_DISRUPTION_BUDGETS, move |server, event| {
        if let Some(budget) = event.object().filter(|budget| expected(budget)) {
            patch(server, budget, Some(Subresource::Status), json!({ "status": { "expectedPods": 7 } }));
        }
    });
    check_settles_after_conflict(&test, writer, move |server| {
        expected(&server.get(Resource::POD_DISRUPTION_BUDGETS, "default", "b").unwrap())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn unschedulable_pod_with_reverted_condition() {
    let test = TestServer::new();
    let _sandbox = test.run_sandbox(0);
    create(&test.server, Resource::PODS, pod("p"));
    let is_unschedulable = |pod: &Object| {
        pod.value().pointer("/status/conditions").and_then(Value::as_array).is_some_and(|all| !all.is_empty())
    };
    let writer = react(&test.server, Resource::PODS, move |server, event| {
        if let Some(pod) = event.object().filter(|pod| is_unschedulable(pod)) {
            patch(server, pod, Some(Subresource::Status), json!({ "status": { "conditions": null } }));
        }
    });
    check_settles_after_conflict(&test, writer, move |server| {
        is_unschedulable(&server.get(Resource::PODS, "default", "p").unwrap())
    })
    .await;
}

/// Writes a ConfigMap and a pod continuously, with a yield after each pair of writes.
fn flood(server: &Arc<ApiServer>) -> JoinHandle<()> {
    let server = Arc::clone(server);
    tokio::spawn(async move {
        let object = create(&server, Resource::CONFIG_MAPS, json!({ "metadata": { "name": "flood" } }));
        for number in 0_u64.. {
            patch(&server, &object, None, json!({ "data": { "number": number.to_string() } }));
            let pod = server.get(Resource::PODS, "default", "p").unwrap();
            patch(
                &server,
                &pod,
                None,
                json!({ "metadata": { "annotations": { "number": number.to_string() } } }),
            );
            tokio::task::yield_now().await;
        }
    })
}

#[tokio::test]
async fn timers_run_while_objects_change_continuously() {
    let test = TestServer::in_real_time();
    let _sandbox = test.run_sandbox(1);
    let server = &test.server;
    let named = json!({ "metadata": { "name": "team" } });
    server.create(Resource::NAMESPACES, "", named, &WriteOptions::default()).unwrap();
    create(server, Resource::PODS, pod("p"));
    server.delete(Resource::NAMESPACES, "", "team", &DeleteOptions::default()).unwrap();
    let flood = flood(server);
    // The readiness probe ends the test if the server hangs.
    loop {
        let pod = server.get(Resource::PODS, "default", "p").unwrap();
        let is_running = pod.value().pointer("/status/phase") == Some(&json!("Running"));
        if is_running && server.get(Resource::NAMESPACES, "", "team").is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    flood.abort();
}

/// Yields until `is_done` returns `true`. Returns the maximum number of writes between two yields.
async fn writes_between_yields(server: &ApiServer, is_done: impl Fn(&ApiServer) -> bool) -> u64 {
    let (mut most, mut last) = (0, server.revision());
    while !is_done(server) {
        tokio::task::yield_now().await;
        most = most.max(server.revision() - last);
        last = server.revision();
    }
    most
}

/// Maximum number of writes that all components together may do between two yields.
const MAX_WRITES: u64 = 3000;

#[tokio::test]
async fn many_objects_are_processed_in_steps() {
    let test = TestServer::in_real_time();
    let _sandbox = test.run_sandbox(1);
    let server = &test.server;
    let options = WriteOptions::default();
    let named = |name: String| json!({ "metadata": { "name": name } });
    server.create(Resource::NAMESPACES, "", named("team".to_owned()), &options).unwrap();
    let owner = |name: &str| create(server, Resource::SECRETS, named(name.to_owned()));
    let owners = [owner("orphaning"), owner("waiting"), owner("background")];
    for number in 0..MANY {
        tokio::task::yield_now().await;
        create(server, Resource::PODS, pod(&format!("p{number}")));
        for owner in &owners {
            let mut dependent = named(format!("{}-{number}", owner.name()));
            dependent["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "v1", "kind": "Secret", "name": owner.name(), "uid": owner.uid(), "blockOwnerDeletion": true,
            }]);
            create(server, Resource::CONFIG_MAPS, dependent);
        }
        server.create(Resource::CONFIG_MAPS, "team", named(format!("c{number}")), &options).unwrap();
    }
    for (owner, propagation) in owners.iter().zip([
        DeletionPropagation::Orphan,
        DeletionPropagation::Foreground,
        DeletionPropagation::Background,
    ]) {
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        server.delete(Resource::SECRETS, "default", owner.name(), &options).unwrap();
    }
    server.delete(Resource::NAMESPACES, "", "team", &DeleteOptions::default()).unwrap();
    let is_done = |server: &ApiServer| {
        let last = format!("p{}", MANY - 1);
        server.get(Resource::NAMESPACES, "", "team").is_err()
            && owners.iter().all(|owner| server.by_uid(owner.uid()).is_none())
            && server.get(Resource::CONFIG_MAPS, "default", &format!("background-{}", MANY - 1)).is_err()
            && server
                .get(Resource::PODS, "default", &last)
                .unwrap()
                .value()
                .pointer("/spec/nodeName")
                .is_some()
    };
    let most = writes_between_yields(server, is_done).await;
    assert!(most <= MAX_WRITES, "{most} writes");
}
