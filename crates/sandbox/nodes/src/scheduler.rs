//! Simulated scheduler: binds each pod to the node with the fewest pods that matches the pod's node selector.
//!
//! Host ports and required anti-affinity to labels on one node are observed, because a rolling update can wait for them
//! forever. Resources, other affinity and taints are ignored, except `spec.unschedulable`: rollouts do not depend on
//! them. Pods of other schedulers are ignored.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use kcm_api::ObjectKey;
use kcm_apiserver::{Object, Resource};
use serde_json::{Map, Value, json};
use tracing::{debug, warn};

use crate::{
    api::{Api, Change, condition, field, key_of},
    yield_budget::YieldBudget,
};

/// Reason of the `PodScheduled` condition of a pod without a node.
const UNSCHEDULABLE: &str = "Unschedulable";

#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    /// Schedulable nodes.
    nodes: BTreeMap<String, NodeState>,
    /// Names of all nodes.
    all_nodes: BTreeSet<String>,
    /// Node of each bound pod, by pod UID.
    assigned: HashMap<String, String>,
    /// Pods without a node. Sorted, so that runs are reproducible.
    pending: BTreeSet<ObjectKey>,
}

#[derive(Debug)]
struct NodeState {
    /// Number of pods.
    pods: usize,
    node: Arc<Object>,
}

impl NodeState {
    /// Reason for which the pod cannot run on the node beside `others`.
    fn excludes(&self, pod: &Value, others: &[Arc<Object>]) -> Option<&'static str> {
        let selector = pod.pointer("/spec/nodeSelector").and_then(Value::as_object);
        if !selector.into_iter().flatten().all(|(key, value)| self.node.label(key) == value.as_str()) {
            return Some("didn't match Pod's node affinity/selector");
        }
        let on_node = |other: &&Arc<Object>| {
            let phase = field(other.value(), "/status/phase");
            field(other.value(), "/spec/nodeName") == self.node.name()
                && !matches!(phase, "Succeeded" | "Failed")
        };
        others.iter().filter(on_node).find_map(|other| {
            if host_ports(pod).any(|port| host_ports(other.value()).any(|used| used == port)) {
                Some("didn't have free ports for the requested pod ports")
            } else if anti_affinities(pod).any(|labels| has_labels(other, labels)) {
                Some("didn't match pod anti-affinity rules")
            } else {
                None
            }
        })
    }
}

impl Scheduler {
    /// Schedules pods until the server has stopped.
    pub(crate) async fn run(mut self, api: Arc<Api>) {
        let mut changes = api.watch(None);
        // All available changes are processed before the first decision.
        while changes.next_all(|change| self.handle_change(change)).await {
            self.schedule_pods(&api, changes.budget()).await;
        }
    }

    fn handle_change(&mut self, change: &Change) {
        match change.object.resource() {
            Resource::NODES => self.handle_node(change),
            Resource::PODS => self.handle_pod(change),
            _ => {}
        }
    }

    fn handle_node(&mut self, change: &Change) {
        let node = change.object.value();
        let name = change.object.name().to_owned();
        let takes_pods = !change.deleted
            && node.pointer("/spec/unschedulable") != Some(&Value::Bool(true))
            && condition(node, "Ready").is_some_and(|ready| ready["status"] == "True");
        if change.deleted {
            self.all_nodes.remove(&name);
        } else {
            self.all_nodes.insert(name.clone());
        }
        if takes_pods {
            let pods = self.assigned.values().filter(|at| **at == name).count();
            self.nodes.insert(name, NodeState { pods, node: Arc::clone(&change.object) });
        } else {
            self.nodes.remove(&name);
        }
    }

    fn handle_pod(&mut self, change: &Change) {
        let pod = &change.object;
        let (key, node) = (key_of(pod), field(pod.value(), "/spec/nodeName"));
        if change.deleted {
            self.pending.remove(&key);
            if let Some(node) = self.assigned.remove(pod.uid()).and_then(|at| self.nodes.get_mut(&at)) {
                node.pods = node.pods.saturating_sub(1);
            }
        } else if !node.is_empty() {
            self.pending.remove(&key);
            self.record_assignment(pod, node);
        } else if !pod.is_deleting() && !is_gated(pod.value()) && !has_other_scheduler(pod.value()) {
            self.pending.insert(key);
        }
    }

