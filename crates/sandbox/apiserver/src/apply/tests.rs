use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    Resource,
    schema::arbitrary::{Arbitrary, cases},
};

static DEPLOYMENTS: Kind = Kind { resource: Resource::DEPLOYMENTS, custom: None };

fn writer(manager: &str) -> Writer<'_> {
    let time = "2026-01-01T00:00:00Z";
    Writer { kind: &DEPLOYMENTS, served_version: None, manager, subresource: "", time }
}

fn topology() -> Topology<'static> {
    version_of(&DEPLOYMENTS, "apps/v1").unwrap().0
}

fn config(replicas: Option<i64>, image: &str) -> Value {
    let mut config = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": image, "ports": [{"containerPort": 80}]}]}}},
    });
    if let Some(replicas) = replicas {
        put(&mut config, &["spec", "replicas"], replicas);
    }
    config
}

/// Sets the metadata that the registry sets on stored objects.
fn stored(mut object: Value) -> Value {
    put(&mut object, &["metadata", "uid"], "u");
    object
}

fn created(manager: &str, replicas: i64) -> Value {
    stored(apply(&empty(&DEPLOYMENTS), &config(Some(replicas), "nginx:1"), writer(manager), false).unwrap())
}

/// Returns the object after `manager` writes `change`.
fn updated(old: &Value, manager: &str, change: impl Fn(&mut Value)) -> Value {
    let mut new = old.clone();
    take_managed_fields(&mut new);
    change(&mut new);
    let managed = track(old, &new, None, false, writer(manager)).unwrap();
    put(&mut new, &["metadata", "managedFields"], managed);
    new
}

fn managed(object: &Value) -> &Vec<Value> {
    object["metadata"]["managedFields"].as_array().unwrap()
}

#[test]
fn new_object_is_owned_by_applier() {
    let object = created("kubectl", 3);
    let entry = &managed(&object)[0];
    assert_eq!(managed(&object).len(), 1);
    assert_eq!(entry["operation"], "Apply");
    assert_eq!(
        entry["fieldsV1"],
        json!({
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
                "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:ports": {
                    "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}}}},
        })
    );
}

#[test]
fn apply_conflicts_with_other_manager_unless_forced() {
    let live = updated(&created("kubectl", 3), "scaler", |new| put(new, &["spec", "replicas"], 5));
    let refused = apply(&live, &config(Some(3), "nginx:1"), writer("kubectl"), false).unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 1 conflict: conflict with \"scaler\" using apps/v1: .spec.replicas"
    );
    let causes = refused.details.unwrap().causes;
    assert_eq!(
        (causes[0].reason.as_str(), causes[0].field.as_str()),
        ("FieldManagerConflict", ".spec.replicas")
    );
    let forced = apply(&live, &config(Some(3), "nginx:1"), writer("kubectl"), true).unwrap();
    assert_eq!(forced["spec"]["replicas"], 3);
    assert_eq!(managed(&forced).len(), 1, "{forced}");
}

#[test]
fn conflicts_are_listed_by_manager() {
    let live = updated(&created("a", 3), "b", |new| {
        put(new, &["spec", "replicas"], 5);
        new["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:2");
    });
    let refused = apply(&live, &config(Some(1), "nginx:3"), writer("a"), false).unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 2 conflicts: conflicts with \"b\" using apps/v1:\n- .spec.replicas\n- \
         .spec.template.spec.containers[name=\"c\"].image"
    );
}

#[test]
fn unapplied_field_is_removed_unless_owned_by_others() {
    let live = created("a", 3);
    let alone = apply(&live, &config(None, "nginx:1"), writer("a"), false).unwrap();
    assert!(alone["spec"].get("replicas").is_none());
    let shared = stored(apply(&live, &config(Some(3), "nginx:1"), writer("b"), false).unwrap());
    assert_eq!(managed(&shared).len(), 2);
    let kept = apply(&shared, &config(None, "nginx:1"), writer("a"), false).unwrap();
    assert_eq!(kept["spec"]["replicas"], 3);
}

/// As recorded from v1.36: an apply that changes only owners does not update the time.
#[test]
fn time_stays_if_only_owners_change() {
    let at = |manager, time| Writer { time, ..writer(manager) };
    let applied = |live: &Value, replicas, writer| {
        stored(apply(live, &config(replicas, "nginx:1"), writer, false).unwrap())
    };
    let times = |object: &Value| -> Vec<(String, Option<String>)> {
        let text =
            |entry: &Value, field: &str| entry.get(field).map(|text| text.as_str().unwrap().to_owned());
        managed(object).iter().map(|entry| (text(entry, "manager").unwrap(), text(entry, "time"))).collect()
    };
    let entry = |manager: &str, time: Option<&str>| (manager.to_owned(), time.map(str::to_owned));
    let first = "2026-01-01T00:00:00Z";
    let (second, third, fourth) = ("2026-01-01T00:00:02Z", "2026-01-01T00:00:04Z", "2026-01-01T00:00:06Z");

    let shared = applied(&created("a", 3), Some(3), at("b", second));
    assert_eq!(times(&shared), [entry("b", None), entry("a", Some(first))], "b changes nothing");
    let given_up = applied(&shared, None, at("a", third));
    assert_eq!(times(&given_up), [entry("b", None), entry("a", Some(first))], "a lets go of what b has, too");
    let changed = applied(&given_up, Some(5), at("b", fourth));
    assert_eq!(times(&changed), [entry("a", Some(first)), entry("b", Some(fourth))], "b changes something");
}

