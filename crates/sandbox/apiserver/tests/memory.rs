//! Heap memory of stored objects and of the watch window.
#![allow(clippy::unwrap_used, clippy::cast_possible_wrap, reason = "tests may")]

use std::{alloc::System, sync::Arc};

use kcm_apiserver::{
    ApiServer, ApiServerConfig, DeleteOptions, HistoryLimits, Patch, Resource, Subresource, WriteOptions,
};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PODS: usize = 500;
const WINDOW: usize = 1 << 20;
/// Memory in bytes of a running pod with its status, indexes and events in the window.
const PER_POD: isize = 4300;

/// Allocated bytes.
fn heap() -> isize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated as isize - stats.bytes_deallocated as isize
}

struct Cluster(Arc<ApiServer>);

impl Cluster {
    fn new() -> Self {
        let history = HistoryLimits { events: 100_000, bytes: WINDOW };
        Self(ApiServer::new(ApiServerConfig { history, ..ApiServerConfig::default() }))
    }

    fn create(&self, resource: Resource, object: Value) {
        self.0.create(resource, "default", object, &WriteOptions::default()).unwrap();
    }

    /// Creates pods of one ReplicaSet, binds them and reports them as running.
    fn run_pods(&self) {
        for number in 0..PODS {
            let name = format!("web-7d4b9c6f58-{number:05}");
            let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}});
            self.create(Resource::PODS, json!({
                "metadata": {
                    "name": name,
                    "generateName": "web-7d4b9c6f58-",
                    "labels": {"app": "web", "pod-template-hash": "7d4b9c6f58"},
                    "ownerReferences": [{
                        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f58",
                        "uid": "0a8e0ff4-9a3a-4b8e-b9d5-4d2a9c1e7f10", "controller": true, "blockOwnerDeletion": true,
                    }],
                },
                "spec": {"containers": [{
                    "name": "main", "image": "registry.example/shop/web:1.29", "ports": [{"containerPort": 8080}],
                    "env": [{"name": "MODE", "value": "production"}, {"name": "LOG_LEVEL", "value": "info"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                    "readinessProbe": probe, "livenessProbe": probe,
                }]},
            }));
            self.0.bind("default", &name, &format!("node-{}", number % 10)).unwrap();
            let time = "2026-01-01T00:00:00Z";
            let conditions: Vec<Value> = ["Ready", "ContainersReady", "Initialized"]
                .map(|name| json!({"type": name, "status": "True", "lastTransitionTime": time}))
                .into();
            let status = json!({"status": {
                "phase": "Running", "podIP": format!("10.0.{}.{}", number / 250, number % 250), "startTime": time,
                "conditions": conditions,
                "containerStatuses": [{
                    "name": "main", "ready": true, "started": true, "restartCount": 0, "imageID": "sha256:1",
                    "image": "registry.example/shop/web:1.29", "state": {"running": {"startedAt": time}},
                }],
            }});
            let (part, patch) = (Some(Subresource::Status), Patch::strategic(status));
            self.0.patch(Resource::PODS, "default", &name, part, patch, &WriteOptions::default()).unwrap();
        }
    }

    fn delete_pods(&self) {
        let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        for number in 0..PODS {
            self.0.delete(Resource::PODS, "default", &format!("web-7d4b9c6f58-{number:05}"), &now).unwrap();
        }
    }

    /// Reads other objects, so that no decoded pods are kept.
    fn forget_decoded(&self) {
        for _ in 0..1000 {
            let object = json!({"metadata": {"generateName": "small-"}});
            self.create(Resource::CONFIG_MAPS, object);
        }
    }
}

/// One test, because the heap is that of the process.
#[test]
fn memory_is_bounded_by_stored_objects_and_the_window() {
    let cluster = Cluster::new();
    cluster.forget_decoded();
    let empty = heap();
    cluster.run_pods();
    cluster.forget_decoded();
    let per_pod = (heap() - empty) / PODS as isize;
    println!("{per_pod} bytes per pod");
    assert!(per_pod <= PER_POD, "{per_pod} bytes per pod");
    cluster.delete_pods();

    let mut left = Vec::new();
    for _ in 0..4 {
        cluster.run_pods();
        cluster.delete_pods();
        left.push(heap() - empty);
    }
    println!("{left:?} bytes left");
    let growth = left[3] - left[1];
    assert!(growth < 1 << 20, "{growth} bytes after further pods: {left:?}");
}