    fn record_assignment(&mut self, pod: &Object, node: &str) {
        if self.assigned.insert(pod.uid().to_owned(), node.to_owned()).is_none()
            && let Some(node) = self.nodes.get_mut(node)
        {
            node.pods += 1;
        }
    }

    async fn schedule_pods(&mut self, api: &Api, budget: &mut YieldBudget) {
        let pending: Vec<ObjectKey> = self.pending.iter().cloned().collect();
        for key in pending {
            budget.spend(1).await;
            let Ok(pod) = api.get(Resource::PODS, &key) else {
                self.pending.remove(&key);
                continue;
            };
            let others = neighbours(api, &pod);
            let fits = |node: &NodeState| node.excludes(pod.value(), &others).is_none();
            let matching = self.nodes.iter().filter(|(_, node)| fits(node));
            let least_used = matching.min_by_key(|(_, node)| node.pods).map(|(name, _)| name.clone());
            let Some(node) = least_used else {
                self.report_unschedulable(api, &pod, &others);
                continue;
            };
            self.pending.remove(&key);
            match api.bind(&pod, &node) {
                Ok(()) => self.record_assignment(&pod, &node),
                // The pod was deleted or bound by another client; the watch reports the newer state.
                Err(error) => debug!(pod = %key, %error, "Failed to bind pod"),
            }
        }
    }

    /// Reports on the pod, once, that no node is available.
    fn report_unschedulable(&self, api: &Api, pod: &Object, others: &[Arc<Object>]) {
        if condition(pod.value(), "PodScheduled")
            .is_some_and(|condition| condition["reason"] == UNSCHEDULABLE)
        {
            return;
        }
        let (all, schedulable) = (self.all_nodes.len(), self.nodes.len());
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in self.nodes.values().filter_map(|node| node.excludes(pod.value(), others)) {
            *reasons.entry(reason).or_default() += 1;
        }
        if all > schedulable {
            reasons.insert("were unschedulable", all - schedulable);
        }
        let reasons: Vec<String> =
            reasons.iter().map(|(reason, count)| format!("{count} node(s) {reason}")).collect();
        let message = match all {
            0 => "no nodes available to schedule pods".to_owned(),
            _ => format!("0/{all} nodes are available: {}.", reasons.join(", ")),
        };
        let unscheduled = json!({
            "type": "PodScheduled", "status": "False", "reason": UNSCHEDULABLE, "message": message,
            "lastProbeTime": null, "lastTransitionTime": api.now(),
        });
        if let Err(error) = api.patch_status(pod, &json!({ "status": { "conditions": [unscheduled] } })) {
            warn!(?pod, %error, "Failed to update pod condition");
        }
        api.event(pod, "Warning", "FailedScheduling", &message, "default-scheduler");
    }
}

fn is_gated(pod: &Value) -> bool {
    pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty())
}

/// `true` if the pod names another scheduler.
fn has_other_scheduler(pod: &Value) -> bool {
    !matches!(field(pod, "/spec/schedulerName"), "" | "default-scheduler")
}

/// Pods of the namespace, if the pod has host ports or anti-affinity.
fn neighbours(api: &Api, pod: &Object) -> Vec<Arc<Object>> {
    let is_exclusive =
        host_ports(pod.value()).next().is_some() || anti_affinities(pod.value()).next().is_some();
    if is_exclusive { api.list(Resource::PODS, pod.namespace()) } else { Vec::new() }
}

fn host_ports(pod: &Value) -> impl Iterator<Item = u64> {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let ports = containers.filter_map(|container| container["ports"].as_array()).flatten();
    ports.filter_map(|port| port["hostPort"].as_u64()).filter(|port| *port > 0)
}

/// Labels of pods that must not be on the same node.
fn anti_affinities(pod: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    let path = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let terms = pod.pointer(path).and_then(Value::as_array).into_iter().flatten();
    terms
        .filter(|term| term["topologyKey"] == "kubernetes.io/hostname")
        .filter_map(|term| term.pointer("/labelSelector/matchLabels")?.as_object())
}

fn has_labels(pod: &Object, labels: &Map<String, Value>) -> bool {
    labels.iter().all(|(key, value)| pod.label(key) == value.as_str())
}
