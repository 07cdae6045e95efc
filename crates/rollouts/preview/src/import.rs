//! Copies objects of a cluster into the embedded API server.

use std::{collections::BTreeSet, sync::Arc};

use kcm_apiserver::{ApiServer, ApiStatus, Resource, WriteOptions};
use kcm_clock::Timestamp;
use serde_json::{Value, json};

use crate::{
    Snapshot,
    change::ChangeRequest,
    cluster::WARM_UP,
    json::{condition, list, members, number, remove, set, text, time},
    timings::{Timings, is_finished, ready_since},
};

/// Prefix of the annotations that the simulated kubelet acts on.
const SANDBOX: &str = "kube-sandbox/";
/// Longer than every run: the simulated kubelet does not start the pod.
const NEVER: &str = "10000h";

/// Shortest time until an event of an existing pod. The controllers run before the change, and must not react to events of
/// that time: the times in objects have a resolution of a second, so a pod whose time is over has the event after the change.
const SOONEST: f64 = WARM_UP.as_secs_f64() + 0.05;

/// Stores the objects of `snapshot` in `server`.
///
/// A pod that is not ready becomes ready when its time to readiness has elapsed. An older one, one that has been ready, and
/// one that cannot be scheduled, stay as they are.
pub(crate) fn import(
    server: &Arc<ApiServer>,
    snapshot: &Snapshot,
    request: &ChangeRequest,
    timings: &Timings,
    now: Timestamp,
) -> Result<(), ApiStatus> {
    let namespace = &snapshot.namespace;
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    match server.create(Resource::NAMESPACES, "", body, &WriteOptions::default()) {
        Err(error) if !error.is_already_exists() => return Err(error),
        _ => {}
    }
    for node in nodes(snapshot) {
        server.restore(Resource::NODES, node)?;
    }
    for name in priority_classes(snapshot, request) {
        let class = json!({ "metadata": { "name": name, "uid": format!("class-{name}") }, "value": 0 });
        server.restore(Resource::PRIORITY_CLASSES, class)?;
    }
    for quota in &snapshot.quotas {
        server.restore(Resource::RESOURCE_QUOTAS, enforced(quota, &snapshot.limit_ranges))?;
    }
    if let Some(deployment) = &snapshot.deployment {
        server.restore(Resource::DEPLOYMENTS, without_history(deployment))?;
    }
    for set in snapshot.own_replica_sets() {
        server.restore(Resource::REPLICA_SETS, without_history(set))?;
    }
    let (own, others) = snapshot.split_pods();
    for pod in own {
        let mut pod = without_history(pod);
        if !snapshot.is_sandbox {
            without_sandbox_annotations(&mut pod);
        }
        server.restore(Resource::PODS, simulated(pod, timings, now))?;
    }
    if !snapshot.quotas.is_empty() {
        for pod in others {
            server.restore(Resource::PODS, placeholder(pod))?;
        }
    }
    Ok(())
}

/// Names of the priority classes of the templates. Pods with another class are rejected.
fn priority_classes(snapshot: &Snapshot, request: &ChangeRequest) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let live = snapshot.own_replica_sets().into_iter().chain(&snapshot.deployment);
    live.chain([request.body()]).for_each(|object| find_priority_classes(object, &mut names));
    names.retain(|name| !name.is_empty() && !name.starts_with("system-"));
    names
}

/// Adds the values of all fields `priorityClassName`. The place of the template depends on the format of a patch.
fn find_priority_classes(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            names.extend(members.get("priorityClassName").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| find_priority_classes(member, names));
        }
        Value::Array(elements) => elements.iter().for_each(|element| find_priority_classes(element, names)),
        _ => {}
    }
}

/// Returns the quota as the embedded API server enforces it.
///
/// The embedded API server does not set the defaults of limit ranges. If there are some, the quota has no limits on
/// requests and limits, which [`check_quotas`](crate::capacity::check_quotas) compares with the peak.
fn enforced(quota: &Value, limit_ranges: &[Value]) -> Value {
    let mut quota = without_history(quota);
    let has_defaults = |limit: &Value| limit.get("default").or(limit.get("defaultRequest")).is_some();
    if limit_ranges.iter().flat_map(|range| list(range, "/spec/limits")).any(has_defaults) {
        for pointer in ["/spec/hard", "/status/hard"] {
            if let Some(Value::Object(hard)) = quota.pointer_mut(pointer) {
                hard.retain(|name, _| name == "pods" || name.starts_with("count/"));
            }
        }
    }
    quota
}

