//! Quotas and free capacity of the nodes at the peak of a rollout.

use std::collections::HashMap;

use serde_json::Value;

use crate::{
    Snapshot,
    history::History,
    json::{condition, list, members, number, text},
    report::{NodesCheck, QuotaCheck},
    timings::is_finished,
    usage::{Amounts, PodResources, amount, amounts},
};

/// Compares the quotas of the namespace with the peak of each resource.
///
/// Usage of other pods is taken from the status of the quota. Quotas with scopes and resources other than pods, CPU,
/// memory and other requests and limits are skipped.
pub(crate) fn check_quotas(snapshot: &Snapshot, history: &History) -> Vec<QuotaCheck> {
    let mut checks = Vec::new();
    for quota in &snapshot.quotas {
        if !list(quota, "/spec/scopes").is_empty() || quota.pointer("/spec/scopeSelector").is_some() {
            continue;
        }
        for (resource, hard) in members(quota, "/spec/hard") {
            let before = usage(resource, &history.resources_before);
            let Some(before) = before else { continue };
            let peak = usage(resource, &history.resources_peak).unwrap_or(before);
            let used =
                quota.pointer("/status/used").and_then(|used| used.get(resource)).map_or(before, amount);
            let (hard, peak) = (amount(hard), used + peak - before);
            checks.push(QuotaCheck {
                quota: text(quota, "/metadata/name").to_owned(),
                resource: resource.clone(),
                hard,
                used,
                peak,
                fits: peak <= hard * (1.0 + f64::EPSILON),
            });
        }
    }
    checks
}

/// Amount of a quota's resource that the pods use. `None` if the resource does not concern pods.
fn usage(resource: &str, pods: &PodResources) -> Option<f64> {
    let of = |amounts: &Amounts, name: &str| Some(amounts.get(name).copied().unwrap_or(0.0));
    match resource {
        "pods" | "count/pods" => of(&pods.requests, "pods"),
        "cpu" | "memory" | "ephemeral-storage" => of(&pods.requests, resource),
        _ => match resource.split_once('.') {
            Some(("requests", "storage")) => None,
            Some(("requests", name)) => of(&pods.requests, name),
            Some(("limits", name)) => of(&pods.limits, name),
            _ => None,
        },
    }
}

/// Compares the pods at the peak with the free capacity of the nodes.
pub(crate) fn check_nodes(snapshot: &Snapshot, history: &History) -> NodesCheck {
    let before = history.before.pods + history.before.terminating;
    let needed = u64::try_from(history.most_with_terminating.pods - before).unwrap_or(0);
    let template = history.deployment.spec.template.to_value();
    let resources = PodResources::of(&template, &snapshot.limit_ranges);
    let mut used: HashMap<&str, (Amounts, u64)> = HashMap::new();
    for pod in snapshot.pods.iter().chain(&snapshot.other_pods).filter(|pod| !is_finished(pod)) {
        let (amounts, pods) = used.entry(text(pod, "/spec/nodeName")).or_default();
        crate::usage::add(amounts, &PodResources::of(pod, &[]).requests, 1.0);
        *pods += 1;
    }
    let accepting: Vec<&Value> = snapshot.nodes.iter().filter(|node| accepts(node, &template)).collect();
    let free = |node: &&Value| {
        let (used, pods) = used.remove(text(node, "/metadata/name")).unwrap_or_default();
        free_places(node, &resources.requests, &used, pods)
    };
    let free = accepting.iter().map(free).fold(0, u64::saturating_add);
    let unknown = ["nodes", "pods"].iter().any(|name| {
        snapshot.unreadable.iter().any(|unreadable| unreadable.resource.split(' ').next() == Some(name))
    });
    let fits = (!unknown && !snapshot.nodes.is_empty()).then_some(free >= needed);
    NodesCheck { nodes: accepting.len(), free, needed, fits }
}

/// Number of pods with these `requests` that fit on the node in addition to those that run there.
fn free_places(node: &Value, requests: &Amounts, used: &Amounts, pods: u64) -> u64 {
    let allocatable = amounts(node, "/status/allocatable");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let whole = |places: f64| (places + 1e-9).floor().max(0.0) as u64;
    let places =
        allocatable.get("pods").map_or(u64::from(u32::MAX), |pods| whole(*pods)).saturating_sub(pods);
    let fitting = requests.iter().filter(|(_, request)| **request > 0.0).map(|(name, request)| {
        let free = allocatable.get(name).copied().unwrap_or(0.0) - used.get(name).copied().unwrap_or(0.0);
        whole(free / request)
    });
    fitting.fold(places, u64::min)
}

