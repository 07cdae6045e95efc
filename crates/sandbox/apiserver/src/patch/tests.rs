#![expect(clippy::needless_pass_by_value, reason = "json!() reads best where it is used")]

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

fn patched(target: &Value, patch: Value) -> Value {
    strategic(target, &patch, "Deployment").unwrap()
}

fn refused(target: Value, patch: Value) -> PatchError {
    strategic(&target, &patch, "Deployment").unwrap_err()
}

/// Deployment with the pod spec `spec`.
fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": spec}}})
}

/// Returns the pod spec after `patch` is applied to `spec`.
fn patched_pods(spec: Value, patch: Value) -> Value {
    let patch = json!({"spec": {"template": {"spec": patch}}});
    patched(&deployment(spec), patch)["spec"]["template"]["spec"].clone()
}

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
        json!([{"op": "replace", "path": "/missing", "value": 1}]),
        json!([{"op": "remove", "path": "/list/7"}]),
    ] {
        let error = json_patch(&target, &failing).unwrap_err();
        assert_eq!((error.code, error.reason), (422, "Invalid"));
        assert_eq!(error.to_string(), "the server rejected our request due to an error in our request");
    }
}

#[test]
fn malformed_or_long_json_patch_is_rejected() {
    for broken in [json!({}), json!([1]), json!([{"op": "jump", "path": "/a"}])] {
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
    assert_eq!(merge(&target, &patch), json!({"a": {"c": 2, "d": {"f": 3}}, "list": [3]}));
    assert_eq!(merge(&target, &json!({})), target);
}

#[test]
fn maps_are_merged_and_nulls_removed() {
    let target = json!({"spec": {"paused": true, "replicas": 1}, "metadata": {"labels": {"a": "b"}}});
    let patch =
        json!({"spec": {"paused": null, "absent": null}, "metadata": {"labels": {"c": "d", "e": null}}});
    assert_eq!(
        patched(&target, patch),
        json!({"spec": {"replicas": 1}, "metadata": {"labels": {"a": "b", "c": "d"}}})
    );
}

#[test]
fn lists_are_merged_by_key_or_replaced() {
    let spec = json!({
        "containers": [{"name": "a", "image": "x:1", "args": ["1", "2"]}, {"name": "b", "image": "y:1"}],
        "tolerations": [{"key": "k"}],
    });
    let patch = json!({
        "containers": [{"name": "a", "image": "x:2", "args": ["3"]}, {"name": "c", "image": "z:1", "tty": null}],
        "tolerations": [{"key": "l"}],
    });
    assert_eq!(
        patched_pods(spec, patch),
        json!({
            "containers": [
                {"name": "a", "image": "x:2", "args": ["3"]},
                {"name": "c", "image": "z:1"},
                {"name": "b", "image": "y:1"},
            ],
            "tolerations": [{"key": "l"}],
        })
    );
}

#[test]
fn kubectl_set_image_keeps_order() {
    let spec = json!({"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]});
    let patch = json!({
        "$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
        "containers": [{"name": "b", "image": "y:2"}],
    });
    assert_eq!(
        patched_pods(spec, patch),
        json!({"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y:2"}]})
    );
}

#[test]
fn element_order_moves_listed_elements() {
    let names = |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name})).collect() };
    let order = |before: &[&str], order: &[&str]| {
        let spec = patched_pods(
            json!({"containers": names(before)}),
            json!({"$setElementOrder/containers": names(order)}),
        );
        spec["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(order(&["a", "b", "c"], &["c", "a", "b"]), ["c", "a", "b"]);
    assert_eq!(order(&["a", "s", "b"], &["a", "b"]), ["a", "s", "b"]);
    assert_eq!(order(&["s", "a", "b"], &["b", "a"]), ["s", "b", "a"]);
    assert_eq!(order(&["a", "b", "s"], &["b", "a"]), ["b", "a", "s"]);
}

#[test]
fn element_order_must_list_patched_elements() {
    let target = deployment(json!({"containers": [{"name": "a"}]}));
    let patch = json!({"spec": {"template": {"spec": {
        "$setElementOrder/containers": [{"name": "a"}],
        "containers": [{"name": "b", "image": "x"}],
    }}}});
    let error = refused(target.clone(), patch);
    assert_eq!(error.code, 400);
    assert!(error.message.contains("doesn't match $setElementOrder list"), "{error}");
    let no_list = json!({"spec": {"template": {"spec": {"$setElementOrder/containers": "a"}}}});
    assert_eq!(refused(target, no_list).message, "invalid patch format of setElementOrder list");
}

#[test]
fn element_order_of_removed_list_is_ignored() {
    let patch = json!({"$setElementOrder/containers": [], "containers": null});
    assert_eq!(patched_pods(json!({"containers": [{"name": "a"}]}), patch), json!({}));
    let nothing = json!({"$setElementOrder/containers": [{"name": "a"}]});
    assert_eq!(patched_pods(json!({}), nothing), json!({}));
}

#[test]
fn elements_are_deleted_and_lists_replaced() {
    let spec = json!({"containers": [{"name": "a", "env": [{"name": "A"}, {"name": "B"}]}]});
    let patch = json!({"containers": [{
        "name": "a",
        "$setElementOrder/env": [{"name": "B"}],
        "env": [{"$patch": "delete", "name": "A"}],
    }]});
    assert_eq!(
        patched_pods(spec.clone(), patch),
        json!({"containers": [{"name": "a", "env": [{"name": "B"}]}]})
    );
    let patch = json!({"containers": [{"$patch": "replace"}, {"name": "z", "image": "i"}]});
    assert_eq!(patched_pods(spec, patch), json!({"containers": [{"name": "z", "image": "i"}]}));
}

#[test]
fn maps_are_replaced_or_emptied() {
    let target = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch =
        json!({"spec": {"strategy": {"$patch": "replace", "type": "Recreate", "rollingUpdate": null}}});
    assert_eq!(patched(&target, patch), json!({"spec": {"strategy": {"type": "Recreate"}}}));
    let patch = json!({"spec": {"strategy": {"rollingUpdate": {"$patch": "delete"}}}});
    assert_eq!(patched(&target, patch)["spec"]["strategy"]["rollingUpdate"], json!({}));
}

#[test]
fn retain_keys_removes_others() {
    let target = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = |strategy| json!({"spec": {"strategy": strategy}});
    assert_eq!(
        patched(&target, patch(json!({"$retainKeys": ["type"], "type": "Recreate"}))),
        json!({"spec": {"strategy": {"type": "Recreate"}}})
    );
    for broken in [json!({"$retainKeys": ["type"], "rollingUpdate": {}}), json!({"$retainKeys": "type"})] {
        let error = refused(target.clone(), patch(broken));
        assert_eq!((error.code, error.message.as_str()), (400, "invalid patch format of retainKeys"));
    }
}

#[test]
fn primitive_lists_are_merged_and_reduced() {
    let target = json!({"metadata": {"finalizers": ["a/1", "b/2"]}});
    let add = json!({"metadata": {"finalizers": ["c/3", "a/1"]}});
    assert_eq!(patched(&target, add)["metadata"]["finalizers"], json!(["c/3", "a/1", "b/2"]));
    let remove = json!({"metadata": {
        "$deleteFromPrimitiveList/finalizers": ["a/1"],
        "$setElementOrder/finalizers": ["d/4", "b/2"],
        "finalizers": ["d/4"],
    }});
    assert_eq!(patched(&target, remove)["metadata"]["finalizers"], json!(["d/4", "b/2"]));
    let from_nothing = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/1"]}});
    assert_eq!(patched(&json!({}), from_nothing), json!({"metadata": {}}));
}

#[test]
fn garbage_collector_patch_removes_one_owner() {
    let target = json!({"metadata": {"uid": "u", "ownerReferences": [{"uid": "1", "name": "a"}, {"uid": "2", "name": "b"}]}});
    let patch = json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "1"}], "uid": "u"}});
    assert_eq!(
        patched(&target, patch),
        json!({"metadata": {"uid": "u", "ownerReferences": [{"uid": "2", "name": "b"}]}})
    );
}

