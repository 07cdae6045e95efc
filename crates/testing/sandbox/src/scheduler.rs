//! Gives every pod a node: the one with the fewest pods.
//!
//! No resources, affinity or taints but `spec.unschedulable`: a rollout does not depend on where its pods run.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use kcm_api::ObjectKey;
use kcm_apiserver::{Object, Resource};
use serde_json::{Value, json};
use tracing::{debug, warn};

use crate::{
    api::{Api, Change, condition, field, key_of},
    pace::Pace,
};

/// Why a pod waits, as `kubectl describe` shows it.
const UNSCHEDULABLE: &str = "Unschedulable";

#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    /// Nodes that take pods, with how many they have.
    nodes: BTreeMap<String, usize>,
    /// How many nodes there are, whether they take pods or not.
    all_nodes: BTreeSet<String>,
    /// Where each pod is, by UID.
    placed: HashMap<String, String>,
    /// Pods without a node, in the order of their keys, so that a run repeats itself.
    waiting: BTreeSet<ObjectKey>,
}

impl Scheduler {
    /// Schedules until the server is gone.
    pub(crate) async fn run(mut self, api: Arc<Api>) {
        let mut changes = api.watch(None);
        // All that is known is looked at before the first decision.
        while changes.next_all(|change| self.see(change)).await {
            self.place(&api, changes.pace()).await;
        }
    }

    fn see(&mut self, change: &Change) {
        match change.object.resource() {
            Resource::NODES => self.see_node(change),
            Resource::PODS => self.see_pod(change),
            _ => {}
        }
    }

    fn see_node(&mut self, change: &Change) {
        let node = change.object.value();
        let name = change.object.name().to_owned();
        let takes_pods = !change.gone
            && node.pointer("/spec/unschedulable") != Some(&Value::Bool(true))
            && condition(node, "Ready").is_some_and(|ready| ready["status"] == "True");
        if change.gone {
            self.all_nodes.remove(&name);
        } else {
            self.all_nodes.insert(name.clone());
        }
        if takes_pods {
            let pods = self.placed.values().filter(|at| **at == name).count();
            self.nodes.insert(name, pods);
        } else {
            self.nodes.remove(&name);
        }
    }

    fn see_pod(&mut self, change: &Change) {
        let pod = &change.object;
        let (key, node) = (key_of(pod), field(pod.value(), "/spec/nodeName"));
        if change.gone {
            self.waiting.remove(&key);
            if let Some(count) = self.placed.remove(pod.uid()).and_then(|at| self.nodes.get_mut(&at)) {
                *count = count.saturating_sub(1);
            }
        } else if !node.is_empty() {
            self.waiting.remove(&key);
            self.note_placed(pod, node);
        } else if !pod.is_deleting() && !is_gated(pod.value()) {
            self.waiting.insert(key);
        }
    }

    fn note_placed(&mut self, pod: &Object, node: &str) {
        if self.placed.insert(pod.uid().to_owned(), node.to_owned()).is_none()
            && let Some(count) = self.nodes.get_mut(node)
        {
            *count += 1;
        }
    }

    async fn place(&mut self, api: &Api, pace: &mut Pace) {
        let waiting: Vec<ObjectKey> = self.waiting.iter().cloned().collect();
        for key in waiting {
            pace.spend(1).await;
            let Ok(pod) = api.get(Resource::PODS, &key) else {
                self.waiting.remove(&key);
                continue;
            };
            let emptiest = self.nodes.iter().min_by_key(|(_, pods)| **pods).map(|(name, _)| name.clone());
            let Some(node) = emptiest else {
                self.refuse(api, &pod);
                continue;
            };
            self.waiting.remove(&key);
            match api.bind(&pod, &node) {
                Ok(()) => self.note_placed(&pod, &node),
                // Gone, or bound by somebody else: the watch will tell.
                Err(error) => debug!(pod = %key, %error, "not bound"),
            }
        }
    }

    /// Says on the pod, once, that there is no node for it.
    fn refuse(&self, api: &Api, pod: &Object) {
        if condition(pod.value(), "PodScheduled").is_some_and(|told| told["reason"] == UNSCHEDULABLE) {
            return;
        }
        let all = self.all_nodes.len();
        let message = format!("0/{all} nodes are available: {all} node(s) were unschedulable.");
        let refusal = json!({
            "type": "PodScheduled", "status": "False", "reason": UNSCHEDULABLE, "message": message,
            "lastProbeTime": null, "lastTransitionTime": api.now(),
        });
        if let Err(error) = api.patch_status(pod, &json!({ "status": { "conditions": [refusal] } })) {
            warn!(?pod, %error, "cannot say that the pod is unschedulable");
        }
        api.event(pod, "Warning", "FailedScheduling", &message, "default-scheduler");
    }
}

fn is_gated(pod: &Value) -> bool {
    pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty())
}
