//! Measures the time of a preview for Deployments of several sizes.
//!
//! ```text
//! cargo run --release -p kcm-preview --example preview_time
//! ```

use kcm_clock::{Clock, RealClock, Timestamp};
use kcm_preview::{Change, PreviewError, Snapshot, TimingOptions, preview};
use serde_json::{Value, json};

const CREATED: &str = "2026-01-01T00:00:00Z";
const READY: &str = "2026-01-01T00:00:08Z";

fn main() -> Result<(), PreviewError> {
    let clock = RealClock::new();
    let change = Change::Image { container: None, image: "web:2".to_owned() };
    for pods in [10, 100, 1000, 10_000] {
        let snapshot = snapshot(pods);
        let start = clock.monotonic();
        let preview = preview(&snapshot, &change, &TimingOptions::default())?;
        let took = clock.monotonic().saturating_sub(start);
        let outcome = &preview.outcome;
        println!(
            "{pods:>5} pods: {took:.3?}; {:?} after {:?} s, {} pods created",
            outcome.end, outcome.duration_seconds, outcome.pods_created
        );
    }
    Ok(())
}

/// Settled Deployment with this number of pods.
fn snapshot(pods: usize) -> Snapshot {
    let template = |hash: Option<&str>| {
        let mut labels = json!({ "app": "web" });
        if let Some(hash) = hash {
            labels["pod-template-hash"] = hash.into();
        }
        json!({
            "metadata": { "labels": labels },
            "spec": {
                "containers": [{ "name": "app", "image": "web:1" }],
                "terminationGracePeriodSeconds": 30,
            },
        })
    };
    let status = json!({
        "observedGeneration": 1, "replicas": pods, "updatedReplicas": pods, "readyReplicas": pods,
        "availableReplicas": pods,
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "deployment", "generation": 1, "creationTimestamp": CREATED,
            "annotations": { "deployment.kubernetes.io/revision": "1" },
        },
        "spec": {
            "replicas": pods, "selector": { "matchLabels": { "app": "web" } }, "template": template(None),
            "strategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" },
            },
            "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
        },
        "status": status,
    });
    let owner = |kind: &str, name: &str, uid: &str| json!([{ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true }]);
    let replica_set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": "web-1", "namespace": "shop", "uid": "set", "generation": 1, "creationTimestamp": CREATED,
            "labels": { "app": "web", "pod-template-hash": "1" },
            "annotations": {
                "deployment.kubernetes.io/revision": "1",
                "deployment.kubernetes.io/desired-replicas": pods.to_string(),
                "deployment.kubernetes.io/max-replicas": (pods + pods.div_ceil(4)).to_string(),
            },
            "ownerReferences": owner("Deployment", "web", "deployment"),
        },
        "spec": {
            "replicas": pods, "template": template(Some("1")),
            "selector": { "matchLabels": { "app": "web", "pod-template-hash": "1" } },
        },
        "status": { "observedGeneration": 1, "replicas": pods, "fullyLabeledReplicas": pods, "readyReplicas": pods,
            "availableReplicas": pods },
    });
    let pod = |number: usize| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("web-1-{number}"), "namespace": "shop", "uid": format!("pod-{number}"),
                "creationTimestamp": CREATED, "labels": { "app": "web", "pod-template-hash": "1" },
                "ownerReferences": owner("ReplicaSet", "web-1", "set"),
            },
            "spec": { "nodeName": format!("node-{}", number % 10), "containers": [{ "name": "app", "image": "web:1" }] },
            "status": {
                "phase": "Running",
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": READY }],
                "containerStatuses": [{ "name": "app", "ready": true, "restartCount": 0 }],
            },
        })
    };
    let pods: Vec<Value> = (0..pods).map(pod).collect();
    Snapshot {
        taken: Timestamp::from_second(1_767_230_000).unwrap_or_default(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        deployment: Some(deployment),
        replica_sets: vec![replica_set],
        pods,
        ..Snapshot::default()
    }
}
