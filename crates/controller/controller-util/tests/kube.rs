//! Pods of k8s-openapi are ranked, filtered and found as those of `kcm-api`.
//!
//! `cargo test -p kcm-controller-util --features kube`
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kcm_api::PodDecoder;
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::{
    PodView,
    availability::{is_pod_available, next_pod_availability},
    filters::{active_pods, count_terminating_pods},
    index::{orphan_pods, pods_of},
    pod_indexers,
    ranking::{NodeCounts, Ranking, rank_for_deletion},
};
use kcm_informer::StoreWriter;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T12:00:00Z";

/// Pods that differ in each value of [`PodView`].
fn objects() -> Vec<Value> {
    let owner = json!({
        "apiVersion": "example.org/v1", "kind": "Pool", "name": "pool", "uid": "pool-uid", "controller": true,
    });
    let pod = |name: &str, changed: Value| {
        let mut pod = json!({
            "metadata": {
                "namespace": "shop", "name": name, "uid": format!("{name}-uid"), "ownerReferences": [owner],
                "creationTimestamp": "2026-01-01T11:00:00Z",
            },
            "spec": {"containers": [], "nodeName": "node-1"},
            "status": {"phase": "Running", "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:59:50Z"},
            ]},
        });
        merge(&mut pod, changed);
        pod
    };
    let cost = |cost: &str| json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}});
    let restarts = |name: &str, count: i32| json!([{"name": name, "restartCount": count, "ready": true, "image": "", "imageID": ""}]);
    let sidecar = json!({
        "spec": {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]},
        "status": {"initContainerStatuses": restarts("proxy", 2)},
    });
    let init = json!({
        "spec": {"initContainers": [{"name": "setup"}]},
        "status": {"initContainerStatuses": restarts("setup", 2)},
    });
    vec![
        pod("usual", json!({})),
        pod("unbound", json!({"spec": {"nodeName": null}, "status": {"phase": null, "conditions": null}})),
        pod("unknown", json!({"status": {"phase": "Unknown"}})),
        pod("unready", json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})),
        pod("cheap", cost("-7")),
        pod("invalid", cost("+7")),
        pod("crowded", json!({"spec": {"nodeName": "node-2"}})),
        pod("neighbour", json!({"spec": {"nodeName": "node-2"}})),
        pod("restarted", json!({"status": {"containerStatuses": restarts("app", 3)}})),
        pod("sidecar", sidecar),
        pod("init", init),
        pod("young", json!({"metadata": {"creationTimestamp": "2026-01-01T11:59:00Z"}})),
        pod(
            "zero",
            json!({"metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"}, "status": {"conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "0001-01-01T00:00:00Z"},
            ]}}),
        ),
        pod("terminating", json!({"metadata": {"deletionTimestamp": "2026-01-01T12:00:30Z"}})),
        pod("failed", json!({"status": {"phase": "Failed"}})),
        pod("orphan", json!({"metadata": {"ownerReferences": null}})),
    ]
}

/// Sets the values of `patch`.
fn merge(object: &mut Value, patch: Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, patch) => *object = patch,
    }
}

/// Returns all that is derived from `pods`, as text.
fn facts<P: PodView>(pods: Vec<P>) -> Vec<String> {
    let now = NOW.parse().unwrap();
    let fact = |pod: &P| {
        format!(
            "{} {:?} {:?} {} {:?} {:?} {} {} {} {} {:?}",
            pod.key(),
            pod.controller_uid(),
            pod.created_at(),
            pod.node(),
            pod.phase(),
            pod.readiness(),
            pod.deletion_cost(),
            pod.max_restarts(),
            pod.max_sidecar_restarts(),
            is_pod_available(pod, 5, now),
            next_pod_availability(pod, 30, now),
        )
    };
    let mut facts: Vec<_> = pods.iter().map(fact).collect();
    let mut cache = StoreWriter::new(pod_indexers());
    for pod in pods {
        cache.apply(Arc::new(pod));
    }
    let store = cache.reader();
    let read = store.read();
    let owner = OwnerIdentity {
        api_version: "example.org/v1".into(),
        kind: "Pool".into(),
        namespace: "shop".into(),
        name: "pool".into(),
        uid: "pool-uid".into(),
        deleting: false,
    };
    let mut owned: Vec<_> = pods_of(&read, &owner).cloned().collect();
    owned.sort_by_key(|pod| pod.key());
    facts.push(format!("{} owned, {} orphans", owned.len(), orphan_pods(&read, "shop").count()));
    facts.push(format!("{} terminating", count_terminating_pods(&owned)));
    let active = active_pods(&owned);
    let related = NodeCounts::of(&active);
    let ranked = rank_for_deletion(&active, active.len() - 1, &Ranking::new(&related, now));
    facts.extend(ranked.iter().map(|ranked| format!("{}: {}", ranked.pod.key(), ranked.criterion)));
    facts
}

#[test]
fn same_as_pods_of_kcm_api() {
    let decoder = PodDecoder::default();
    let lean = objects().iter().map(|object| decoder.decode_value(object).unwrap()).collect();
    let full: Vec<Pod> =
        objects().into_iter().map(|object| serde_json::from_value(object).unwrap()).collect();
    let (lean, full) = (facts(lean), facts(full));
    assert_eq!(full, lean);
    assert_eq!(full[objects().len()..][..2], ["15 owned, 1 orphans", "1 terminating"]);
}
