//! Writers that undo what the stand-ins do, and more objects than fit into one step. The server answers all the while.

use std::{sync::Arc, time::Duration};

use kcm_apiserver::{
    ApiServer, DeleteOptions, Object, PatchType, Propagation, Resource, Subresource, WatchEvent, WatchStart,
    WriteOptions,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::world::World;

const MANY: usize = 2000;

/// A writer that calls `react` with each state of the objects of `resource` that it sees, as soon as it is there.
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
    // The object may be gone.
    let _ = server.patch(resource, namespace, name, part, PatchType::Merge, patch, &WriteOptions::default());
}

/// Lets 0.1 s pass with the writer, then checks that all is silent without it.
async fn fight(world: &World, writer: JoinHandle<()>, is_over: impl Fn(&ApiServer) -> bool) {
    let before = world.server.revision();
    world.clock.sleep(Duration::from_millis(100)).await;
    assert!(world.server.revision() > before + 3, "there was no fight");
    writer.abort();
    world.clock.sleep(Duration::from_secs(5)).await;
    let revision = world.server.revision();
    world.clock.sleep(Duration::from_secs(5)).await;
    assert_eq!(world.server.revision(), revision, "something is still written");
    assert!(is_over(&world.server));
}

#[tokio::test(start_paused = true)]
async fn object_that_comes_back_with_its_finalizer_whenever_it_is_collected() {
    let world = World::new();
    let _sandbox = world.run_sandbox(0);
    let object = || {
        json!({ "metadata": {
            "name": "a", "finalizers": ["example.com/a"],
            "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone" }],
        }})
    };
    create(&world.server, Resource::CONFIG_MAPS, object());
    let writer = react(&world.server, Resource::CONFIG_MAPS, move |server, event| match event {
        WatchEvent::Deleted(_) => drop(create(server, Resource::CONFIG_MAPS, object())),
        WatchEvent::Modified(marked) if marked.is_deleting() => {
            patch(server, marked, None, json!({ "metadata": { "finalizers": null } }));
        }
        _ => {}
    });
    fight(&world, writer, |server| server.get(Resource::CONFIG_MAPS, "default", "a").unwrap().is_deleting())
        .await;
}

#[tokio::test(start_paused = true)]
async fn budget_whose_status_is_undone() {
    let world = World::new();
    let _sandbox = world.run_sandbox(0);
    create(&world.server, Resource::PODS, pod("p"));
    let budget = json!({
        "metadata": { "name": "b" }, "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    });
    create(&world.server, Resource::POD_DISRUPTION_BUDGETS, budget);
    let expected = |budget: &Object| budget.value().pointer("/status/expectedPods") == Some(&json!(1));
    let writer = react(&world.server, Resource::POD_DISRUPTION_BUDGETS, move |server, event| {
        if let Some(budget) = event.object().filter(|budget| expected(budget)) {
            patch(server, budget, Some(Subresource::Status), json!({ "status": { "expectedPods": 7 } }));
        }
    });
    fight(&world, writer, move |server| {
        expected(&server.get(Resource::POD_DISRUPTION_BUDGETS, "default", "b").unwrap())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pod_whose_refusal_by_the_scheduler_is_undone() {
    let world = World::new();
    let _sandbox = world.run_sandbox(0);
    create(&world.server, Resource::PODS, pod("p"));
    let is_refused = |pod: &Object| {
        pod.value().pointer("/status/conditions").and_then(Value::as_array).is_some_and(|all| !all.is_empty())
    };
    let writer = react(&world.server, Resource::PODS, move |server, event| {
        if let Some(pod) = event.object().filter(|pod| is_refused(pod)) {
            patch(server, pod, Some(Subresource::Status), json!({ "status": { "conditions": null } }));
        }
    });
    fight(&world, writer, move |server| is_refused(&server.get(Resource::PODS, "default", "p").unwrap()))
        .await;
}

/// Writes a ConfigMap again and again, with a yield in between.
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
async fn timers_run_while_objects_change_without_end() {
    let world = World::in_real_time();
    let _sandbox = world.run_sandbox(1);
    let server = &world.server;
    let named = json!({ "metadata": { "name": "team" } });
    server.create(Resource::NAMESPACES, "", named, &WriteOptions::default()).unwrap();
    create(server, Resource::PODS, pod("p"));
    server.delete(Resource::NAMESPACES, "", "team", &DeleteOptions::default()).unwrap();
    let flood = flood(server);
    // The probe ends the test if this takes for ever.
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

/// Yields until `is_done`, and returns the most writes that there were between two yields.
async fn writes_between_yields(server: &ApiServer, is_done: impl Fn(&ApiServer) -> bool) -> u64 {
    let (mut most, mut last) = (0, server.revision());
    while !is_done(server) {
        tokio::task::yield_now().await;
        most = most.max(server.revision() - last);
        last = server.revision();
    }
    most
}

/// The most writes that all stand-ins together may do before others run.
const AT_A_TIME: u64 = 3000;

#[tokio::test]
async fn many_objects_are_dealt_with_in_steps() {
    let world = World::in_real_time();
    let _sandbox = world.run_sandbox(1);
    let server = &world.server;
    let options = WriteOptions::default();
    let named = |name: String| json!({ "metadata": { "name": name } });
    server.create(Resource::NAMESPACES, "", named("team".to_owned()), &options).unwrap();
    let owner = |name: &str| create(server, Resource::SECRETS, named(name.to_owned()));
    let owners = [owner("orphaning"), owner("waiting"), owner("going")];
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
    for (owner, propagation) in
        owners.iter().zip([Propagation::Orphan, Propagation::Foreground, Propagation::Background])
    {
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        server.delete(Resource::SECRETS, "default", owner.name(), &options).unwrap();
    }
    server.delete(Resource::NAMESPACES, "", "team", &DeleteOptions::default()).unwrap();
    let is_done = |server: &ApiServer| {
        let last = format!("p{}", MANY - 1);
        server.get(Resource::NAMESPACES, "", "team").is_err()
            && owners.iter().all(|owner| server.by_uid(owner.uid()).is_none())
            && server.get(Resource::CONFIG_MAPS, "default", &format!("going-{}", MANY - 1)).is_err()
            && server
                .get(Resource::PODS, "default", &last)
                .unwrap()
                .value()
                .pointer("/spec/nodeName")
                .is_some()
    };
    let most = writes_between_yields(server, is_done).await;
    assert!(most <= AT_A_TIME, "{most} writes");
}
