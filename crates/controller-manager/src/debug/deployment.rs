//! State of a Deployment.

use kcm_api::ReplicaSet;
use kcm_deployment_controller::{BlockedOn, Inspection, Plan, PlanEnd, PlannedAction};
use kcm_runtime::Requeue;
use serde_json::{Value, json};

use super::{MAX_ELEMENTS, blocked, blocked_key, last_sync, queue, shortened};

/// Formats the state of a Deployment. `None` if the cache does not contain it.
pub(crate) fn deployment(state: &Inspection) -> Option<Value> {
    let view = state.view.as_ref()?;
    let (metadata, status) = (&view.deployment.metadata, &view.deployment.status);
    let sets = view.replica_sets.iter().take(MAX_ELEMENTS);
    Some(json!({
        "namespace": *metadata.namespace,
        "name": *metadata.name,
        "uid": *metadata.uid,
        "resourceVersion": *metadata.resource_version,
        "cachedResourceVersion": state.cached_version.as_deref(),
        "generation": metadata.generation,
        "observedGeneration": status.observed_generation,
        "replicaSets": sets.map(|set| replica_set(set)).collect::<Vec<_>>(),
        "replicaSetCount": view.replica_sets.len(),
        "claims": state.claims,
        "queue": queue(&state.key.queue),
        "lastSync": last_sync(state.key.last_sync.as_ref()),
        "plan": state.plan.as_ref().map(plan),
        "blockedOn": blocked_on(state),
    }))
}

fn replica_set(set: &ReplicaSet) -> Value {
    json!({
        "name": *set.metadata.name,
        "uid": *set.metadata.uid,
        "resourceVersion": *set.metadata.resource_version,
        "replicas": set.replicas(),
        "availableReplicas": set.status.available_replicas,
    })
}

fn plan(plan: &Plan) -> Value {
    let action = |planned: &PlannedAction| {
        json!({
            "action": planned.action.to_string(),
            "reason": planned.reason.as_ref().map(ToString::to_string),
        })
    };
    let (requeue, error) = match &plan.end {
        PlanEnd::Done(Ok(outcome)) => match outcome.requeue() {
            Requeue::After(delay) => (Some(delay.as_secs_f64()), None),
            Requeue::Done | Requeue::RateLimited => (None, None),
        },
        PlanEnd::Done(Err(error)) => (None, Some(shortened(&error.to_string()))),
        PlanEnd::ResultRequired => (None, None),
    };
    json!({
        "actions": plan.actions.iter().take(MAX_ELEMENTS).map(action).collect::<Vec<_>>(),
        "actionCount": plan.actions.len(),
        "requeueAfterSeconds": requeue,
        "error": error,
    })
}

fn blocked_on(state: &Inspection) -> Vec<Value> {
    let planned = match state.plan.as_ref().map(|plan| &plan.end) {
        Some(PlanEnd::Done(Ok(outcome))) => Some(outcome.blocked_on),
        _ => None,
    };
    let planned = planned.filter(|on| *on != BlockedOn::Nothing);
    let planned = planned.map(|on| blocked(reason(on), on.to_string()));
    blocked_key(&state.key).into_iter().chain(planned).collect()
}

fn reason(on: BlockedOn) -> &'static str {
    match on {
        BlockedOn::Nothing => "nothing",
        BlockedOn::ReplicaSetStatus => "replicaSetStatus",
        BlockedOn::NewPods { .. } => "newPods",
        BlockedOn::OldPods => "oldPods",
        BlockedOn::DesiredReplicasAnnotation => "desiredReplicasAnnotation",
        BlockedOn::DeploymentUpdate => "deploymentUpdate",
        BlockedOn::Resume => "resume",
        BlockedOn::Deletion => "deletion",
        BlockedOn::Selector => "selector",
    }
}
