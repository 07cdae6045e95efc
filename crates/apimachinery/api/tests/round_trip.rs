//! Objects are written back without losing fields, including fields of newer API servers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kcm_api::{Deployment, ReplicaSet, ReplicationController};
use serde_json::{Value, json};

fn template() -> Value {
    json!({
        "metadata": {"creationTimestamp": null, "labels": {"app": "web"}, "annotations": {"a": "b"}},
        "spec": {
            "containers": [{
                "name": "web", "image": "nginx:1.27", "resources": {"limits": {"cpu": "500m"}},
                "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            }],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 0,
        },
    })
}

fn metadata() -> Value {
    json!({
        "name": "web", "generateName": "w", "namespace": "shop", "uid": "u-1", "resourceVersion": "7", "generation": 3,
        "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:05:05Z",
        "deletionGracePeriodSeconds": 0, "labels": {"app": "web"}, "annotations": {"a": "b"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u-2",
                             "controller": false, "blockOwnerDeletion": true}],
        "finalizers": ["f"], "selfLink": "/old",
    })
}

fn selector() -> Value {
    json!({
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]},
                             {"key": "x", "operator": "Exists"}],
    })
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(),
        "spec": {
            "replicas": 0, "selector": selector(), "template": template(), "minReadySeconds": 5,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
            "revisionHistoryLimit": 0, "paused": true, "progressDeadlineSeconds": 0,
        },
        "status": {
            "observedGeneration": 3, "replicas": 4, "updatedReplicas": 3, "readyReplicas": 2,
            "availableReplicas": 1, "unavailableReplicas": 3, "terminatingReplicas": 0, "collisionCount": 0,
            "conditions": [{"type": "Progressing", "status": "True", "reason": "r", "message": "m",
                            "lastUpdateTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
        },
    })
}

fn replica_set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata(),
        "spec": {"replicas": 0, "selector": selector(), "template": template(), "minReadySeconds": 5},
        "status": {
            "replicas": 4, "fullyLabeledReplicas": 3, "readyReplicas": 2, "availableReplicas": 1,
            "terminatingReplicas": 0, "observedGeneration": 3,
            "conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "r", "message": "m",
                            "lastTransitionTime": "2026-01-02T03:04:05Z"}],
        },
    })
}

fn replication_controller() -> Value {
    let mut controller = replica_set();
    controller["apiVersion"] = json!("v1");
    controller["kind"] = json!("ReplicationController");
    controller["spec"]["selector"] = json!({"app": "web"});
    controller["status"].as_object_mut().unwrap().remove("terminatingReplicas");
    controller
}

/// Maps have no fields, so that what is not known there is just an entry. It must be a text.
const MAPS: [&str; 3] = ["/labels", "/annotations", "/matchLabels"];

/// Pointers to every object in `value`.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.push(at.to_owned());
            members.iter().for_each(|(key, value)| objects(value, &format!("{at}/{key}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| objects(item, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

#[track_caller]
fn assert_lossless(original: &Value, there_and_back: impl Fn(&str) -> String) {
    let mut places = Vec::new();
    objects(original, "", &mut places);
    assert!(places.len() > 20, "{places:?}");
    let returned: Value = serde_json::from_str(&there_and_back(&original.to_string())).unwrap();
    assert_eq!(returned, *original);
    for place in places {
        let is_map = MAPS.iter().any(|map| place.ends_with(map))
            || (original["kind"] == "ReplicationController" && place == "/spec/selector");
        let mut changed = original.clone();
        changed.pointer_mut(&place).unwrap()["futureField"] =
            if is_map { json!("text") } else { json!({"deep": [1, {"x": null}], "empty": {}}) };
        let returned: Value = serde_json::from_str(&there_and_back(&changed.to_string())).unwrap();
        assert_eq!(returned, changed, "a field under {place} was lost");
    }
}

#[test]
fn deployment_keeps_unknown_fields() {
    assert_lossless(&deployment(), |json| {
        serde_json::to_string(&serde_json::from_str::<Deployment>(json).unwrap()).unwrap()
    });
}

#[test]
fn replica_set_keeps_unknown_fields() {
    assert_lossless(&replica_set(), |json| {
        serde_json::to_string(&serde_json::from_str::<ReplicaSet>(json).unwrap()).unwrap()
    });
}

#[test]
fn replication_controller_keeps_unknown_fields() {
    assert_lossless(&replication_controller(), |json| {
        let replica_set = ReplicaSet::from(serde_json::from_str::<ReplicationController>(json).unwrap());
        serde_json::to_string(&ReplicationController::try_from(replica_set).unwrap()).unwrap()
    });
}

#[test]
fn value_and_text_decode_equally() {
    let from_tree: Deployment = serde_json::from_value(deployment()).unwrap();
    let from_text: Deployment = serde_json::from_str(&deployment().to_string()).unwrap();
    assert_eq!(from_tree, from_text);
}

#[test]
fn copied_template_keeps_unknown_fields() {
    let mut source = deployment();
    source["spec"]["template"]["spec"]["containers"][0]["future"] = json!({"x": 1.50});
    let deployment: Deployment = serde_json::from_value(source.clone()).unwrap();
    let mut set = ReplicaSet::default();
    set.spec.template = deployment.spec.template.with_label("pod-template-hash", Some("abc")).unwrap();

    let written = serde_json::to_value(&set).unwrap();
    source["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] = json!("abc");
    assert_eq!(written["spec"]["template"], source["spec"]["template"]);
    assert!(set.spec.template.equal_ignore_hash(&deployment.spec.template));
}

#[test]
fn unknown_template_field_changes_digest_and_not_hash() {
    let known: Deployment = serde_json::from_value(deployment()).unwrap();
    let mut newer = deployment();
    newer["spec"]["template"]["spec"]["future"] = json!(true);
    let newer: Deployment = serde_json::from_value(newer).unwrap();
    assert!(!known.spec.template.equal_ignore_hash(&newer.spec.template));
    assert_eq!(known.spec.template.compute_hash(None), newer.spec.template.compute_hash(None));
}

#[test]
fn null_is_unset() {
    let nulls = json!({
        "metadata": {"name": "web", "labels": null, "ownerReferences": null, "creationTimestamp": null},
        "spec": {"replicas": null, "selector": null, "template": null, "strategy": null, "paused": null},
        "status": null,
    });
    let deployment: Deployment = serde_json::from_value(nulls).unwrap();
    let bare: Deployment = serde_json::from_value(json!({"metadata": {"name": "web"}})).unwrap();
    assert_eq!(deployment, bare);
}

#[test]
fn managed_fields_are_dropped() {
    let mut managed = replica_set();
    managed["metadata"]["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]);
    let set: ReplicaSet = serde_json::from_value(managed).unwrap();
    assert_eq!(serde_json::to_value(&set).unwrap(), replica_set());
}
