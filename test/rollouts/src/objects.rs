//! Objects of the scenarios, and the changes that steps make, independent of the cluster.

use std::time::Duration;

use kcm_api::Time;
use serde_json::{Value, json};

use crate::scenario::{Change, PodEvent, Which};

/// Namespace of the scenarios.
pub const NAMESPACE: &str = "shop";
/// Name of the Deployment.
pub const NAME: &str = "web";
/// Time from binding to the start of containers.
pub const START: Duration = Duration::from_secs(5);
/// Time from deletion to removal of pods.
pub const STOP: Duration = Duration::from_secs(2);

/// Manifest of the Deployment with a change.
pub fn manifest(change: &Change) -> Value {
    let mut manifest = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": NAME, "namespace": NAMESPACE },
        "spec": {
            "replicas": 4,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" }, "annotations": { "kube-sandbox/behavior": "{}" } },
                "spec": { "containers": [{ "name": "app", "image": "app:1" }] },
            },
        },
    });
    merge(&mut manifest, &patch_of(change));
    manifest
}

/// Merges a patch into an object. Lists of objects with names are merged by name.
pub fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (name, value) in patch {
                if value.is_null() {
                    target.remove(name);
                } else {
                    merge(target.entry(name.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(target), Value::Array(patch)) if patch.iter().all(|one| one["name"].is_string()) => {
            for value in patch {
                match target.iter_mut().find(|one| one["name"] == value["name"]) {
                    Some(known) => merge(known, value),
                    None => target.push(value.clone()),
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// Strategic merge patch of a change.
pub fn patch_of(change: &Change) -> Value {
    let mut patch = json!({});
    if let Some(spec) = &change.spec {
        patch["spec"] = spec.clone();
    }
    if let Some(pod) = &change.pod {
        patch["spec"]["template"]["spec"] = pod.clone();
    }
    if let Some(image) = &change.image {
        let app = json!([{ "name": "app", "image": image }]);
        let containers = &mut patch["spec"]["template"]["spec"]["containers"];
        if containers.is_array() {
            merge(containers, &app);
        } else {
            *containers = app;
        }
    }
    if let Some(behavior) = &change.behavior {
        let annotations = json!({ "kube-sandbox/behavior": behavior.to_string() });
        patch["spec"]["template"]["metadata"]["annotations"] = annotations;
    }
    if let Some(metadata) = &change.metadata {
        patch["metadata"] = metadata.clone();
    }
    patch
}

/// Selects pods of the Deployment, sorted by name.
pub fn select_pods(mut pods: Vec<Value>, deployment: &Value, which: Which, count: usize) -> Vec<Value> {
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    pods.retain(|pod| {
        let is_new = pod["spec"]["containers"][0]["image"] == *image;
        let selected = match which {
            Which::All => true,
            Which::New => is_new,
            Which::Old => !is_new,
        };
        selected && pod["metadata"]["labels"]["app"] == "web"
    });
    pods.sort_by_key(|pod| pod["metadata"]["name"].to_string());
    pods.truncate(count);
    pods
}

/// Name of the ReplicaSet with the highest revision, or with the one before it.
pub fn replica_set_name(mut sets: Vec<Value>, new: bool) -> Option<String> {
    let revision = |set: &Value| {
        let revision = set["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str();
        revision.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0)
    };
    sets.sort_by_key(|set| -revision(set));
    sets.get(usize::from(!new))?["metadata"]["name"].as_str().map(str::to_owned)
}

/// Warning about a pod.
pub fn warning(event: &PodEvent, pod: &Value, now: Time) -> Value {
    let metadata = &pod["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": format!("{name}.{}", event.reason.to_lowercase()) },
        "involvedObject": {
            "kind": "Pod", "namespace": metadata["namespace"], "name": name, "uid": metadata["uid"],
        },
        "type": "Warning", "reason": event.reason, "message": event.message, "count": 1,
        "firstTimestamp": now, "lastTimestamp": now,
    })
}

/// Patch of the status with a condition that has changed.
pub fn condition_patch(type_: &str, status: &str, now: Time) -> Value {
    json!({ "status": { "conditions": [{ "type": type_, "status": status, "lastTransitionTime": now }] } })
}

/// Patch of the status of a node whose kubelet has stopped.
pub fn lost_node_patch(now: Time) -> Value {
    let mut patch = condition_patch("Ready", "Unknown", now);
    let condition = &mut patch["status"]["conditions"][0];
    condition["reason"] = json!("NodeStatusUnknown");
    condition["message"] = json!("Kubelet stopped posting node status.");
    patch
}
