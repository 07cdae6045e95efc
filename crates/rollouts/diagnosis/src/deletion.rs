//! Objects of a rollout that are being deleted.

use kcm_clock::Timestamp;
use serde_json::Value;

use crate::{
    cause::Cause,
    duration::short,
    finding::Finding,
    json::{finalizers, is_terminating, text, time},
    rollout::Rollout,
    snapshot::Snapshot,
};

/// Finds deletions of the Deployment, its new ReplicaSet and its namespace.
pub(crate) fn explain(rollout: &Rollout<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(mut deleted) = of("deployment", rollout.object, rollout.now) {
        if finalizers(rollout.object).contains(&"foregroundDeletion") && rollout.is_known() {
            let (sets, pods) = (rollout.set_objects.len(), rollout.pods.len());
            deleted.message.push_str(&format!(" Its {sets} ReplicaSets and {pods} pods are deleted first."));
        }
        found.push(deleted);
    }
    if let Some(set) = rollout.new_set().filter(|set| is_terminating(set)) {
        let name = text(set, "/metadata/name");
        let held = held(set, rollout.now);
        let message = format!("ReplicaSet {name} is being deleted{held}. It gets no new pods.");
        found.push(Finding::blocks(Cause::ReplicaSetDeleted, message).object(name));
    }
    found.extend(of_namespace(rollout.snapshot, rollout.now));
    found
}

/// Finds the deletion of the workload.
pub(crate) fn of(resource: &str, object: &Value, now: Timestamp) -> Option<Finding> {
    is_terminating(object).then(|| {
        let text = format!("The {resource} is being deleted{}.", held(object, now));
        Finding::blocks(Cause::DeploymentDeleted, text)
    })
}

/// Finds the deletion of the namespace.
pub(crate) fn of_namespace(snapshot: &Snapshot, now: Timestamp) -> Option<Finding> {
    let namespace = snapshot.namespace.known()?.as_ref().filter(|namespace| is_terminating(namespace))?;
    let name = text(namespace, "/metadata/name");
    let message =
        format!("Namespace {name} is being deleted{}. It accepts no new objects.", held(namespace, now));
    Some(Finding::blocks(Cause::NamespaceTerminating, message).object(name))
}

/// Time of the deletion and the finalizers that hold it.
fn held(object: &Value, now: Timestamp) -> String {
    let since = time(object, "/metadata/deletionTimestamp").map(|at| now.duration_since(at));
    let since = since.map(|since| format!(" since {}", short(since))).unwrap_or_default();
    match &*finalizers(object) {
        [] => since,
        finalizers => format!("{since}; finalizers: {}", finalizers.join(", ")),
    }
}
