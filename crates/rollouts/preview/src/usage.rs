//! Resources that pods request.

use std::collections::BTreeMap;

use kcm_api::quantity::Quantity;
use kcm_apiserver::pod_resources;
use serde_json::{Map, Value};

use crate::json::{list, members, set};

/// Amounts by name of the resource: cores, bytes, numbers of objects.
pub(crate) type Amounts = BTreeMap<String, f64>;

/// Requests and limits of a pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PodResources {
    pub(crate) requests: Amounts,
    pub(crate) limits: Amounts,
}

/// Value of a quantity, or 0 if it is invalid.
pub(crate) fn amount(quantity: &Value) -> f64 {
    let parsed = match quantity {
        Value::String(text) => text.parse::<Quantity>(),
        Value::Number(number) => number.to_string().parse(),
        _ => return 0.0,
    };
    let number = parsed.map(|quantity| quantity.number()).unwrap_or_default();
    let exponent = i32::try_from(number.exponent).unwrap_or(i32::MAX);
    let value = number.digits.parse::<f64>().unwrap_or(0.0) * 10_f64.powi(exponent);
    if number.negative { -value } else { value }
}

/// Adds `other` to `amounts`, multiplied by `factor`.
pub(crate) fn add(amounts: &mut Amounts, other: &Amounts, factor: f64) {
    for (name, amount) in other {
        *amounts.entry(name.clone()).or_default() += factor * amount;
    }
}

/// Sets each amount to the larger one of both.
pub(crate) fn maximize(amounts: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let kept = amounts.entry(name.clone()).or_default();
        *kept = kept.max(*amount);
    }
}

impl PodResources {
    /// Resources of `pod`. Containers without an amount get the default of `limit_ranges`.
    ///
    /// Upstream counterpart: `PodRequests` and `PodLimits`, and the admission plugin LimitRanger.
    pub(crate) fn of(pod: &Value, limit_ranges: &[Value]) -> Self {
        let pod = with_defaults(pod, limit_ranges);
        let part = |part| {
            let amounts = pod_resources(&pod, part).into_iter();
            amounts.map(|(name, billionths)| (name, billionths as f64 / 1e9)).collect()
        };
        Self { requests: part("requests"), limits: part("limits") }
    }
}

/// Sets missing requests to the limits, as the API server does, and other missing amounts to those of `limit_ranges`.
fn with_defaults(pod: &Value, limit_ranges: &[Value]) -> Value {
    let (requests, limits) = (defaults(limit_ranges, "defaultRequest"), defaults(limit_ranges, "default"));
    let mut pod = pod.clone();
    for list in ["/spec/containers", "/spec/initContainers"] {
        for container in pod.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let own = container.pointer("/resources/limits").and_then(Value::as_object).cloned();
            complete(container, "requests", &own.unwrap_or_default());
            complete(container, "requests", &requests);
            complete(container, "limits", &limits);
        }
    }
    pod
}

/// Adds the amounts of `defaults` that the container does not have.
fn complete(container: &mut Value, part: &str, defaults: &Map<String, Value>) {
    for (name, amount) in defaults {
        if container.pointer(&format!("/resources/{part}")).and_then(|own| own.get(name)).is_none() {
            set(container, &["resources", part, name], amount.clone());
        }
    }
}

/// Quantities at `pointer`.
pub(crate) fn amounts(object: &Value, pointer: &str) -> Amounts {
    members(object, pointer).map(|(name, quantity)| (name.clone(), amount(quantity))).collect()
}

fn defaults(limit_ranges: &[Value], part: &str) -> Map<String, Value> {
    let limits = limit_ranges.iter().flat_map(|range| list(range, "/spec/limits"));
    let containers = limits.filter(|limit| limit["type"] == "Container");
    let amounts = containers.filter_map(|limit| limit[part].as_object());
    amounts.flatten().map(|(name, amount)| (name.clone(), amount.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amount_of_quantities() {
        for (quantity, expected) in [("250m", 0.25), ("1Gi", 1_073_741_824.0), ("3", 3.0), ("-1k", -1000.0)] {
            assert!((amount(&json!(quantity)) - expected).abs() < 1e-9, "{quantity}");
        }
        assert!(amount(&json!("many")).abs() < 1e-9);
    }

    #[test]
    fn pod_resources_with_defaults_and_init_containers() {
        let pod = json!({ "spec": {
            "containers": [
                { "resources": { "requests": { "cpu": "100m" }, "limits": { "memory": "1Mi" } } },
                {},
            ],
            "initContainers": [
                { "resources": { "requests": { "cpu": "2" } } },
                { "restartPolicy": "Always", "resources": { "requests": { "cpu": "1" } } },
            ],
        } });
        let ranges = [json!({ "spec": { "limits": [
            { "type": "Container", "defaultRequest": { "memory": "2Mi" }, "default": { "memory": "4Mi" } },
        ] } })];
        let resources = PodResources::of(&pod, &ranges);
        let mebi = f64::from(1 << 20);
        // 1 Mi from the limit; 2 Mi for the second container and for each init container.
        assert!((resources.requests["memory"] / mebi - 5.0).abs() < 1e-9, "{resources:?}");
        assert!((resources.requests["cpu"] - 2.0).abs() < 1e-9, "{resources:?}");
        assert!((resources.limits["memory"] / mebi - 9.0).abs() < 1e-9, "{resources:?}");
    }

    /// A sidecar runs during the init containers that follow it.
    #[test]
    fn sidecar_counts_toward_the_init_containers_after_it() {
        let container = |cpu: &str| json!({ "resources": { "requests": { "cpu": cpu } } });
        let sidecar = json!({ "restartPolicy": "Always", "resources": { "requests": { "cpu": "1" } } });
        let cpu = |init: [&Value; 2]| {
            let pod = json!({ "spec": { "containers": [container("500m")], "initContainers": init } });
            PodResources::of(&pod, &[]).requests["cpu"]
        };
        assert!((cpu([&sidecar, &container("2")]) - 3.0).abs() < 1e-9);
        assert!((cpu([&container("2"), &sidecar]) - 2.0).abs() < 1e-9);
    }
}
