//! The diagnosis of a world: the only file that uses the types of `kcm-rollouts`.

use kcm_preview::try_commands;
use kcm_rollouts::{Known, Snapshot, Unreadable, diagnose};
use kcm_sandbox::rollout_snapshot;
use rollout_scenarios::objects::NAMESPACE;
use serde_json::Value;

use crate::world::World;

/// Diagnoses the Deployment as a reader that may not read `hidden`, at the time of the server, and tries the commands as
/// `kubectl rollouts why` does. Returns the JSON form.
pub(crate) fn diagnosis(world: &World, hidden: &[String]) -> Value {
    let mut snapshot = rollout_snapshot(&world.server, NAMESPACE);
    for resource in hidden {
        hide(&mut snapshot, resource);
    }
    let deployment = world.deployment();
    match diagnose(&snapshot, &deployment, world.now()) {
        Ok(mut diagnosis) => {
            try_commands(&snapshot, &deployment, world.now(), &mut diagnosis);
            serde_json::to_value(diagnosis).unwrap()
        }
        Err(error) => panic!("{error}"),
    }
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
        "nodes" => &mut snapshot.nodes,
        "leases" => {
            snapshot.lease = Known::Unread(unread);
            return;
        }
        other => panic!("unknown resource {other:?}"),
    };
    *list = Known::Unread(unread);
}
