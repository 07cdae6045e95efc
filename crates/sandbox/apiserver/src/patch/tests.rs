use proptest::prelude::*;
use serde_json::{Map, json};

use super::{
    merge_keys::{Strategy, strategy},
    *,
};
use crate::{
    schema::{
        KINDS, SCHEMA, Type,
        arbitrary::{Arbitrary, cases},
    },
    strict,
};

#[test]
fn json_patch_is_atomic() {
    let target = json!({"a": {"b/c": 1}, "list": [1, 2]});
    let patch = json!([
        {"op": "test", "path": "/a/b~1c", "value": 1},
        {"op": "replace", "path": "/a/b~1c", "value": 2},
        {"op": "add", "path": "/list/-", "value": 3},
        {"op": "remove", "path": "/list/0"},
    ]);
    assert_eq!(json_patch(&target, &patch).unwrap(), json!({"a": {"b/c": 2}, "list": [2, 3]}));
    for failing in [
        json!([{"op": "test", "path": "/a", "value": 1}]),
        json!([{"op": "replace", "path": "/missing/deep", "value": 1}]),
        json!([{"op": "remove", "path": "/list/7"}]),
    ] {
        let error = json_patch(&target, &failing).unwrap_err();
        assert_eq!((error.code, error.reason), (422, "Invalid"));
        assert_eq!(error.to_string(), "the server rejected our request due to an error in our request");
    }
}

