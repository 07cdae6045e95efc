//! Resources that pods request.

use std::collections::BTreeMap;

use kcm_api::quantity::Quantity;
use serde_json::Value;

use crate::json::{list, members, text};

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
        let (requests, limits) =
            (defaults(limit_ranges, "defaultRequest"), defaults(limit_ranges, "default"));
        let mut total = Self::default();
        for container in list(pod, "/spec/containers") {
            add(&mut total.requests, &of_container(container, "requests", &requests), 1.0);
            add(&mut total.limits, &of_container(container, "limits", &limits), 1.0);
        }
        let mut init = Self::default();
        for container in list(pod, "/spec/initContainers") {
            let (own_requests, own_limits) =
                (of_container(container, "requests", &requests), of_container(container, "limits", &limits));
            if text(container, "/restartPolicy") == "Always" {
                add(&mut total.requests, &own_requests, 1.0);
                add(&mut total.limits, &own_limits, 1.0);
            } else {
                maximize(&mut init.requests, &own_requests);
                maximize(&mut init.limits, &own_limits);
            }
        }
        maximize(&mut total.requests, &init.requests);
        maximize(&mut total.limits, &init.limits);
        let overhead = amounts(pod, "/spec/overhead");
        add(&mut total.requests, &overhead, 1.0);
        add(&mut total.limits, &overhead, 1.0);
        total
    }
}

/// Quantities at `pointer`.
pub(crate) fn amounts(object: &Value, pointer: &str) -> Amounts {
    members(object, pointer).map(|(name, quantity)| (name.clone(), amount(quantity))).collect()
}

fn of_container(container: &Value, part: &str, defaults: &Amounts) -> Amounts {
    let mut own = amounts(container, &format!("/resources/{part}"));
    let limits = amounts(container, "/resources/limits");
    // The API server sets a missing request to the limit.
    let fallback =
        if part == "requests" { limits.iter().chain(defaults) } else { defaults.iter().chain(&limits) };
    for (name, amount) in fallback {
        own.entry(name.clone()).or_insert(*amount);
    }
    own
}

fn defaults(limit_ranges: &[Value], part: &str) -> Amounts {
    let limits = limit_ranges.iter().flat_map(|range| list(range, "/spec/limits"));
    let containers = limits.filter(|limit| limit["type"] == "Container");
    containers.flat_map(|limit| amounts(limit, &format!("/{part}"))).collect()
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
}
