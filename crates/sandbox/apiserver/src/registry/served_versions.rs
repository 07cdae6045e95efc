//! Conversion between storage versions and other served versions.

use serde_json::{Map, Value, json};

use crate::{
    json::{at, i64_at, list_at, remove, set, str_at},
    resource::ServedVersion,
};

/// Fields of an Event with different names: core/v1, `events.k8s.io/v1`.
const EVENT_NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

impl ServedVersion {
    /// Converts a stored object to this version.
    pub(crate) fn convert_from_storage(self, stored: &Value) -> Value {
        let mut object = match self {
            Self::EventsV1 => rename(stored, |name| find(name, |names| names.0, |names| names.1)),
            Self::AutoscalingV1 => autoscaler_to_v1(stored),
        };
        set(&mut object, &["apiVersion"], self.api_version());
        object
    }

    /// Converts an object of this version to the storage version.
    pub(crate) fn convert_to_storage(self, object: &Value, stored_version: &str) -> Value {
        let mut stored = match self {
            Self::EventsV1 => rename(object, |name| find(name, |names| names.1, |names| names.0)),
            Self::AutoscalingV1 => autoscaler_to_v2(object),
        };
        set(&mut stored, &["apiVersion"], stored_version);
        stored
    }

    /// Converts a field selector of this version to one of the storage version.
    pub(crate) fn stored_selector(self, selector: &str) -> String {
        let terms = selector.split(',').map(|term| {
            let (field, rest) = term.split_at(term.find(['=', '!']).unwrap_or(term.len()));
            self.stored_field(field) + rest
        });
        terms.collect::<Vec<String>>().join(",")
    }

    fn stored_field(self, field: &str) -> String {
        match (self, field.split_once('.')) {
            (Self::EventsV1, Some(("regarding", rest))) => format!("involvedObject.{rest}"),
            (Self::EventsV1, None) if field == "reportingController" => "reportingComponent".to_owned(),
            _ => field.to_owned(),
        }
    }
}

type Names = (&'static str, &'static str);

fn find(
    name: &str,
    from: fn(&Names) -> &'static str,
    to: fn(&Names) -> &'static str,
) -> Option<&'static str> {
    EVENT_NAMES.iter().find(|names| from(names) == name).map(to)
}

fn rename(object: &Value, name_of: impl Fn(&str) -> Option<&'static str>) -> Value {
    let members = object.as_object().into_iter().flatten();
    let renamed = members.map(|(name, value)| (name_of(name).unwrap_or(name).to_owned(), value.clone()));
    Value::Object(renamed.collect::<Map<_, _>>())
}

const CPU_TARGET: &str = "targetCPUUtilizationPercentage";
const CPU_CURRENT: &str = "currentCPUUtilizationPercentage";

fn is_cpu_utilization(metric: &Value) -> bool {
    str_at(metric, &["type"]) == "Resource" && str_at(metric, &["resource", "name"]) == "cpu"
}

fn autoscaler_to_v1(stored: &Value) -> Value {
    let mut object = stored.clone();
    let target = list_at(stored, &["spec", "metrics"]).iter().find(|metric| is_cpu_utilization(metric));
    if let Some(target) =
        target.and_then(|metric| i64_at(metric, &["resource", "target", "averageUtilization"]))
    {
        set(&mut object, &["spec", CPU_TARGET], target);
    }
    let current =
        list_at(stored, &["status", "currentMetrics"]).iter().find(|metric| is_cpu_utilization(metric));
    if let Some(current) =
        current.and_then(|metric| i64_at(metric, &["resource", "current", "averageUtilization"]))
    {
        set(&mut object, &["status", CPU_CURRENT], current);
    }
    // Metrics that v1 cannot express are stored in an annotation, as upstream.
    let others: Vec<&Value> =
        list_at(stored, &["spec", "metrics"]).iter().filter(|metric| !is_cpu_utilization(metric)).collect();
    if !others.is_empty() {
        set(&mut object, &["metadata", "annotations", METRICS], json!(others).to_string());
    }
    for (part, member) in
        [("spec", "metrics"), ("spec", "behavior"), ("status", "currentMetrics"), ("status", "conditions")]
    {
        remove(&mut object, &[part, member]);
    }
    object
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";

fn autoscaler_to_v2(object: &Value) -> Value {
    let mut stored = object.clone();
    let mut metrics: Vec<Value> = Vec::new();
    if let Some(target) = i64_at(object, &["spec", CPU_TARGET]) {
        let target = json!({"type": "Utilization", "averageUtilization": target});
        metrics.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    if let Some(text) = at(object, &["metadata", "annotations", METRICS]).and_then(Value::as_str)
        && let Ok(Value::Array(others)) = serde_json::from_str(text)
    {
        metrics.extend(others);
        remove(&mut stored, &["metadata", "annotations", METRICS]);
    }
    if !metrics.is_empty() {
        set(&mut stored, &["spec", "metrics"], metrics);
    }
    remove(&mut stored, &["spec", CPU_TARGET]);
    remove(&mut stored, &["status", CPU_CURRENT]);
    stored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_round_trips() {
        let stored = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "message": "m", "reason": "r", "count": 2,
            "involvedObject": {"name": "web"}, "source": {"component": "c"}, "reportingComponent": "c",
            "firstTimestamp": "a", "lastTimestamp": "b",
        });
        let served_version = ServedVersion::EventsV1.convert_from_storage(&stored);
        assert_eq!(served_version["note"], "m");
        assert_eq!(served_version["regarding"]["name"], "web");
        assert_eq!(served_version["deprecatedCount"], 2);
        assert_eq!(served_version["apiVersion"], "events.k8s.io/v1");
        assert!(served_version.get("message").is_none());
        assert_eq!(ServedVersion::EventsV1.convert_to_storage(&served_version, "v1"), stored);
    }

    #[test]
    fn event_selector_is_translated() {
        let stored =
            ServedVersion::EventsV1.stored_selector("regarding.name=web,reason!=x,reportingController==c");
        assert_eq!(stored, "involvedObject.name=web,reason!=x,reportingComponent==c");
        assert_eq!(ServedVersion::EventsV1.stored_selector(""), "");
    }

    #[test]
    fn autoscaler_v1_is_stored_as_v2() {
        let v1 = json!({
            "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 80},
        });
        let stored = ServedVersion::AutoscalingV1.convert_to_storage(&v1, "autoscaling/v2");
        assert_eq!(stored["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        assert_eq!(ServedVersion::AutoscalingV1.convert_from_storage(&stored), v1);
    }
}