#[test]
fn malformed_or_long_json_patch_is_rejected() {
    for broken in [json!({}), json!([1]), json!([{"op": "add", "path": 1}])] {
        assert_eq!(json_patch(&json!({}), &broken).unwrap_err().code, 400);
    }
    let operation = json!({"op": "add", "path": "/a", "value": 1});
    let at_limit = Value::from(vec![operation.clone(); 10_000]);
    assert!(json_patch(&json!({}), &at_limit).is_ok());
    let error = json_patch(&json!({}), &Value::from(vec![operation; 10_001])).unwrap_err();
    assert_eq!(error.code, 413);
    assert_eq!(
        error.message,
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn json_patch_copy_limit() {
    let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    let target = json!({"a": ["x".repeat(1000)]});
    assert!(json_patch(&target, &Value::from(vec![double.clone(); 10])).is_ok());
    let error = json_patch(&target, &Value::from(vec![double; 20])).unwrap_err();
    assert_eq!(error, PatchError::unprocessable());
}

#[test]
fn json_patch_depth_limit() {
    // Each round adds a level without copying.
    let round = [
        json!({"op": "add", "path": "/b", "value": {}}),
        json!({"op": "move", "from": "/a", "path": "/b/c"}),
        json!({"op": "move", "from": "/b", "path": "/a"}),
    ];
    let patch =
        |rounds| Value::from(std::iter::repeat_n(&round, rounds).flatten().cloned().collect::<Vec<_>>());
    let target = json!({"a": {}});
    assert!(json_patch(&target, &patch(100)).is_ok());
    assert_eq!(json_patch(&target, &patch(3000)).unwrap_err(), PatchError::unprocessable());
    let add = |depth| {
        let value = (0..depth).fold(json!(1), |value, _| json!([value]));
        json_patch(&target, &json!([{"op": "add", "path": "/a/b", "value": value}]))
    };
    assert!(add(120).is_ok());
    assert_eq!(add(127).unwrap_err(), PatchError::unprocessable());
}

#[test]
fn merge_patch_removes_nulls_and_replaces_lists() {
    let target = json!({"a": {"b": 1, "c": 2}, "list": [1, 2]});
    let patch = json!({"a": {"b": null, "d": {"e": null, "f": 3}}, "list": [3]});
    assert_eq!(merge(&target, &patch).unwrap(), json!({"a": {"c": 2, "d": {"f": 3}}, "list": [3]}));
    assert_eq!(merge(&target, &json!({})).unwrap(), target);
}

/// Strategic merge patch.
#[derive(serde::Deserialize)]
struct Case {
    name: String,
    object: Option<Value>,
    /// Spec of the pods, in place of an object.
    pods: Option<Value>,
    patch: Value,
    result: Option<Value>,
    error: Option<Refusal>,
}

#[derive(serde::Deserialize)]
struct Refusal {
    code: u16,
    message: String,
}

#[test]
fn strategic_patches() {
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("tests/strategic.yaml")).unwrap();
    for Case { name, object, pods, patch, result, error } in cases {
        let in_pods = |value: Value| match pods {
            Some(_) => json!({"spec": {"template": {"spec": value}}}),
            None => value,
        };
        let target = object.unwrap_or_else(|| in_pods(pods.clone().unwrap()));
        match (strategic(&target, &in_pods(patch), "Deployment"), result, error) {
            (Ok(patched), Some(result), None) => assert_eq!(patched, in_pods(result), "{name}"),
            (Ok(patched), None, None) => assert!(!has_directive(&patched), "{name}: {patched}"),
            (Err(error), None, Some(Refusal { code, message })) => {
                assert!(error.code == code && error.message.contains(&message), "{name}: {error:?}");
            }
            (outcome, ..) => panic!("{name}: {outcome:?}"),
        }
    }
}

#[test]
fn disruption_budget_selector_is_replaced() {
    let target = json!({"apiVersion": "policy/v1", "spec": {"selector": {"matchLabels": {"a": "b"}}}});
    let patch = json!({"spec": {"selector": {"matchLabels": {"c": "d"}}}});
    assert_eq!(strategic(&target, &patch, "PodDisruptionBudget").unwrap()["spec"], patch["spec"]);
}

// A client-side diff, to show that computed patches have the intended effect.

/// Returns the patch from `old` to `new`, both of type `ty`.
fn diff(old: &Map<String, Value>, new: &Map<String, Value>, ty: Option<&Type>) -> Map<String, Value> {
    let within = match ty {
        Some(Type::Struct(id)) => Some(SCHEMA.get(*id)),
        _ => None,
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        let ty = within.and_then(|within| within.field(key)).map(|field| &field.ty);
        let strategy = within.and_then(|within| strategy(&within.name, key));
        match (old.get(key), value) {
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) if strategy != Some(Strategy::Replace) => {
                patch.insert(key.clone(), Value::Object(diff(old, new, ty)));
            }
            (Some(Value::Array(old)), Value::Array(new)) if strategy.is_some() => {
                diff_lists(key, old, new, ty, strategy, &mut patch);
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    patch
}

fn diff_lists(
    key: &str,
    old: &[Value],
    new: &[Value],
    ty: Option<&Type>,
    strategy: Option<Strategy>,
    patch: &mut Map<String, Value>,
) {
    let Some(Strategy::MergeBy(merge_key)) = strategy else {
        let added: Vec<Value> = new.iter().filter(|element| !old.contains(element)).cloned().collect();
        let gone: Vec<Value> = old.iter().filter(|element| !new.contains(element)).cloned().collect();
        patch.insert(key.to_owned(), Value::from(added));
        patch.insert(format!("$deleteFromPrimitiveList/{key}"), Value::from(gone));
        patch.insert(format!("$setElementOrder/{key}"), Value::from(new));
        return;
    };
    let element = match ty {
        Some(Type::List(element)) => Some(&**element),
        _ => None,
    };
    let find =
        |list: &[Value], id: &Value| list.iter().find(|element| element.get(merge_key) == Some(id)).cloned();
    let mut changes = Vec::new();
    for new in new {
        let id = &new[merge_key];
        match find(old, id) {
            Some(old) if old == *new => {}
            Some(old) => {
                let mut change = diff(old.as_object().unwrap(), new.as_object().unwrap(), element);
                change.insert(merge_key.to_owned(), id.clone());
                changes.push(Value::Object(change));
            }
            None => changes.push(new.clone()),
        }
    }
    for old in old {
        if find(new, &old[merge_key]).is_none() {
            changes.push(json!({"$patch": "delete", merge_key: old[merge_key]}));
        }
    }
    let order: Vec<Value> = new.iter().map(|element| json!({merge_key: element[merge_key]})).collect();
    patch.insert(key.to_owned(), Value::from(changes));
    patch.insert(format!("$setElementOrder/{key}"), Value::from(order));
}

/// Makes the elements of merged lists distinct, as in validated objects.
fn make_distinct(value: &mut Value, ty: &Type) {
    match (value, ty) {
        (Value::Object(fields), Type::Struct(id)) => {
            let within = SCHEMA.get(*id);
            for (key, value) in fields {
                let Some(field) = within.field(key) else { continue };
                make_distinct(value, &field.ty);
                let Value::Array(list) = value else { continue };
                let mut seen = Vec::new();
                list.retain(|element| {
                    let id = match strategy(&within.name, key) {
                        Some(Strategy::MergeBy(key)) => element.get(key).cloned(),
                        Some(Strategy::Union) => Some(element.clone()),
                        _ => return true,
                    };
                    id.is_some_and(|id| {
                        !seen.contains(&id) && {
                            seen.push(id);
                            true
                        }
                    })
                });
            }
        }
        (Value::Array(list), Type::List(element)) => {
            list.iter_mut().for_each(|value| make_distinct(value, element));
        }
        (Value::Object(map), Type::Map(element)) => {
            map.values_mut().for_each(|value| make_distinct(value, element));
        }
        _ => {}
    }
}

fn has_directive(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.iter().any(|(key, value)| key.starts_with('$') || has_directive(value))
        }
        Value::Array(list) => list.iter().any(has_directive),
        _ => false,
    }
}

/// Inserts random directives into a value.
fn strew(value: &mut Value, chance: &mut Arbitrary) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(|value| strew(value, chance));
            let key = chance.pick(&[
                "",
                "",
                "",
                "$patch",
                "$retainKeys",
                "$setElementOrder/containers",
                "spec",
                "$setElementOrder/env",
                "$deleteFromPrimitiveList/finalizers",
            ]);
            let word = chance.pick(&["delete", "replace", "merge", "web"]);
            let value = match chance.below(4) {
                0 => json!(word),
                1 => json!([word]),
                2 => json!([{"name": word}]),
                _ => Value::Null,
            };
            if !key.is_empty() {
                fields.insert(key.to_owned(), value);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| strew(value, chance)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn patch_made_of_two_objects_makes_the_one_of_the_other(seed in any::<u64>()) {
        for (api_version, kind) in KINDS {
            let id = SCHEMA.kind(api_version, kind).unwrap();
            let [old, new] = [seed, seed ^ 0xffff].map(|seed| {
                let object = Arbitrary::new(seed).object(api_version, kind);
                let mut object = strict::decode_value(api_version, kind, object).unwrap().object;
                make_distinct(&mut object, &Type::Struct(id));
                object
            });
            let patch = diff(old.as_object().unwrap(), new.as_object().unwrap(), Some(&Type::Struct(id)));
            let patch = Value::Object(patch);
            let patched = strategic(&old, &patch, kind);
            prop_assert_eq!(patched.as_ref(), Ok(&new), "{} {} \n{}", kind, old, patch);
            prop_assert_eq!(&strategic(&old, &json!({}), kind).unwrap(), &old);
        }
    }

    #[test]
    fn directives_never_reach_the_result(seed in any::<u64>()) {
        let mut chance = Arbitrary::new(seed);
        for (api_version, kind) in KINDS {
            let object = chance.object(api_version, kind);
            let mut patch = chance.object(api_version, kind);
            strew(&mut patch, &mut chance);
            if let Ok(patched) = strategic(&object, &patch, kind) {
                prop_assert!(!has_directive(&patched), "{} of {}", patched, patch);
            }
        }
    }
}
