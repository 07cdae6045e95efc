//! Simulated disruption controller: updates the status of PodDisruptionBudgets.
//!
//! *Upstream counterpart:* `pkg/controller/disruption`, the part that evictions depend on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kcm_api::{IntOrString, int_or_string::Round};
use kcm_apiserver::{LabelSelector, Object, Resource};
use serde_json::{Map, Value, json};
use tracing::debug;

use crate::api::{Api, Change, condition, field};

#[derive(Debug, Default)]
pub(crate) struct Disruption {
    /// Namespaces with changed pods or budgets.
    changed: BTreeSet<String>,
}

impl Disruption {
    /// Updates budgets until the server has stopped.
    pub(crate) async fn run(mut self, api: Arc<Api>) {
        let mut changes = api.watch(None);
        while changes.next_all(|change| self.handle_change(change)).await {
            for namespace in std::mem::take(&mut self.changed) {
                for budget in api.list(Resource::POD_DISRUPTION_BUDGETS, &namespace) {
                    let pods = api.list(Resource::PODS, &namespace);
                    changes.budget().spend(pods.len()).await;
                    update_status(&api, &budget, pods);
                }
            }
        }
    }

    fn handle_change(&mut self, change: &Change) {
        if matches!(change.object.resource(), Resource::PODS | Resource::POD_DISRUPTION_BUDGETS) {
            self.changed.insert(change.object.namespace().to_owned());
        }
    }
}

/// Updates the status of `budget` from the pods of its namespace. The server skips writes without a change.
fn update_status(api: &Api, budget: &Object, pods: Vec<Arc<Object>>) {
    let selector = LabelSelector::from_object(&budget.value()["spec"]["selector"]);
    let selected: Vec<Arc<Object>> =
        pods.into_iter().filter(|pod| selector.matches(pod.value()) && !is_finished(pod)).collect();
    let evicted = granted_evictions(budget, &selected);
    let healthy =
        selected.iter().filter(|pod| is_healthy(pod) && evicted.get(pod.name()) != Some(&true)).count();
    let (healthy, expected) = (i32::try_from(healthy).unwrap_or(i32::MAX), expected_pods(api, &selected));
    let desired = desired_healthy(&budget.value()["spec"], expected);
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    // Evicted pods that are terminating are removed from `disruptedPods`.
    let removed: Map<String, Value> =
        evicted.iter().filter(|(_, waits)| !**waits).map(|(name, _)| (name.clone(), Value::Null)).collect();
    let status = json!({
        "observedGeneration": budget.generation(), "disruptedPods": removed, "currentHealthy": healthy,
        "desiredHealthy": desired, "expectedPods": expected, "disruptionsAllowed": allowed,
    });
    if let Err(error) = api.patch_status(budget, &json!({ "status": status })) {
        debug!(?budget, %error, "Failed to update PodDisruptionBudget status");
    }
}

/// Pods with a granted eviction; `true` if the pod is not terminating yet.
fn granted_evictions(budget: &Object, selected: &[Arc<Object>]) -> BTreeMap<String, bool> {
    let granted = budget.value().pointer("/status/disruptedPods").and_then(Value::as_object);
    let waits = |name: &str| selected.iter().any(|pod| pod.name() == name && !pod.is_deleting());
    granted.into_iter().flatten().map(|(name, _)| (name.clone(), waits(name))).collect()
}

fn is_finished(pod: &Object) -> bool {
    matches!(field(pod.value(), "/status/phase"), "Succeeded" | "Failed")
}

fn is_healthy(pod: &Object) -> bool {
    !pod.is_deleting() && condition(pod.value(), "Ready").is_some_and(|ready| ready["status"] == "True")
}

/// Expected number of pods: the replicas of each controller, and one for each pod without a controller.
fn expected_pods(api: &Api, pods: &[Arc<Object>]) -> i32 {
    let mut wanted: BTreeMap<String, i32> = BTreeMap::new();
    for pod in pods {
        let manager = controller_of(api, pod).map(|set| controller_of(api, &set).unwrap_or(set));
        match manager {
            Some(manager) => {
                let replicas = manager.value().pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
                wanted.insert(manager.uid().to_owned(), i32::try_from(replicas).unwrap_or(i32::MAX));
            }
            None => drop(wanted.insert(pod.uid().to_owned(), 1)),
        }
    }
    wanted.values().fold(0, |sum, replicas| sum.saturating_add(*replicas))
}

fn controller_of(api: &Api, object: &Object) -> Option<Arc<Object>> {
    object.owner_references().find(|owner| owner.controller).and_then(|owner| api.by_uid(owner.uid))
}

/// Minimum number of healthy pods. Percentages are rounded up in both fields, as upstream.
fn desired_healthy(spec: &Value, expected: i32) -> i32 {
    let count = |name: &str| {
        let value: IntOrString = serde_json::from_value(spec.get(name)?.clone()).ok()?;
        value.scaled(expected, Round::Up).ok()
    };
    count("minAvailable")
        .or_else(|| count("maxUnavailable").map(|most| (expected - most).max(0)))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn desired_healthy_rounds_percentages_up() {
        assert_eq!(desired_healthy(&json!({ "minAvailable": 2 }), 5), 2);
        assert_eq!(desired_healthy(&json!({ "minAvailable": "50%" }), 5), 3);
        assert_eq!(desired_healthy(&json!({ "maxUnavailable": 1 }), 5), 4);
        assert_eq!(desired_healthy(&json!({ "maxUnavailable": "30%" }), 5), 3);
        assert_eq!(desired_healthy(&json!({ "maxUnavailable": 9 }), 5), 0);
        assert_eq!(desired_healthy(&json!({}), 5), 0);
    }
}