#[test]
fn directives_without_target_are_dropped() {
    let patch = json!({"spec": {
        "strategy": {"$patch": "replace", "type": "Recreate"},
        "template": {"spec": {"containers": [
            {"$patch": "delete", "name": "a"},
            {"name": "b", "$setElementOrder/env": [{"name": "X"}], "env": [{"name": "X", "$patch": "delete"}]},
        ], "volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]}},
    }});
    assert_eq!(
        patched(&json!({}), patch.clone()),
        json!({"spec": {"template": {"spec": {
            "containers": [{"name": "b", "env": []}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        }}}})
    );
    let with_containers = deployment(json!({"containers": [{"name": "a"}]}));
    assert!(!patched(&with_containers, patch).to_string().contains('$'));
}

#[test]
fn contradictory_patches_are_rejected() {
    let target = || deployment(json!({"containers": [{"name": "a"}]}));
    let pods = |patch: Value| json!({"spec": {"template": {"spec": patch}}});
    for (patch, code, message) in [
        (pods(json!({"containers": [{"image": "x"}]})), 400, "does not contain declared merge key: name"),
        (
            pods(json!({"containers": [{"$patch": "delete"}]})),
            400,
            "does not contain declared merge key: name",
        ),
        (
            pods(json!({"containers": [{"$patch": "merge", "name": "a"}]})),
            400,
            "merging lists cannot yet be specified",
        ),
        (
            pods(json!({"containers": [{"$patch": "burn", "name": "a"}]})),
            400,
            "unknown patch type: burn in map",
        ),
        (json!({"spec": {"$patch": "burn"}}), 400, "unknown patch type: burn in map"),
        (pods(json!({"containers": ["a"]})), 400, "list element types are not identical"),
        (json!([]), 400, "a strategic merge patch is an object"),
    ] {
        let error = refused(target(), patch.clone());
        assert_eq!(error.code, code, "{patch}");
        assert!(error.message.contains(message), "{patch}: {error}");
    }
    let lists = strategic(
        &json!({"metadata": {"finalizers": [["a"]]}}),
        &json!({"metadata": {"finalizers": [["b"]]}}),
        "Deployment",
    );
    assert_eq!(lists.unwrap_err().code, 422);
}

#[test]
fn disruption_budget_selector_is_replaced() {
    let target = json!({"apiVersion": "policy/v1", "spec": {"selector": {"matchLabels": {"a": "b"}}}});
    let patch = json!({"spec": {"selector": {"matchLabels": {"c": "d"}}}});
    assert_eq!(strategic(&target, &patch, "PodDisruptionBudget").unwrap()["spec"], patch["spec"]);
}

#[test]
fn empty_patch_changes_nothing() {
    let target = deployment(json!({"containers": [{"name": "a"}]}));
    assert_eq!(patched(&target, json!({})), target);
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
