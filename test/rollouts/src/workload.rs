//! Scenarios of StatefulSets and DaemonSets, as objects: the embedded API server does not serve these kinds.

use std::{path::Path, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    objects::{NAMESPACE, merge},
    scenario::{LoadError, Truth, duration},
};

/// Time at which the objects of the scenarios are read.
pub const NOW: &str = "2026-01-15T01:00:00Z";
/// UID of the workload.
const UID: &str = "u-1";
/// Number of pods of a workload.
const PODS: usize = 3;

/// Scenario of a StatefulSet or a DaemonSet.
///
/// The cluster has the nodes `node-0` to `node-2`, the namespace `shop`, a current Lease of kube-controller-manager, and
/// the StatefulSet `db` with 3 replicas or the DaemonSet `agent` on the 3 nodes. Its template was changed 10 minutes
/// ago, and its controller has observed the change and created a ControllerRevision. The numbers in its status are those of
/// the pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadScenario {
    /// Name, unique in all files.
    pub name: String,
    /// Rules that the scenario covers, of [`RULES`](crate::RULES).
    #[serde(default)]
    pub rules: Vec<String>,
    /// Kind of the workload.
    pub kind: WorkloadKind,
    /// Merge patch of the workload.
    #[serde(default)]
    pub patch: Value,
    /// Pods of the workload.
    #[serde(default)]
    pub pods: Vec<PodState>,
    /// Events of type Warning.
    #[serde(default)]
    pub events: Vec<EventState>,
    /// Other objects. Those that exist are merged with them.
    #[serde(default)]
    pub objects: Vec<Value>,
    /// Truth.
    pub truth: Truth,
}

/// Kind of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum WorkloadKind {
    /// StatefulSet of `apps/v1`.
    StatefulSet,
    /// DaemonSet of `apps/v1`.
    DaemonSet,
}

/// Pod of a workload.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodState {
    /// Number of the pod: its ordinal, or the number of its node.
    pub number: usize,
    /// Revision of its template.
    pub revision: Revision,
    /// `true` if the container runs and the pod is ready. Otherwise the patch contains the state.
    #[serde(default)]
    pub ready: bool,
    /// Time since its creation.
    #[serde(default = "age", deserialize_with = "duration")]
    pub age: Duration,
    /// Merge patch of the pod.
    #[serde(default)]
    pub patch: Value,
}

fn age() -> Duration {
    Duration::from_secs(9 * 60)
}

/// Revision of a pod template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Revision {
    /// The current template.
    New,
    /// The template before.
    Old,
}

impl Revision {
    fn hash(self) -> &'static str {
        match self {
            Self::New => "6d4f9c",
            Self::Old => "58b7dd",
        }
    }

    fn image(self) -> &'static str {
        match self {
            Self::New => "app:2",
            Self::Old => "app:1",
        }
    }

    /// Time since its template was set.
    fn age(self) -> Duration {
        match self {
            Self::New => Duration::from_secs(10 * 60),
            Self::Old => Duration::from_secs(50 * 60),
        }
    }

    fn template(self) -> Value {
        json!({ "spec": { "containers": [{ "name": "app", "image": self.image() }] } })
    }
}

/// Event of type Warning.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventState {
    /// Number of the pod. `None` for an event of the workload.
    pub pod: Option<usize>,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// Time since the first occurrence. Its repetitions are equal.
    #[serde(default = "age", deserialize_with = "duration")]
    pub first: Duration,
    /// Time since the last repetition.
    #[serde(deserialize_with = "duration")]
    pub age: Duration,
}