/// `true` if the node is ready and schedulable, and the template tolerates its taints and selects its labels.
fn accepts(node: &Value, template: &Value) -> bool {
    let is_ready = condition(node, "Ready").is_some_and(|ready| ready["status"] == "True");
    let is_cordoned = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    let labels = node.pointer("/metadata/labels");
    let is_selected = members(template, "/spec/nodeSelector")
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
    let tolerations = list(template, "/spec/tolerations");
    let is_tolerated = |taint: &Value| {
        text(taint, "/effect") == "PreferNoSchedule"
            || tolerations.iter().any(|toleration| tolerates(toleration, taint))
    };
    is_ready && !is_cordoned && is_selected && list(node, "/spec/taints").iter().all(is_tolerated)
}

/// Upstream counterpart: `Toleration.ToleratesTaint`.
fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
    let matches_effect = effect.is_empty() || effect == text(taint, "/effect");
    let exists = text(toleration, "/operator") == "Exists";
    let matches_key = if key.is_empty() { exists } else { key == text(taint, "/key") };
    matches_effect && matches_key && (exists || text(toleration, "/value") == text(taint, "/value"))
}

/// Number of pods that a budget must keep, of `expected`.
pub(crate) fn desired_healthy(budget: &Value, expected: i32) -> i32 {
    let scaled = |field: &str| {
        let value = budget.pointer(field).filter(|value| !value.is_null())?;
        let value: kcm_api::IntOrString = serde_json::from_value(value.clone()).ok()?;
        value.scaled(expected, kcm_api::int_or_string::Round::Up).ok()
    };
    match (scaled("/spec/maxUnavailable"), scaled("/spec/minAvailable")) {
        (Some(unavailable), _) => (expected - unavailable).max(0),
        (None, Some(available)) => available,
        (None, None) => 0,
    }
}

/// `spec.replicas` that an autoscaler permits.
pub(crate) fn autoscaler_range(autoscaler: &Value) -> (i64, i64) {
    let at = |pointer| number(autoscaler, pointer);
    (at("/spec/minReplicas").unwrap_or(1), at("/spec/maxReplicas").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(spec: &Value) -> Value {
        json!({
            "metadata": { "labels": { "disk": "ssd" } },
            "spec": spec,
            "status": {
                "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10" },
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        })
    }

    #[test]
    fn free_places_of_the_scarcest_resource() {
        let requests = Amounts::from([("cpu".to_owned(), 0.5), ("memory".to_owned(), f64::from(1 << 30))]);
        let used = Amounts::from([("cpu".to_owned(), 2.4)]);
        assert_eq!(free_places(&node(&json!({})), &requests, &used, 0), 3);
        assert_eq!(free_places(&node(&json!({})), &requests, &Amounts::new(), 8), 2);
        assert_eq!(free_places(&node(&json!({})), &Amounts::new(), &Amounts::new(), 8), 2);
    }

    #[test]
    fn node_with_taint_needs_a_toleration() {
        let tainted = node(&json!({ "taints": [{ "key": "gpu", "value": "a", "effect": "NoSchedule" }] }));
        let template = |tolerations: Value| json!({ "spec": { "tolerations": tolerations } });
        assert!(!accepts(&tainted, &template(json!([]))));
        assert!(accepts(&tainted, &template(json!([{ "key": "gpu", "value": "a" }]))));
        assert!(!accepts(&tainted, &template(json!([{ "key": "gpu", "value": "b" }]))));
        assert!(accepts(&tainted, &template(json!([{ "operator": "Exists" }]))));
    }

    #[test]
    fn node_must_be_selected_and_schedulable() {
        let template = |disk: &str| json!({ "spec": { "nodeSelector": { "disk": disk } } });
        assert!(accepts(&node(&json!({})), &template("ssd")));
        assert!(!accepts(&node(&json!({})), &template("hdd")));
        assert!(!accepts(&node(&json!({ "unschedulable": true })), &template("ssd")));
    }

    #[test]
    fn desired_healthy_rounds_up() {
        let budget = |spec: Value| json!({ "spec": spec });
        assert_eq!(desired_healthy(&budget(json!({ "minAvailable": "50%" })), 5), 3);
        assert_eq!(desired_healthy(&budget(json!({ "maxUnavailable": "50%" })), 5), 2);
        assert_eq!(desired_healthy(&budget(json!({ "minAvailable": 2 })), 5), 2);
    }
}