#[test]
fn unapplied_item_is_removed() {
    let mut two = config(None, "nginx:1");
    let containers = two["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap();
    containers.push(json!({"name": "side", "image": "x"}));
    let live = stored(apply(&empty(&DEPLOYMENTS), &two, writer("a"), false).unwrap());
    let one = apply(&live, &config(None, "nginx:1"), writer("a"), false).unwrap();
    assert_eq!(one["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
}

#[test]
fn first_apply_conflicts_with_before_first_apply() {
    let live = stored(config(Some(3), "nginx:1"));
    let refused = apply(&live, &config(Some(4), "nginx:1"), writer("a"), false).unwrap_err();
    assert!(refused.message.contains("\"before-first-apply\" using apps/v1: .spec.replicas"), "{refused}");
    let mut noted = live;
    put(&mut noted, &LAST_APPLIED, config(Some(3), "nginx:1").to_string());
    let migrated = apply(&noted, &config(Some(4), "nginx:1"), writer("kubectl"), false).unwrap();
    assert_eq!(migrated["spec"]["replicas"], 4);
    assert!(at(&migrated, &LAST_APPLIED).unwrap().as_str().unwrap().contains("\"replicas\":4"));
}

#[test]
fn objects_without_managed_fields_are_not_tracked() {
    let live = stored(config(Some(3), "nginx:1"));
    let track = |is_tracked| track(&live, &config(Some(4), "nginx:1"), None, is_tracked, writer("x"));
    assert_eq!(track(false), None);
    assert_eq!(track(true).unwrap()[0]["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn oldest_updater_is_merged_into_ancient_changes() {
    let mut live = created("a", 3);
    for number in 0..11 {
        let (name, label) = (format!("m{number:02}"), format!("l{number}"));
        live = updated(&live, &name, |new| put(new, &["metadata", "labels", &label], "x"));
    }
    let names: Vec<&str> = managed(&live).iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 11, "{names:?}");
    assert!(names.contains(&"ancient-changes") && !names.contains(&"m00") && names.contains(&"m02"));
}

#[test]
fn field_set_round_trips() {
    let set = field_set(topology(), &config(Some(1), "x"));
    assert_eq!(set::parse(&Value::Object(set.clone())), Some(set));
    assert_eq!(set::parse(&json!({"x": {}})), None);
    assert_eq!(set::parse(&json!({"k:{": {}})), None);
}

/// Keeps one of several items with the same keys.
fn deduplicate(topology: Topology<'_>, value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.iter_mut().for_each(|(key, value)| deduplicate(topology.member(key).0, value));
        }
        Value::Array(list) => {
            if topology.parts(&Value::Array(list.clone())).is_some() {
                let mut seen = std::collections::BTreeSet::new();
                list.retain(|item| seen.insert(topology.item_step(item)));
            }
            list.iter_mut().for_each(|item| deduplicate(topology.item(), item));
        }
        _ => {}
    }
}

#[test]
fn duplicate_list_keys_are_rejected() {
    let mut twice = config(None, "x");
    let containers = twice["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap();
    containers.push(json!({"name": "c"}));
    let refused = check(&DEPLOYMENTS, "apps/v1", &twice).unwrap_err();
    assert_eq!(
        refused.message,
        "failed to create typed patch object (default/web; apps/v1, Kind=Deployment): \
         .spec.template.spec.containers: duplicate entries for key [name=\"c\"]"
    );
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn apply_again_is_a_no_op(seed: u64) {
        let mut config = Arbitrary::new(seed).object("apps/v1", "Deployment");
        deduplicate(topology(), &mut config);
        take_managed_fields(&mut config);
        let once = stored(apply(&empty(&DEPLOYMENTS), &config, writer("a"), false).unwrap());
        // A configuration without fields owns nothing and adds no manager.
        prop_assume!(once.pointer("/metadata/managedFields").is_some());
        let twice = stored(apply(&once, &config, writer("a"), false).unwrap());
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn managers_of_different_fields_never_conflict(left: u8, right: u8, again: u8) {
        let config = |prefix: &str, number: u8| json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"labels": {format!("{prefix}{number}"): "x"}},
            "spec": {"template": {"spec": {"containers": [{"name": format!("{prefix}{number}"), "image": "x"}]}}},
        });
        let mut live = stored(apply(&empty(&DEPLOYMENTS), &config("a", left), writer("a"), false).unwrap());
        live = stored(apply(&live, &config("b", right), writer("b"), false).unwrap());
        live = stored(apply(&live, &config("a", again), writer("a"), false).unwrap());
        let names: Vec<&str> = live["spec"]["template"]["spec"]["containers"].as_array().unwrap()
            .iter().map(|container| container["name"].as_str().unwrap()).collect();
        let (kept, new) = (format!("b{right}"), format!("a{again}"));
        prop_assert_eq!(names.len(), 2);
        prop_assert!(names.contains(&kept.as_str()) && names.contains(&new.as_str()));
    }
}
