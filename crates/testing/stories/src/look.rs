//! Looking at what came of things.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    stage::{Stage, StageError},
    step::{Kind, Target, some_seconds},
};

/// How things should be. All that is said must hold.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Look {
    /// The object that `fields`, `atLeast`, `conditions` and `complete` are about.
    pub object: Option<Target>,
    /// What stands where in it, by JSON pointers; null for nothing.
    #[serde(default)]
    pub fields: BTreeMap<String, Value>,
    /// Numbers in it that are no smaller, by JSON pointers. What is not there is 0.
    #[serde(default)]
    pub at_least: BTreeMap<String, i64>,
    /// The reasons of its conditions, by their types.
    #[serde(default)]
    pub conditions: BTreeMap<String, String>,
    /// It is a Deployment that is rolled out: what `kubectl rollout status` waits for, and no old pod is left.
    #[serde(default)]
    pub complete: bool,
    /// How many objects there are of a kind.
    #[serde(default)]
    pub count: BTreeMap<Kind, usize>,
    /// How long it may take until all of this holds, in seconds. Ten minutes, if it is not said.
    #[serde(default, deserialize_with = "some_seconds")]
    pub limit: Option<Duration>,
}

impl Look {
    /// How long to wait for it.
    pub(crate) fn patience(&self) -> Duration {
        self.limit.unwrap_or(Duration::from_secs(600))
    }

    /// What is not as it should be; `None` if all is.
    pub(crate) async fn wrong(&self, stage: &mut Stage<'_>) -> Result<Option<String>, StageError> {
        if let Some(target) = &self.object {
            let object = stage.get(target).await?;
            if let Some(wrong) = self.wrong_with(&object) {
                return Ok(Some(format!("{target}: {wrong}")));
            }
        }
        for (kind, wanted) in &self.count {
            let found = stage.list(*kind).await?.len();
            if found != *wanted {
                return Ok(Some(format!("there are {found} {}, not {wanted}", kind.resource())));
            }
        }
        Ok(None)
    }

    fn wrong_with(&self, object: &Value) -> Option<String> {
        let at = |pointer: &str| object.pointer(pointer).unwrap_or(&Value::Null);
        for (pointer, wanted) in &self.fields {
            if at(pointer) != wanted {
                return Some(format!("{pointer} is {}, not {wanted}", at(pointer)));
            }
        }
        for (pointer, wanted) in &self.at_least {
            let found = at(pointer).as_i64().unwrap_or(0);
            if found < *wanted {
                return Some(format!("{pointer} is {found}, less than {wanted}"));
            }
        }
        for (type_, reason) in &self.conditions {
            let found = reason_of(object, type_);
            if found != reason {
                return Some(format!("the reason of {type_} is {found:?}, not {reason:?}"));
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

/// What is missing until a Deployment is rolled out.
fn incomplete(deployment: &Value) -> Option<String> {
    let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let wanted = number("/spec/replicas");
    if number("/status/observedGeneration") < number("/metadata/generation") {
        return Some("its newest state was not looked at".to_owned());
    }
    for count in ["updatedReplicas", "replicas", "availableReplicas"] {
        let found = number(&format!("/status/{count}"));
        if found != wanted {
            return Some(format!("{count} is {found}, not {wanted}"));
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

    fn look(text: &str) -> Look {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn look_at_what_is_as_it_should_be_finds_nothing_wrong() {
        let all = look(
            "{complete: true, fields: {/status/replicas: 3, /status/x: null}, atLeast: {/status/availableReplicas: 2}, \
             conditions: {Progressing: NewReplicaSetAvailable}}",
        );
        assert_eq!(all.wrong_with(&deployment()), None);
    }

    #[test]
    fn look_tells_what_is_wrong() {
        for (text, expected) in [
            ("fields: {/status/replicas: 4}", "/status/replicas is 3, not 4"),
            ("atLeast: {/status/readyReplicas: 1}", "/status/readyReplicas is 0, less than 1"),
            ("conditions: {Available: X}", "the reason of Available is \"\", not \"X\""),
        ] {
            assert_eq!(look(text).wrong_with(&deployment()).as_deref(), Some(expected));
        }
        let complete = look("complete: true");
        for field in ["updatedReplicas", "availableReplicas", "observedGeneration"] {
            let mut behind = deployment();
            behind["status"][field] = json!(1);
            assert!(complete.wrong_with(&behind).is_some(), "{field}");
        }
    }
}
