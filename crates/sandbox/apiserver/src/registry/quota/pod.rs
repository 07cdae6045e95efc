//! Amounts that a pod uses, and scopes of quotas.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::{Amounts, amount::Amount, has};
use crate::json::{at, i64_at, list_at, str_at};

/// Names in `hard` that every container of a pod must specify.
const REQUIRED: [&str; 6] =
    ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// `true` if the name in `hard` is an amount that pods use.
pub(super) fn is_measured(name: &str) -> bool {
    name == "pods" || compute(name).is_some()
}

/// Returns `requests` or `limits`, and the name of the container's resource.
fn compute(name: &str) -> Option<(&'static str, &str)> {
    match name.split_once('.') {
        Some(("requests", "storage")) => None,
        Some(("requests", resource)) => Some(("requests", resource)),
        Some(("limits", resource)) => Some(("limits", resource)),
        _ if matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") => {
            Some(("requests", name))
        }
        _ => None,
    }
}

/// Returns the amount of `name` that the pod uses. A pod that has ended uses nothing.
pub(super) fn amount(name: &str, pod: &Value, now: Timestamp) -> Amount {
    if has_ended(pod, now) {
        return Amount::default();
    }
    match compute(name) {
        None => Amount::from(1),
        Some((part, resource)) => containers_amount(pod, part, resource),
    }
}

/// Upstream counterpart: the negation of `QuotaV1Pod`.
fn has_ended(pod: &Value, now: Timestamp) -> bool {
    if matches!(str_at(pod, &["status", "phase"]), "Succeeded" | "Failed") {
        return true;
    }
    // A node that does not respond must not hold quota forever.
    let deleted = str_at(pod, &["metadata", "deletionTimestamp"]).parse::<Timestamp>();
    let grace = i64_at(pod, &["metadata", "deletionGracePeriodSeconds"]);
    let (Ok(deleted), Some(grace)) = (deleted, grace) else { return false };
    deleted.saturating_add(SignedDuration::from_secs(grace)).is_ok_and(|end| now > end)
}

/// Sum over the containers and sidecars, or the largest amount during initialization if that is more; with the overhead.
///
/// Upstream counterpart: `PodRequests` and `PodLimits` of `k8s.io/component-helpers/resource`.
fn containers_amount(pod: &Value, part: &str, resource: &str) -> Amount {
    let of = |container: &Value| amount_at(container, &["resources", part, resource]);
    let running = list_at(pod, &["spec", "containers"]).iter().map(of);
    let mut total = running.fold(Amount::default(), |sum, next| sum.plus(&next));
    let (mut sidecars, mut initial) = (Amount::default(), Amount::default());
    for container in list_at(pod, &["spec", "initContainers"]) {
        let amount = of(container);
        if str_at(container, &["restartPolicy"]) == "Always" {
            sidecars = sidecars.plus(&amount);
            total = total.plus(&amount);
            initial = initial.max(sidecars);
        } else {
            initial = initial.max(sidecars.plus(&amount));
        }
    }
    total.max(initial).plus(&amount_at(pod, &["spec", "overhead", resource]))
}

/// Requests (`part` is `requests`) or limits (`limits`) of a pod, by name of the resource, in billionths.
///
/// Each is the sum over the containers and sidecars, or the largest amount during initialization if that is more; with the
/// overhead.
///
/// Upstream counterpart: `PodRequests` and `PodLimits` of `k8s.io/component-helpers/resource`.
pub fn pod_resources(pod: &Value, part: &str) -> BTreeMap<String, i128> {
    let lists = ["containers", "initContainers"].into_iter().flat_map(|list| list_at(pod, &["spec", list]));
    let of_containers = lists.filter_map(|container| at(container, &["resources", part]));
    let all = of_containers.chain(at(pod, &["spec", "overhead"])).filter_map(Value::as_object);
    let names: BTreeSet<&String> = all.flat_map(Map::keys).collect();
    let amount = |name: &String| (name.clone(), containers_amount(pod, part, name).billionths());
    names.into_iter().map(amount).collect()
}

fn amount_at(value: &Value, path: &[&str]) -> Amount {
    at(value, path).and_then(Amount::parse).unwrap_or_default()
}

/// Returns a message about containers that do not specify an amount that `hard` limits.
pub(super) fn missing_amounts(pod: &Value, hard: &Amounts) -> Option<String> {
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let lists = ["containers", "initContainers"];
    for container in lists.iter().flat_map(|list| list_at(pod, &["spec", list])) {
        for name in REQUIRED.into_iter().filter(|name| hard.contains_key(*name)) {
            let specified =
                compute(name).is_some_and(|(part, resource)| has(container, &["resources", part, resource]));
            if !specified {
                missing.entry(name).or_default().insert(str_at(container, &["name"]));
            }
        }
    }
    let list = |(name, containers): (&str, BTreeSet<&str>)| {
        format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
    };
    let lists: Vec<String> = missing.into_iter().map(list).collect();
    (!lists.is_empty()).then(|| format!("must specify {}", lists.join("; ")))
}

/// `true` if the pod is in the scope. Unknown scopes contain no pod.
pub(super) fn is_in_scope(pod: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
    match scope {
        "Terminating" => has(pod, &["spec", "activeDeadlineSeconds"]),
        "NotTerminating" => !has(pod, &["spec", "activeDeadlineSeconds"]),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "CrossNamespacePodAffinity" => has_cross_namespace_affinity(pod),
        "PriorityClass" => {
            let class = str_at(pod, &["spec", "priorityClassName"]);
            let is_listed = values.iter().any(|value| value == class);
            match operator {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            }
        }
        _ => false,
    }
}

fn is_best_effort(pod: &Value) -> bool {
    let lists = ["containers", "initContainers"];
    let mut containers = lists.iter().flat_map(|list| list_at(pod, &["spec", list]));
    !containers.any(|container| {
        let parts = ["requests", "limits"].into_iter();
        let mut paths =
            parts.flat_map(|part| ["cpu", "memory"].map(|resource| ["resources", part, resource]));
        paths.any(|path| !amount_at(container, &path).is_zero())
    })
}

/// `true` if a term of the pod's affinity or anti-affinity selects namespaces.
///
/// Upstream counterpart: `usesCrossNamespacePodAffinity`.
fn has_cross_namespace_affinity(pod: &Value) -> bool {
    let selects =
        |term: &Value| !list_at(term, &["namespaces"]).is_empty() || has(term, &["namespaceSelector"]);
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let terms = |list| list_at(pod, &["spec", "affinity", kind, list]);
        terms("requiredDuringSchedulingIgnoredDuringExecution").iter().any(selects)
            || terms("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .filter_map(|weighted| weighted.get("podAffinityTerm"))
                .any(selects)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scope_of_cross_namespace_affinity() {
        let in_scope = |affinity: Value| {
            is_in_scope(&json!({"spec": {"affinity": affinity}}), "CrossNamespacePodAffinity", "Exists", &[])
        };
        let required = |term: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        let preferred = |term: Value| json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": term}]});
        assert!(!in_scope(Value::Null));
        assert!(!in_scope(json!({"podAffinity": required(json!({"topologyKey": "region"}))})));
        assert!(in_scope(json!({"podAntiAffinity": required(json!({"namespaces": ["a"]}))})));
        assert!(in_scope(json!({"podAffinity": preferred(json!({"namespaceSelector": {}}))})));
    }
}
