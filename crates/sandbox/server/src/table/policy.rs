//! Budgets, quotas, priority classes and autoscalers.

use kcm_apiserver::json::{at, i64_at, list_at, str_at};
use serde_json::Value;

use super::{AGE, Column, NAME, Printer, age::age, or_none, workload::name};

/// Maximum number of printed metrics of an autoscaler.
const METRICS_SHOWN: usize = 2;

pub(super) const POD_DISRUPTION_BUDGET: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Min Available", "Minimum number of available pods."),
        Column::text("Max Unavailable", "Maximum number of unavailable pods."),
        Column::count("Allowed Disruptions", "Number of evictions that are currently allowed."),
        AGE,
    ],
    row: |object, now| {
        let bound = |field| at(object, &["spec", field]).map_or_else(|| "N/A".to_owned(), unquoted);
        let allowed = i64_at(object, &["status", "disruptionsAllowed"]).unwrap_or_default();
        let bounds = [bound("minAvailable").into(), bound("maxUnavailable").into()];
        [vec![name(object)], bounds.to_vec(), vec![allowed.into(), age(object, now)]].concat()
    },
};

pub(super) const CUSTOM_RESOURCE_DEFINITION: Printer = Printer {
    columns: &[
        NAME,
        Column { kind: "date", ..Column::text("Created At", "Time of the creation of the object.") },
    ],
    row: |object, _| {
        let text = |field| Value::from(str_at(object, &["metadata", field]));
        vec![text("name"), text("creationTimestamp")]
    },
};

pub(super) const RESOURCE_QUOTA: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Request", "Usage and limits of resource requests and object counts."),
        Column::text("Limit", "Usage and limits of resource limits."),
        AGE,
    ],
    row: |object, now| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (resource, hard) in
            at(object, &["status", "hard"]).and_then(Value::as_object).into_iter().flatten()
        {
            let used = at(object, &["status", "used", resource]).map_or_else(|| "0".to_owned(), unquoted);
            let kind = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
            kind.push(format!("{resource}: {used}/{}", unquoted(hard)));
        }
        vec![name(object), requests.join(", ").into(), limits.join(", ").into(), age(object, now)]
    },
};

pub(super) const PRIORITY_CLASS: Printer = Printer {
    columns: &[
        NAME,
        Column::count("Value", "Priority of pods of this class."),
        Column { kind: "boolean", ..Column::text("Global-Default", "`true` if this class is the default.") },
        AGE,
        Column::text("PreemptionPolicy", "Preemption policy of pods of this class."),
    ],
    row: |object, now| {
        let value = i64_at(object, &["value"]).unwrap_or_default();
        let default = at(object, &["globalDefault"]).and_then(Value::as_bool).unwrap_or(false);
        let preemption = str_at(object, &["preemptionPolicy"]);
        vec![name(object), value.into(), default.into(), age(object, now), preemption.into()]
    },
};

pub(super) const HORIZONTAL_POD_AUTOSCALER: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Reference", "Scaled object."),
        Column::text("Targets", "Metrics with current and target values."),
        Column::text("MinPods", "Minimum number of replicas."),
        Column::text("MaxPods", "Maximum number of replicas."),
        Column::text("Replicas", "Number of pods."),
        AGE,
    ],
    row: |object, now| {
        let target = |field| str_at(object, &["spec", "scaleTargetRef", field]);
        let least = at(object, &["spec", "minReplicas"]).map_or_else(|| "<unset>".to_owned(), unquoted);
        let number = |path: &[&str]| i64_at(object, path).unwrap_or_default();
        vec![
            name(object),
            format!("{}/{}", target("kind"), target("name")).into(),
            or_none(&metrics(object)),
            least.into(),
            number(&["spec", "maxReplicas"]).into(),
            number(&["status", "currentReplicas"]).into(),
            age(object, now),
        ]
    },
};

/// Metrics are not measured, so the current value is always unknown.
fn metrics(autoscaler: &Value) -> String {
    let metrics = list_at(autoscaler, &["spec", "metrics"]);
    let shown: Vec<String> = metrics.iter().take(METRICS_SHOWN).map(metric).collect();
    let more = metrics.len().saturating_sub(METRICS_SHOWN);
    if more == 0 { shown.join(", ") } else { format!("{} + {more} more...", shown.join(", ")) }
}

fn metric(metric: &Value) -> String {
    let source = match str_at(metric, &["type"]) {
        "Resource" => at(metric, &["resource"]),
        "ContainerResource" => at(metric, &["containerResource"]),
        "Pods" => at(metric, &["pods"]),
        "Object" => at(metric, &["object"]),
        "External" => at(metric, &["external"]),
        _ => None,
    };
    let Some(source) = source else { return "<unknown type>".to_owned() };
    let target = match at(source, &["target", "averageUtilization"]) {
        Some(share) => format!("{}%", unquoted(share)),
        None => ["averageValue", "value"]
            .iter()
            .find_map(|field| at(source, &["target", field]))
            .map_or_else(|| "<auto>".to_owned(), unquoted),
    };
    match str_at(source, &["name"]) {
        "" => format!("<unknown>/{target}"),
        resource => format!("{resource}: <unknown>/{target}"),
    }
}

/// Returns a string without quotes, or a number.
fn unquoted(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
