//! Commands that change the Deployment, tried in the embedded cluster.

use kcm_clock::Timestamp;
use kcm_rollouts::{Command, Diagnosis, Remedy, json::condition};
use serde_json::{Map, Value};

use crate::{Change, Snapshot, TimingOptions, preview};

/// Number of pods up to which a command is tried.
const MAX_PODS: usize = 500;

/// Predicts the course of the commands of `diagnosis` that change the Deployment. Removes those that do not complete the
/// rollout.
///
/// `snapshot` contains the objects at `now` that the diagnosis is based on. Without the ReplicaSets and pods, and for
/// Deployments of more than 500 pods, the commands remain as they are.
pub fn try_commands(
    snapshot: &kcm_rollouts::Snapshot,
    deployment: &Value,
    now: Timestamp,
    diagnosis: &mut Diagnosis,
) {
    let (Some(replica_sets), Some(pods)) = (snapshot.replica_sets.known(), snapshot.pods.known()) else {
        return;
    };
    if usize::try_from(diagnosis.replicas.desired).map_or(true, |desired| desired > MAX_PODS) {
        return;
    }
    let cluster = Snapshot {
        taken: now,
        namespace: diagnosis.namespace.clone(),
        name: diagnosis.name.clone(),
        deployment: Some(deployment.clone()),
        replica_sets: replica_sets.clone(),
        pods: pods.clone(),
        quotas: snapshot.quotas.seen().to_vec(),
        limit_ranges: snapshot.limit_ranges.seen().to_vec(),
        events: snapshot.events.seen().to_vec(),
        ..Snapshot::default()
    };
    diagnosis.commands.retain_mut(|command| is_useful(&cluster, command));
}

/// `false` if the command changes the Deployment and its rollout would not complete.
fn is_useful(cluster: &Snapshot, command: &mut Command) -> bool {
    let mut cluster = cluster.clone();
    let change = match &command.remedy {
        None => return true,
        Some(Remedy::Undo) => Change::Undo { revision: None },
        Some(Remedy::Patch(patch)) => {
            cluster.pods.retain(|pod| {
                condition(pod, "PodScheduled").is_none_or(|scheduled| scheduled["status"] != "False")
            });
            let Some(mut desired) = cluster.deployment.clone() else { return true };
            merge(&mut desired, patch);
            Change::Desired(desired)
        }
    };
    let Ok(course) = preview(&cluster, &change, &TimingOptions::default()) else { return false };
    let Some(seconds) = course.outcome.duration_seconds else { return false };
    command.course = Some(format!("completes in about {seconds:.0}s if the new pods become ready"));
    true
}

/// Applies a merge patch without removals.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (name, member) in members {
        if let Some(target) = target.as_object_mut() {
            merge(target.entry(name).or_insert(Value::Null), member);
        }
    }
}
