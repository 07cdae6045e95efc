//! Compares estimated cache sizes with the allocator, and checks that recording metrics does not allocate. A separate
//! binary with one test, because the allocator counts for the whole process.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

use std::{alloc::System, sync::Arc, time::Duration};

use http::Method;
use kcm_api::{Deployment, Pod, PodDecoder, ReplicaSet};
use kcm_client::{PriorityLevel, RequestInfo};
use kcm_clock::{FakeClock, Timestamp};
use kcm_controller_manager::{CacheSize, Metrics};
use kcm_controller_util::{deployment_indexers, pod_indexers, replica_set_indexers};
use kcm_informer::{Indexers, Store, StoreWriter};
use kcm_metrics::{BuildInfo, MetricsOptions};
use kcm_runtime::{SyncMetrics, SyncResult};
use kcm_workqueue::QueueMetrics;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const OBJECTS: usize = 2_000;

fn metadata(n: usize) -> Value {
    json!({
        "name": format!("web-5f7c9d8b6-{n:05}"), "namespace": "default", "resourceVersion": format!("{}", 100_000 + n),
        "uid": format!("0b1c2d3e-0000-4000-8000-{n:012}"), "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": {"app": "web", "pod-template-hash": "5f7c9d8b6", "app.kubernetes.io/part-of": "shop"},
        "annotations": {"deployment.kubernetes.io/revision": "3", "deployment.kubernetes.io/desired-replicas": "10"},
        "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5f7c9d8b6", "controller": true,
            "uid": "0b1c2d3e-0000-4000-8000-000000000000", "blockOwnerDeletion": true,
        }],
    })
}

fn spec(selector: &str) -> Value {
    json!({
        "replicas": 10,
        "selector": {"matchLabels": {"app": selector}},
        "template": {
            "metadata": {"labels": {"app": "web", "pod-template-hash": "5f7c9d8b6"}},
            "spec": {"containers": [{
                "name": "web", "image": "registry.example/shop/web:1.2.3", "ports": [{"containerPort": 8080}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5},
                "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent",
            }], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst"},
        },
    })
}

fn conditions() -> Value {
    json!({"replicas": 10, "readyReplicas": 10, "conditions": [{
        "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
        "message": "Deployment has minimum availability.", "lastTransitionTime": "2026-01-02T03:04:05Z",
    }]})
}

/// Allocated and estimated size of a cache, in bytes.
fn measured<K: CacheSize>(name: &str, indexers: Indexers<K>, decode: impl Fn(usize) -> K) -> (f64, f64) {
    let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
    let metrics = Metrics::new(&MetricsOptions::default(), clock, &BuildInfo::default()).unwrap();
    let mut writer = StoreWriter::new(indexers);
    let store: Store<K> = writer.reader();
    let region = Region::new(ALLOCATOR);
    for n in 0..OBJECTS {
        writer.apply(Arc::new(decode(n)));
    }
    let change = region.change();
    let allocated = change.bytes_allocated - change.bytes_deallocated;
    metrics.cache(name, store);
    let text = metrics.text();
    let series = format!("kcm_cache_bytes{{resource=\"{name}\"}} ");
    let estimate = text.lines().find_map(|line| line.strip_prefix(&series)).unwrap();
    (allocated as f64, estimate.parse().unwrap())
}

#[track_caller]
fn assert_near(resource: &str, (allocated, estimate): (f64, f64)) {
    let each = allocated / OBJECTS as f64;
    assert!(each > 100.0, "allocator without statistics: {each} bytes each");
    let ratio = estimate / allocated;
    println!("{resource}: {each:.0} bytes each, estimate / allocated = {ratio:.2}");
    assert!(
        (0.67..1.33).contains(&ratio),
        "{resource}: {each:.0} bytes each, estimate / allocated = {ratio:.2}"
    );
}

/// Records a sync with one write, and the event that follows.
fn one_sync(metrics: &Metrics, queue: &dyn QueueMetrics, syncs: &dyn SyncMetrics) {
    let millisecond = Duration::from_millis(1);
    queue.added();
    queue.depth(1);
    queue.depth(0);
    queue.queue_duration(millisecond);
    syncs.started();
    let request = RequestInfo {
        client: "deployment-controller",
        server: "https://10.0.0.1:6443",
        method: &Method::PUT,
        path: "/apis/apps/v1/namespaces/default/deployments/web/status",
        attempt: 1,
        watch: false,
        priority_level: PriorityLevel::default(),
    };
    let clients = metrics.clients();
    clients.throttled(request, millisecond);
    clients.sent(request, 1000);
    clients.answered(request, Some(200), millisecond);
    clients.received(request, 1000);
    clients.finished(request, millisecond);
    syncs.ended(millisecond, SyncResult::Success);
    queue.work_duration(millisecond);
    let informers = metrics.informers();
    informers.store_changed("deployments", 7, "12345678");
    informers.processed("deployments", millisecond);
}

fn assert_no_allocations() {
    let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
    let metrics = Metrics::new(&MetricsOptions::default(), clock, &BuildInfo::default()).unwrap();
    let queue = metrics.queues().queue("deployment").unwrap();
    let syncs = metrics.syncs("deployment-controller");
    // The first call creates the time series.
    one_sync(&metrics, &*queue, &*syncs);
    let region = Region::new(ALLOCATOR);
    for _ in 0..100 {
        one_sync(&metrics, &*queue, &*syncs);
    }
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0));
}

#[test]
fn recording_does_not_allocate_and_estimates_are_within_a_third() {
    assert_no_allocations();
    assert_estimates();
}

fn assert_estimates() {
    let pods = PodDecoder::default();
    let pod = |n| -> Pod {
        let pod = json!({"metadata": metadata(n), "spec": {"nodeName": format!("node-{}", n % 50)},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        pods.decode(&pod.to_string()).unwrap()
    };
    assert_near("pods", measured("pods", pod_indexers(), pod));
    let set = |n| -> ReplicaSet {
        let set = json!({"metadata": metadata(n), "spec": spec("web"), "status": conditions()});
        serde_json::from_str(&set.to_string()).unwrap()
    };
    assert_near("replicasets", measured("replicasets", replica_set_indexers(), set));
    let deployment = |n| -> Deployment {
        let deployment = json!({"metadata": metadata(n), "spec": spec("web"), "status": conditions()});
        serde_json::from_str(&deployment.to_string()).unwrap()
    };
    assert_near("deployments", measured("deployments", deployment_indexers(), deployment));
}