/// Time before [`NOW`].
fn ago(age: Duration) -> String {
    let seconds = (60 * 60_u64).saturating_sub(age.as_secs());
    format!("2026-01-15T{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

impl WorkloadScenario {
    /// The workload.
    pub fn workload(&self) -> Value {
        let count =
            |is_counted: &dyn Fn(&PodState) -> bool| self.pods.iter().filter(|pod| is_counted(pod)).count();
        let updated = count(&|pod| pod.revision == Revision::New);
        let (ready, all) = (count(&|pod| pod.ready), self.pods.len());
        let status = match self.kind {
            WorkloadKind::StatefulSet => json!({
                "observedGeneration": 2, "replicas": all, "updatedReplicas": updated,
                "currentReplicas": all - updated, "readyReplicas": ready, "availableReplicas": ready,
                "currentRevision": format!("db-{}", Revision::Old.hash()),
                "updateRevision": format!("db-{}", Revision::New.hash()), "collisionCount": 0,
            }),
            WorkloadKind::DaemonSet => json!({
                "observedGeneration": 2, "desiredNumberScheduled": PODS, "currentNumberScheduled": all,
                "updatedNumberScheduled": updated, "numberReady": ready, "numberAvailable": ready,
                "numberUnavailable": PODS.saturating_sub(ready), "numberMisscheduled": 0,
            }),
        };
        let name = self.prefix();
        let mut workload = json!({
            "metadata": {
                "name": name, "namespace": NAMESPACE, "uid": UID, "generation": 2, "labels": { "app": name },
                "creationTimestamp": ago(Revision::Old.age()),
                "managedFields": [{
                    "manager": "kubectl-set", "operation": "Update", "time": ago(Revision::New.age()),
                    "fieldsV1": { "f:spec": { "f:template": {} } },
                }],
            },
            "spec": {
                "selector": { "matchLabels": { "app": name } }, "updateStrategy": { "type": "RollingUpdate" },
                "template": Revision::New.template(),
            },
            "status": status,
        });
        if self.kind == WorkloadKind::StatefulSet {
            workload["spec"]["replicas"] = json!(PODS);
            workload["spec"]["podManagementPolicy"] = json!("OrderedReady");
        }
        merge_members(&mut workload, &self.patch);
        workload
    }

    /// The objects of the cluster without the workload. Each has a `kind`.
    pub fn objects(&self) -> Vec<Value> {
        let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": ago(Duration::from_secs(3600)) }]);
        let node = |number| json!({ "kind": "Node", "metadata": { "name": format!("node-{number}") }, "status": { "conditions": ready } });
        let mut objects: Vec<Value> = (0..PODS).map(node).collect();
        objects.push(json!({ "kind": "Namespace", "metadata": { "name": NAMESPACE } }));
        objects.push(json!({
            "kind": "Lease", "metadata": { "name": "kube-controller-manager", "namespace": "kube-system" },
            "spec": { "holderIdentity": "master-1", "leaseDurationSeconds": 15, "renewTime": ago(Duration::from_secs(1)) },
        }));
        let is_observed = self.workload()["status"]["observedGeneration"] == 2;
        let revisions = [Revision::Old, Revision::New].into_iter().take(if is_observed { 2 } else { 1 });
        objects.extend(revisions.map(|revision| self.revision(revision)));
        for object in &self.objects {
            let is_same = |one: &&mut Value| {
                one["kind"] == object["kind"] && one["metadata"]["name"] == object["metadata"]["name"]
            };
            match objects.iter_mut().find(is_same) {
                Some(known) => merge(known, object),
                None => objects.push(object.clone()),
            }
        }
        objects.extend(self.pods.iter().map(|pod| self.pod(pod)));
        objects.extend(self.events.iter().map(|event| self.event(event)));
        objects
    }

    /// Name of the workload.
    fn prefix(&self) -> &'static str {
        match self.kind {
            WorkloadKind::StatefulSet => "db",
            WorkloadKind::DaemonSet => "agent",
        }
    }

    /// ControllerRevision of a template, as the controllers write it.
    fn revision(&self, revision: Revision) -> Value {
        let mut template = revision.template();
        template["$patch"] = json!("replace");
        json!({
            "kind": "ControllerRevision",
            "metadata": {
                "name": format!("{}-{}", self.prefix(), revision.hash()), "namespace": NAMESPACE,
                "creationTimestamp": ago(revision.age()), "ownerReferences": [{ "uid": UID, "controller": true }],
            },
            "data": { "spec": { "template": template } },
        })
    }

    fn pod_name(&self, number: usize) -> String {
        match self.kind {
            WorkloadKind::StatefulSet => format!("db-{number}"),
            WorkloadKind::DaemonSet => format!("agent-x{number}k8v"),
        }
    }

    fn pod(&self, pod: &PodState) -> Value {
        let (name, created) = (self.pod_name(pod.number), ago(pod.age));
        let started = ago(pod.age.saturating_sub(Duration::from_secs(5)));
        let hash = match self.kind {
            WorkloadKind::StatefulSet => format!("db-{}", pod.revision.hash()),
            WorkloadKind::DaemonSet => pod.revision.hash().to_owned(),
        };
        let image = pod.revision.image();
        let ready = if pod.ready { "True" } else { "False" };
        let mut container = json!({ "name": "app", "image": image, "ready": pod.ready, "restartCount": 0 });
        if pod.ready {
            container["state"] = json!({ "running": { "startedAt": started } });
        }
        let mut object = json!({
            "kind": "Pod",
            "metadata": {
                "name": name, "namespace": NAMESPACE, "uid": name, "creationTimestamp": created,
                "labels": { "app": self.prefix(), "controller-revision-hash": hash },
                "ownerReferences": [{ "uid": UID, "controller": true, "name": self.prefix() }],
            },
            "spec": { "nodeName": format!("node-{}", pod.number), "containers": [{ "name": "app", "image": image }] },
            "status": {
                "phase": if pod.ready { "Running" } else { "Pending" },
                "conditions": [
                    { "type": "PodScheduled", "status": "True", "lastTransitionTime": created },
                    { "type": "ContainersReady", "status": ready, "lastTransitionTime": started },
                    { "type": "Ready", "status": ready, "lastTransitionTime": started },
                ],
                "containerStatuses": [container],
            },
        });
        merge_members(&mut object, &pod.patch);
        object
    }

    fn event(&self, event: &EventState) -> Value {
        let uid = event.pod.map_or_else(|| UID.to_owned(), |number| self.pod_name(number));
        json!({
            "kind": "Event", "metadata": { "namespace": NAMESPACE }, "involvedObject": { "uid": uid },
            "type": "Warning", "reason": event.reason, "message": event.message, "count": 1,
            "firstTimestamp": ago(event.first), "lastTimestamp": ago(event.age),
        })
    }
}

/// Merges the patch, unless it is absent.
fn merge_members(target: &mut Value, patch: &Value) {
    if patch.is_object() {
        merge(target, patch);
    }
}

/// Loads the scenarios of a directory, in the order of the files' names.
pub fn load_workloads(directory: &Path) -> Result<Vec<WorkloadScenario>, LoadError> {
    let mut scenarios: Vec<WorkloadScenario> = Vec::new();
    for (path, text) in crate::scenario::read(directory)? {
        let parsed: Vec<WorkloadScenario> = serde_saphyr::from_str(&text)
            .map_err(|error| LoadError::Parse { path, reason: error.to_string() })?;
        for scenario in parsed {
            scenario
                .truth
                .check(&scenario.rules)
                .map_err(|reason| LoadError::Invalid { name: scenario.name.clone(), reason })?;
            scenarios.push(scenario);
        }
    }
    Ok(scenarios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(ago(Duration::ZERO), NOW);
        assert_eq!(ago(Duration::from_secs(61)), "2026-01-15T00:58:59Z");
    }

    #[test]
    fn status_counts_the_pods() {
        let text = "{name: n, kind: StatefulSet, patch: {status: {replicas: 7}}, truth: {state: stuck}, \
                    pods: [{number: 0, revision: old, ready: true}, {number: 1, revision: new}]}";
        let scenario: WorkloadScenario = serde_saphyr::from_str(text).unwrap();
        let status = &scenario.workload()["status"];
        assert_eq!((&status["updatedReplicas"], &status["readyReplicas"]), (&json!(1), &json!(1)));
        assert_eq!(status["replicas"], 7);
    }
}