/// Returns the nodes of the cluster without their large parts. If none could be read, returns those that the pods run on, and at
/// least one.
fn nodes(snapshot: &Snapshot) -> Vec<Value> {
    if !snapshot.nodes.is_empty() {
        let node = |node: &Value| {
            json!({
                "metadata": {
                    "name": node["metadata"]["name"], "uid": node["metadata"]["uid"],
                    "labels": node["metadata"]["labels"],
                },
                "spec": { "unschedulable": node["spec"]["unschedulable"] },
                "status": {
                    "allocatable": node["status"]["allocatable"], "conditions": node["status"]["conditions"],
                },
            })
        };
        return snapshot.nodes.iter().map(node).collect();
    }
    let mut names: Vec<&str> = snapshot.pods.iter().map(|pod| text(pod, "/spec/nodeName")).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !name.is_empty());
    if names.is_empty() {
        names.push("node");
    }
    let node = |name: &&str| {
        json!({
            "metadata": { "name": name, "uid": format!("node-{name}") },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        })
    };
    names.iter().map(node).collect()
}

fn without_history(object: &Value) -> Value {
    let mut object = object.clone();
    remove(&mut object, "/metadata", "managedFields");
    object
}

/// Returns a pod of the Deployment as of `now`, such that the simulated kubelet continues its course.
fn simulated(mut pod: Value, timings: &Timings, now: Timestamp) -> Value {
    if let Some(end) = time(&pod, "/metadata/deletionTimestamp") {
        let grace = number(&pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(0) as f64;
        let overdue = now.duration_since(end).as_secs_f64();
        let left = timings.stop_after_seconds.min(grace) - grace - overdue;
        annotate(&mut pod, "stop-delay", format!("{:.3}s", left.max(SOONEST)));
        return pod;
    }
    if ready_since(&pod).is_some() || is_finished(&pod) {
        return pod;
    }
    if text(&pod, "/spec/nodeName").is_empty() {
        let scheduled = condition(&pod, "PodScheduled");
        if scheduled.is_some_and(|scheduled| scheduled["reason"] == "Unschedulable") {
            set(&mut pod, &["spec", "schedulingGates"], json!([{ "name": "preview/unschedulable" }]));
        }
        return pod;
    }
    match timings.remaining(&pod, now) {
        Some(left) => {
            annotate(&mut pod, "ready-delay", format!("{:.3}s", left.max(SOONEST)));
            // The simulated kubelet starts pods that are pending.
            set(&mut pod, &["status", "phase"], json!("Pending"));
        }
        None => annotate(&mut pod, "ready-delay", NEVER.to_owned()),
    }
    pod
}

/// Removes the annotations of the sandbox, which users of a real cluster may have set.
pub(crate) fn without_sandbox_annotations(pod: &mut Value) {
    if let Some(Value::Object(annotations)) = pod.pointer_mut("/metadata/annotations") {
        annotations.retain(|name, _| !name.starts_with(SANDBOX));
    }
}

fn annotate(pod: &mut Value, name: &str, value: String) {
    set(pod, &["metadata", "annotations", &format!("{SANDBOX}{name}")], value.into());
}

/// Returns a pod that only counts for quotas: without owner and labels, no controller adopts it.
pub(crate) fn placeholder(pod: &Value) -> Value {
    let mut pod = without_history(pod);
    for field in ["ownerReferences", "labels", "annotations", "finalizers", "deletionTimestamp"] {
        remove(&mut pod, "/metadata", field);
    }
    if !is_finished(&pod) && members(&pod, "/status").next().is_some() {
        set(&mut pod, &["status", "phase"], json!("Running"));
    }
    set(&mut pod, &["spec", "schedulingGates"], json!([{ "name": "preview/other" }]));
    pod
}
