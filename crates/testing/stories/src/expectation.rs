//! Expected state of objects.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    seconds::some_seconds,
    target::{ObjectKind, Target},
};

/// Expected state. All given conditions must hold.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expectation {
    /// Object that `fields`, `atLeast`, `conditions` and `complete` refer to.
    pub object: Option<Target>,
    /// Expected values by JSON pointer; null if absent.
    #[serde(default)]
    pub fields: BTreeMap<String, Value>,
    /// Minimum values by JSON pointer. Absent values are 0.
    #[serde(default)]
    pub at_least: BTreeMap<String, i64>,
    /// Expected reasons of conditions, by type.
    #[serde(default)]
    pub conditions: BTreeMap<String, String>,
    /// If `true`, the object must be a completely rolled out Deployment, as for `kubectl rollout status`, without old pods.
    #[serde(default)]
    pub complete: bool,
    /// Number of objects by kind.
    #[serde(default)]
    pub count: BTreeMap<ObjectKind, usize>,
    /// Maximum time until all of this holds, in seconds. Default: 600.
    #[serde(default, deserialize_with = "some_seconds")]
    pub limit: Option<Duration>,
}

impl Expectation {
    /// Maximum time to wait.
    pub(crate) fn timeout(&self) -> Duration {
        self.limit.unwrap_or(Duration::from_secs(600))
    }

    /// Returns the first mismatch of `object`, or `None` if it is as expected.
    pub(crate) fn mismatch(&self, object: &Value) -> Option<String> {
        let at = |pointer: &str| object.pointer(pointer).unwrap_or(&Value::Null);
        for (pointer, expected) in &self.fields {
            if at(pointer) != expected {
                return Some(format!("{pointer} is {}, expected {expected}", at(pointer)));
            }
        }
        for (pointer, expected) in &self.at_least {
            let found = at(pointer).as_i64().unwrap_or(0);
            if found < *expected {
                return Some(format!("{pointer} is {found}, expected at least {expected}"));
            }
        }
        for (type_, reason) in &self.conditions {
            let found = reason_of(object, type_);
            if found != reason {
                return Some(format!("reason of condition {type_} is {found:?}, expected {reason:?}"));
            }
        }
        if self.complete { incomplete(object) } else { None }
    }
}

fn reason_of<'a>(object: &'a Value, type_: &str) -> &'a str {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == type_)
        .and_then(|condition| condition["reason"].as_str())
        .unwrap_or_default()
}

/// Returns the reason why a Deployment is not completely rolled out.
fn incomplete(deployment: &Value) -> Option<String> {
    let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let expected = number("/spec/replicas");
    if number("/status/observedGeneration") < number("/metadata/generation") {
        return Some("the latest generation is not observed".to_owned());
    }
    for count in ["updatedReplicas", "replicas", "availableReplicas"] {
        let found = number(&format!("/status/{count}"));
        if found != expected {
            return Some(format!("{count} is {found}, expected {expected}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment() -> Value {
        json!({
            "metadata": {"generation": 2},
            "spec": {"replicas": 3},
            "status": {
                "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3,
                "conditions": [{"type": "Progressing", "reason": "NewReplicaSetAvailable"}],
            },
        })
    }

    fn expectation(text: &str) -> Expectation {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn matching_object_has_no_mismatch() {
        let all = expectation(
            "{complete: true, fields: {/status/replicas: 3, /status/x: null}, atLeast: {/status/availableReplicas: 2}, \
             conditions: {Progressing: NewReplicaSetAvailable}}",
        );
        assert_eq!(all.mismatch(&deployment()), None);
    }

    #[test]
    fn mismatch_is_described() {
        for (text, expected) in [
            ("fields: {/status/replicas: 4}", "/status/replicas is 3, expected 4"),
            ("atLeast: {/status/readyReplicas: 1}", "/status/readyReplicas is 0, expected at least 1"),
            ("conditions: {Available: X}", "reason of condition Available is \"\", expected \"X\""),
        ] {
            assert_eq!(expectation(text).mismatch(&deployment()).as_deref(), Some(expected));
        }
        let complete = expectation("complete: true");
        for field in ["updatedReplicas", "availableReplicas", "observedGeneration"] {
            let mut behind = deployment();
            behind["status"][field] = json!(1);
            assert!(complete.mismatch(&behind).is_some(), "{field}");
        }
    }
}
