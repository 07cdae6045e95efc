//! The diagnosis of a world or of objects: the only file that uses the types of `kcm-rollouts`.

use kcm_preview::try_commands;
use kcm_rollouts::{
    Cause, ControllerState, Known, Snapshot, Unreadable, Workload, diagnose, diagnose_workload,
};
use kcm_sandbox::rollout_snapshot;
use rollout_scenarios::{CAUSES, NOW, WorkloadKind, WorkloadScenario, objects::NAMESPACE};
use serde_json::Value;

use crate::world::World;

/// Diagnoses the Deployment as a reader that may not read `hidden`, at the time of the server, and tries the commands as
/// `kubectl rollouts why` does. Returns the JSON form.
pub(crate) fn diagnosis(world: &World, hidden: &[String]) -> Value {
    let mut snapshot = rollout_snapshot(&world.server, NAMESPACE);
    for resource in hidden {
        hide(&mut snapshot, resource);
    }
    let queues = world.queues();
    snapshot.controllers = queues.iter().map(|(kind, state)| ControllerState::parse(kind, state)).collect();
    snapshot.controllers.retain(|state| !state.is_settled());
    let deployment = world.deployment();
    match diagnose(&snapshot, &deployment, world.now()) {
        Ok(mut diagnosis) => {
            try_commands(&snapshot, &deployment, world.now(), &mut diagnosis);
            serde_json::to_value(diagnosis).unwrap()
        }
        Err(error) => panic!("{error}"),
    }
}

/// Diagnoses a StatefulSet or DaemonSet. Returns the JSON form.
pub(crate) fn workload_diagnosis(scenario: &WorkloadScenario) -> Value {
    let of_kind = |kind: &str| -> Vec<Value> {
        scenario.objects().into_iter().filter(|object| object["kind"] == kind).collect()
    };
    let list = |kind: &str| Known::Read(of_kind(kind));
    let snapshot = Snapshot {
        deployments: list("Deployment"),
        replica_sets: list("ReplicaSet"),
        pods: list("Pod"),
        events: list("Event"),
        quotas: list("ResourceQuota"),
        limit_ranges: list("LimitRange"),
        disruption_budgets: list("PodDisruptionBudget"),
        autoscalers: list("HorizontalPodAutoscaler"),
        controller_revisions: list("ControllerRevision"),
        nodes: Known::Read(of_kind("Node").into()),
        namespace: Known::Read(of_kind("Namespace").pop()),
        lease: Known::Read(of_kind("Lease").pop()),
        controllers: Vec::new(),
    };
    let workload = match scenario.kind {
        WorkloadKind::StatefulSet => Workload::StatefulSet,
        WorkloadKind::DaemonSet => Workload::DaemonSet,
    };
    let diagnosis = diagnose_workload(&snapshot, workload, &scenario.workload(), NOW.parse().unwrap());
    serde_json::to_value(diagnosis).unwrap()
}

#[test]
fn vocabulary_contains_all_causes() {
    let mut causes: Vec<&str> = Cause::ALL.iter().map(|cause| cause.name()).collect();
    let mut known = CAUSES.to_vec();
    causes.sort_unstable();
    known.sort_unstable();
    assert_eq!(known, causes);
}

fn hide(snapshot: &mut Snapshot, resource: &str) {
    let unread = Unreadable {
        resource: resource.to_owned(),
        reason: format!("{resource} is forbidden: User \"jane\" cannot list resource \"{resource}\""),
        permission: Some(format!("list {resource} in namespace {NAMESPACE}")),
    };
    let list = match resource {
        "replicasets" => &mut snapshot.replica_sets,
        "pods" => &mut snapshot.pods,
        "events" => &mut snapshot.events,
        "resourcequotas" => &mut snapshot.quotas,
        "limitranges" => &mut snapshot.limit_ranges,
        "poddisruptionbudgets" => &mut snapshot.disruption_budgets,
        "horizontalpodautoscalers" => &mut snapshot.autoscalers,
        "nodes" => {
            snapshot.nodes = Known::Unread(unread);
            return;
        }
        "leases" => {
            snapshot.lease = Known::Unread(unread);
            return;
        }
        other => panic!("unknown resource {other:?}"),
    };
    *list = Known::Unread(unread);
}
