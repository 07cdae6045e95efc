//! Comparison of an output with a recorded one.

use serde_json::{Map, Value};

/// Returns the fields in which `answer` differs from the recorded `output`.
///
/// Null, empty and absent values are equal. Delays may differ by two seconds. `createdPod` is not compared. Error messages
/// are not compared.
pub fn differing_fields(output: &Value, answer: &Value) -> Vec<String> {
    let (mut output, mut answer) = (normal(output), normal(answer));
    let mut differing = Vec::new();
    if !same_delays(output.remove("requeue").as_ref(), answer.remove("requeue").as_ref()) {
        differing.push("requeue".to_owned());
    }
    let fields = output.keys().chain(answer.keys().filter(|field| !output.contains_key(*field)));
    differing.extend(fields.filter(|field| output.get(*field) != answer.get(*field)).cloned());
    differing
}

fn normal(output: &Value) -> Map<String, Value> {
    let Value::Object(mut fields) = without_empty(output) else { return Map::new() };
    fields.remove("createdPod");
    if let Some(error) = fields.get_mut("error") {
        *error = Value::Bool(true);
    }
    fields
}

fn without_empty(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), without_empty(value)));
            Value::Object(fields.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(without_empty).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn same_delays(output: Option<&Value>, answer: Option<&Value>) -> bool {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let (output, answer) = (list(output), list(answer));
    output.len() == answer.len() && output.iter().zip(&answer).all(|(a, b)| near(a, b))
}

fn near(a: &Value, b: &Value) -> bool {
    let seconds = |value: &Value| value.as_str()?.strip_prefix("after ")?.parse::<i64>().ok();
    match (seconds(a), seconds(b)) {
        (Some(a), Some(b)) => a.abs_diff(b) <= 2,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "literals at the call site")]
    fn differing(output: Value, answer: Value) -> Vec<String> {
        differing_fields(&output, &answer)
    }

    #[test]
    fn insignificant_differences_are_ignored() {
        let output = json!({
            "deleted": null, "actions": [{"object": {"status": {}, "spec": {"a": 1, "b": ""}}}],
            "requeue": ["after 10", "ratelimited"], "error": "one wording", "createdPod": {"spec": 1},
        });
        let answer = json!({
            "deleted": [], "actions": [{"object": {"spec": {"a": 1}}}], "requeue": ["after 12", "ratelimited"],
            "error": "another",
        });
        assert!(differing(output, answer).is_empty());
    }

    #[test]
    fn significant_differences_are_reported() {
        let differ = |output, answer, field: &str| assert_eq!(differing(output, answer), [field]);
        differ(json!({"deleted": ["a"]}), json!({}), "deleted");
        differ(json!({}), json!({"deleted": ["a"]}), "deleted");
        differ(json!({"error": "x"}), json!({}), "error");
        differ(json!({"requeue": ["after 10"]}), json!({"requeue": ["after 13"]}), "requeue");
        differ(json!({"requeue": ["after 1"]}), json!({}), "requeue");
        differ(json!({"requeue": ["add"]}), json!({"requeue": ["ratelimited"]}), "requeue");
        differ(json!({"expectationsAdd": 0}), json!({}), "expectationsAdd");
    }
}
