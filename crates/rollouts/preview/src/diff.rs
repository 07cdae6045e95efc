//! Differences between two pod templates.

use serde_json::{Map, Value};

use crate::report::FieldChange;

/// Returns the changed fields, in the order of their paths. Elements of lists are matched by their name.
pub(crate) fn diff(before: &Value, after: &Value) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    compare("", Some(before), Some(after), &mut changes);
    changes
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, changes: &mut Vec<FieldChange>) {
    match (before, after) {
        (Some(a), Some(b)) if a == b => {}
        (Some(Value::Object(a)), Some(Value::Object(b))) => compare_objects(path, a, b, changes),
        (Some(Value::Array(a)), Some(Value::Array(b))) if is_named(a) && is_named(b) => {
            compare_lists(path, a, b, changes);
        }
        _ if is_empty(before) && is_empty(after) => {}
        _ => changes.push(FieldChange {
            path: path.to_owned(),
            before: before.cloned(),
            after: after.cloned(),
        }),
    }
}

fn compare_objects(
    path: &str,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    changes: &mut Vec<FieldChange>,
) {
    let added = after.keys().filter(|key| !before.contains_key(*key));
    for key in before.keys().chain(added) {
        let path = match path {
            "" => key.clone(),
            path if key.contains('.') => format!("{path}[{key}]"),
            path => format!("{path}.{key}"),
        };
        compare(&path, before.get(key), after.get(key), changes);
    }
}

fn compare_lists(path: &str, before: &[Value], after: &[Value], changes: &mut Vec<FieldChange>) {
    let find = |list: &'_ [Value], name: &Value| list.iter().position(|element| element["name"] == *name);
    let added = after.iter().filter(|element| find(before, &element["name"]).is_none());
    for element in before.iter().chain(added) {
        let name = &element["name"];
        let path = format!("{path}[{}]", name.as_str().unwrap_or_default());
        let at = |list: &'_ [Value]| find(list, name);
        compare(
            &path,
            at(before).and_then(|at| before.get(at)),
            at(after).and_then(|at| after.get(at)),
            changes,
        );
    }
}

fn is_named(list: &[Value]) -> bool {
    list.iter().all(|element| element["name"].is_string())
}

/// `true` if a field is equal to an absent one.
fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(members)) => members.is_empty(),
        Some(Value::Array(elements)) => elements.is_empty(),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_name_elements_and_quote_keys_with_dots() {
        let before = json!({
            "metadata": { "annotations": { "kubectl.kubernetes.io/restartedAt": "1" }, "labels": {} },
            "spec": { "containers": [{ "name": "a", "image": "a:1" }, { "name": "b" }] },
        });
        let after = json!({
            "metadata": { "annotations": { "kubectl.kubernetes.io/restartedAt": "2" } },
            "spec": { "containers": [{ "name": "a", "image": "a:2" }, { "name": "c" }] },
        });
        let changes = diff(&before, &after);
        let paths: Vec<&str> = changes.iter().map(|change| &*change.path).collect();
        assert_eq!(
            paths,
            [
                "metadata.annotations[kubectl.kubernetes.io/restartedAt]",
                "spec.containers[a].image",
                "spec.containers[b]",
                "spec.containers[c]",
            ]
        );
        assert_eq!((&changes[2].after, &changes[3].before), (&None, &None));
    }
}
