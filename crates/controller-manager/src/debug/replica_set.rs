//! State of a ReplicaSet or ReplicationController.

use kcm_replicaset_controller::{Inspection, ManageBlock, Plan, PodDeletion};
use serde_json::{Value, json};

use super::{MAX_ELEMENTS, blocked, blocked_key, last_sync, queue};

/// Formats the state of a ReplicaSet. `None` if the cache does not contain it.
pub(crate) fn replica_set(state: &Inspection) -> Option<Value> {
    let view = state.view.as_ref()?;
    let metadata = &view.replica_set.metadata;
    let (creations, deletions) = state.expectations.unwrap_or_default();
    let pending = state.pending_creates.iter().take(MAX_ELEMENTS);
    Some(json!({
        "namespace": *metadata.namespace,
        "name": *metadata.name,
        "uid": *metadata.uid,
        "resourceVersion": *metadata.resource_version,
        "generation": metadata.generation,
        "observedGeneration": view.replica_set.status.observed_generation,
        "replicas": view.replica_set.replicas(),
        "activePods": view.active.len(),
        "terminatingPods": view.terminating,
        "claims": state.claims,
        "expectations": { "creations": creations, "deletions": deletions },
        "pendingCreates": pending.map(|name| &**name).collect::<Vec<_>>(),
        "pendingCreateCount": state.pending_creates.len(),
        "queue": queue(&state.key.queue),
        "lastSync": last_sync(state.key.last_sync.as_ref()),
        "plan": state.plan.as_ref().map(plan),
        "blockedOn": blocked_on(state),
    }))
}

fn plan(plan: &Plan) -> Value {
    let reason = plan.reason().to_string();
    match plan {
        Plan::Nothing { .. } => json!({ "action": "nothing", "reason": reason }),
        Plan::CreatePods { count, .. } => json!({ "action": "createPods", "count": count, "reason": reason }),
        Plan::DeletePods { pods, .. } => {
            let deletion = |deletion: &PodDeletion| json!({ "name": *deletion.pod.key.name, "reason": deletion.reason.to_string() });
            json!({
                "action": "deletePods",
                "count": pods.len(),
                "pods": pods.iter().take(MAX_ELEMENTS).map(deletion).collect::<Vec<_>>(),
                "reason": reason,
            })
        }
    }
}

fn blocked_on(state: &Inspection) -> Vec<Value> {
    let not_ready = state.not_ready.as_ref().map(|behind| blocked("ownWrites", behind.to_string()));
    let managed = state.view.as_ref().and_then(|view| match view.block? {
        ManageBlock::BeingDeleted => Some(blocked("deletion", "the object is being deleted")),
        ManageBlock::ExpectationsPending => {
            let (creations, deletions) = state.expectations.unwrap_or_default();
            let message = format!("{creations} creations and {deletions} deletions are not observed yet");
            Some(blocked("expectations", message))
        }
    });
    blocked_key(&state.key).into_iter().chain(not_ready).chain(managed).collect()
}
