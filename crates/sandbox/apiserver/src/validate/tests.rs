#![expect(clippy::needless_pass_by_value, reason = "json!() reads best where it is used")]

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    defaults,
    schema::{
        KINDS,
        arbitrary::{Arbitrary, cases},
    },
    strict,
};

mod pods;

fn prepared(api_version: &str, kind: &str, object: Value) -> Value {
    let mut object = strict::decode_value(api_version, kind, object).unwrap().object;
    defaults::apply(kind, &mut object);
    object
}

fn deployment() -> Value {
    prepared(
        "apps/v1",
        "Deployment",
        json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
                },
            },
        }),
    )
}

fn pod(spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
    });
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    prepared("v1", "Pod", pod)
}

fn container(fields: Value) -> Value {
    let mut container = json!({"name": "c", "image": "nginx:1"});
    for (field, value) in fields.as_object().unwrap() {
        container[field] = value.clone();
    }
    pod(json!({"containers": [container]}))
}

/// Returns `object` with the value at `path` replaced.
fn with(mut object: Value, path: &str, value: Value) -> Value {
    let (parent, field) = path.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap();
    match value {
        Value::Null => {
            parent.as_object_mut().unwrap().remove(field);
        }
        value => parent[field] = value,
    }
    object
}

fn lines(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn created(kind: &str, object: &Value) -> Vec<String> {
    lines(&create(kind, object))
}

#[test]
fn valid_objects() {
    assert!(created("Deployment", &deployment()).is_empty());
    assert!(created("Pod", &pod(json!({}))).is_empty());
    assert!(update("Deployment", &deployment(), &deployment()).is_empty());
    assert!(update("Pod", &pod(json!({})), &pod(json!({}))).is_empty());
    assert!(update_status("Deployment", &deployment(), &deployment()).is_empty());
}

/// Change of a valid object, and an error that it causes.
#[derive(serde::Deserialize)]
struct Invalid {
    #[serde(default)]
    at: String,
    value: Value,
    error: String,
}

/// Cases of `errors.yaml`.
fn invalid(objects: &str) -> Vec<Invalid> {
    let all: HashMap<String, Vec<Invalid>> =
        serde_saphyr::from_str(include_str!("tests/errors.yaml")).unwrap();
    all.into_iter().find(|(name, _)| name == objects).unwrap().1
}

#[test]
fn deployment_errors() {
    for Invalid { at, value, error } in invalid("deployments") {
        assert_eq!(created("Deployment", &with(deployment(), &at, value)), [error], "{at}");
    }
}

#[test]
fn replication_controller_selectors() {
    let controller = |spec: Value| {
        prepared(
            "v1",
            "ReplicationController",
            json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec}),
        )
    };
    let template = |labels: Value| {
        json!({
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
        })
    };
    let errors = |spec: Value| created("ReplicationController", &controller(spec));
    let good = controller(json!({"template": template(json!({"app": "web"}))}));
    assert_eq!(created("ReplicationController", &good), Vec::<String>::new());
    assert_eq!(good["spec"]["selector"], json!({"app": "web"}), "it follows the labels");

    assert_eq!(
        errors(json!({"replicas": -1, "minReadySeconds": -1})),
        [
            "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
            "spec.selector: Required value",
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.template: Required value",
        ]
    );
    assert_eq!(
        errors(json!({"selector": {"app": "api"}, "template": template(json!({"app": "web"}))})),
        [
            "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`"
        ]
    );
    let mut dated = template(json!({"app": "web"}));
    dated["spec"]["activeDeadlineSeconds"] = json!(5);
    assert_eq!(
        errors(json!({"template": dated})),
        [
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicationController is \
             not Supported"
        ]
    );
    // Unlike that of a ReplicaSet, the selector may change.
    let mut moved = good.clone();
    moved["spec"]["selector"] = json!({"app": "api"});
    moved["spec"]["template"]["metadata"]["labels"] = json!({"app": "api"});
    assert_eq!(update("ReplicationController", &moved, &good), []);
    let mut counted = good.clone();
    counted["status"] = json!({"replicas": 1, "readyReplicas": 2});
    let errors = update_status("ReplicationController", &counted, &good);
    assert_eq!(
        errors[0].to_string(),
        "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"
    );
}

#[test]
fn selector_errors() {
    let labels = "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template \
                  `labels`";
    let selector = |value| created("Deployment", &with(deployment(), "/spec/selector", value));
    assert_eq!(selector(Value::Null), ["spec.selector: Required value", labels]);
    assert_eq!(
        selector(json!({})),
        ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]
    );
    let expression = json!({"matchExpressions": [{"key": "app", "operator": "Near", "values": ["a b"]}]});
    let errors = selector(expression);
    assert_eq!(
        errors[0],
        "spec.selector.matchExpressions[0].operator: Invalid value: \"Near\": not a valid selector operator"
    );
    assert!(
        errors[1].starts_with(
            "spec.selector.matchExpressions[0].values[0]: Invalid value: \"a b\": a valid label"
        )
    );
    assert!(errors[2].ends_with(": invalid label selector"));
    let no_values = json!({"matchExpressions": [{"key": "app", "operator": "In"}]});
    assert_eq!(
        selector(no_values)[0],
        "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
    );
    let set = with(with(deployment(), "/spec/selector", json!({})), "/spec/strategy", Value::Null);
    assert_eq!(
        created("ReplicaSet", &set),
        ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]
    );
}

#[test]
fn all_errors_are_reported() {
    let mut wrong = with(deployment(), "/spec/replicas", json!(-1));
    wrong["spec"]["minReadySeconds"] = json!(-1);
    let errors = create("Deployment", &wrong);
    assert_eq!(
        aggregate(&errors),
        "[spec.replicas: Invalid value: -1: must be greater than or equal to 0, spec.minReadySeconds: Invalid value: \
         -1: must be greater than or equal to 0]"
    );
    assert_eq!(aggregate(&errors[..1]), errors[0].to_string());
    assert_eq!(aggregate(&[errors[0].clone(), errors[0].clone()]), errors[0].to_string());
}

#[test]
fn selector_is_immutable() {
    let new = with(deployment(), "/spec/selector", json!({"matchLabels": {"app": "web", "b": "c"}}));
    let new = with(new, "/spec/template/metadata/labels", json!({"app": "web", "b": "c"}));
    let expected =
        "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"web\",\"b\":\"c\"}}: field is immutable";
    assert_eq!(lines(&update("Deployment", &new, &deployment())), [expected]);
    let without_strategy = |object: &Value| with(object.clone(), "/spec/strategy", Value::Null);
    let errors = update("ReplicaSet", &without_strategy(&new), &without_strategy(&deployment()));
    assert_eq!(lines(&errors), [expected]);
}

#[test]
fn metadata_errors() {
    let config = |metadata: Value| created("ConfigMap", &json!({"metadata": metadata}));
    assert_eq!(
        config(json!({"namespace": "a"})),
        ["metadata.name: Required value: name or generateName is required"]
    );
    assert!(config(json!({"namespace": "a", "generateName": "web-"})).is_empty());
    assert!(
        config(json!({"namespace": "a", "generateName": "Web-"}))[0]
            .starts_with("metadata.generateName: Invalid")
    );
    assert_eq!(config(json!({"name": "a"})), ["metadata.namespace: Required value"]);
    assert_eq!(
        created("Namespace", &json!({"metadata": {"name": "a", "namespace": "b"}})),
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
    assert!(
        created("Namespace", &json!({"metadata": {"name": "a.b"}}))[0]
            .ends_with("\"a.b\": must not contain dots")
    );
    let long = "x".repeat(64);
    let labels = config(
        json!({"name": "a", "namespace": "b", "labels": {"a b": "c", "d": long, "/e": "", "a/b/c": ""}}),
    );
    assert_eq!(labels.len(), 4, "{labels:?}");
    assert!(labels.iter().any(|line| line.ends_with("must be no more than 63 characters")));
    assert!(labels.iter().any(|line| line.contains("prefix part must be non-empty")));
    let big = json!({"name": "a", "namespace": "b", "annotations": {"a": "x".repeat(256 * 1024)}});
    assert_eq!(config(big), ["metadata.annotations: Too long: may not be more than 262144 bytes"]);
}

#[test]
fn owner_reference_errors() {
    let owner = |name: &str| json!({"apiVersion": "apps/v1", "kind": "X", "name": name, "uid": "1", "controller": true});
    let metadata =
        |owners: Value| json!({"metadata": {"name": "a", "namespace": "b", "ownerReferences": owners}});
    assert!(created("ConfigMap", &metadata(json!([owner("x")]))).is_empty());
    let two = created("ConfigMap", &metadata(json!([owner("x"), owner("y")])));
    assert!(two[0].ends_with("Found \"true\" in references for X/x and X/y"), "{two:?}");
    assert_eq!(
        created("ConfigMap", &metadata(json!([{"apiVersion": "v1", "kind": "A", "name": "b"}]))),
        ["metadata.ownerReferences.uid: Invalid value: \"\": must not be empty"]
    );
}

#[test]
fn terminating_object_gets_no_finalizers() {
    let object = |finalizers: Value| {
        json!({"metadata": {
            "name": "a", "namespace": "b", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers}})
    };
    let errors = update("ConfigMap", &object(json!(["a/b", "c/d"])), &object(json!(["a/b"])));
    assert_eq!(
        lines(&errors),
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
          finalizers []string{\"c/d\"}"
        ]
    );
    assert!(update("ConfigMap", &object(json!([])), &object(json!(["a/b"]))).is_empty());
    let both =
        json!({"metadata": {"name": "a", "namespace": "b", "finalizers": ["orphan", "foregroundDeletion"]}});
    assert!(created("ConfigMap", &both)[0].contains("cannot be both set"));
}

#[test]
fn identity_is_immutable() {
    let old = json!({"metadata": {"name": "a", "namespace": "b", "uid": "1"}});
    let new = json!({"metadata": {"name": "a", "namespace": "b", "uid": "2"}});
    assert_eq!(
        lines(&update("ConfigMap", &new, &old)),
        ["metadata.uid: Invalid value: \"2\": field is immutable"]
    );
}

#[test]
fn status_count_errors() {
    let status = |kind: &str, status: Value, old: Value| {
        let object = |status| json!({"metadata": {"name": "a", "namespace": "b"}, "status": status});
        lines(&update_status(kind, &object(status), &object(old)))
    };
    assert_eq!(
        status("Deployment", json!({"replicas": 1, "readyReplicas": 2, "updatedReplicas": -1}), json!({})),
        [
            "status.updatedReplicas: Invalid value: -1: must be greater than or equal to 0",
            "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
        ]
    );
    assert_eq!(
        status("ReplicaSet", json!({"replicas": 2, "availableReplicas": 2, "readyReplicas": 1}), json!({})),
        ["status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas"]
    );
    let collisions = |now: Value| status("Deployment", now, json!({"collisionCount": 2}));
    assert!(collisions(json!({"collisionCount": 3})).is_empty());
    assert_eq!(collisions(json!({})), ["status.collisionCount: Invalid value: 0: cannot be decremented"]);
}

#[test]
fn lease_update_requires_resource_version() {
    let lease = |version: &str| json!({"metadata": {"name": "a", "namespace": "b", "resourceVersion": version}, "spec": {"leaseDurationSeconds": 15}});
    assert!(update("Lease", &lease("1"), &lease("1")).is_empty());
    assert_eq!(
        lines(&update("Lease", &lease(""), &lease("1"))),
        ["metadata.resourceVersion: Invalid value: 0: must be specified for an update"]
    );
    let zero = with(lease("1"), "/spec/leaseDurationSeconds", json!(0));
    assert_eq!(
        created("Lease", &zero),
        ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"]
    );
    let given_back = with(lease("1"), "/spec/holderIdentity", json!(""));
    assert!(update("Lease", &given_back, &lease("1")).is_empty());
}

#[test]
fn event_errors() {
    let event = |namespace: &str, about: &str| json!({"apiVersion": "v1", "metadata": {"name": "e", "namespace": namespace}, "involvedObject": {"namespace": about}});
    assert!(created("Event", &event("a", "a")).is_empty());
    assert!(created("Event", &event("default", "")).is_empty());
    let expected = "involvedObject.namespace: Invalid value: \"b\": does not match event.namespace";
    assert_eq!(created("Event", &event("a", "b")), [expected]);
    let new = json!({
        "apiVersion": "events.k8s.io/v1", "metadata": {"name": "e", "namespace": "a"},
        "regarding": {"namespace": "a"}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c", "reason": "Started",
    });
    assert_eq!(created("Event", &new), ["reportingInstance: Required value", "action: Required value"]);
}

#[test]
fn service_port_errors() {
    let service = |spec: Value| {
        let object = json!({"metadata": {"name": "s", "namespace": "b"}, "spec": spec});
        created("Service", &prepared("v1", "Service", object))
    };
    assert!(service(json!({"ports": [{"port": 80}]})).is_empty());
    assert_eq!(service(json!({})), ["spec.ports: Required value"]);
    assert!(service(json!({"clusterIP": "None"})).is_empty());
    assert_eq!(service(json!({"type": "ExternalName"})), ["spec.externalName: Required value"]);
    assert_eq!(
        service(json!({"ports": [{"name": "a", "port": 80}, {"port": 80}]})),
        [
            "spec.ports[1].name: Required value",
            "spec.ports[1]: Duplicate value: {\"port\":80,\"protocol\":\"TCP\"}"
        ]
    );
    assert!(
        created("Service", &json!({"metadata": {"name": "1a", "namespace": "b"}}))[0].contains("DNS-1035")
    );
    let at = |ip: &str| {
        json!({"metadata": {"name": "s", "namespace": "b"},
        "spec": {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "sessionAffinity": "None", "ports": [
            {"port": 1, "targetPort": 1, "protocol": "TCP"}]}})
    };
    assert_eq!(
        lines(&update("Service", &at("10.0.0.2"), &at("10.0.0.1"))),
        ["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"]
    );
}

#[test]
fn priority_class_is_immutable() {
    let class = |value: i32, policy: &str| json!({"metadata": {"name": "a", "resourceVersion": "1"}, "value": value, "preemptionPolicy": policy});
    let old = class(1, "Never");
    assert_eq!(
        lines(&update("PriorityClass", &class(2, "Never"), &old)),
        ["value: Forbidden: may not be changed in an update."]
    );
    assert_eq!(
        lines(&update("PriorityClass", &class(1, "PreemptLowerPriority"), &old)),
        ["preemptionPolicy: Invalid value: \"PreemptLowerPriority\": field is immutable"]
    );
}

#[test]
fn data_key_and_immutability_errors() {
    let map = |fields: Value| {
        let mut object = json!({"metadata": {"name": "a", "namespace": "b"}});
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        object
    };
    assert_eq!(created("ConfigMap", &map(json!({"data": {"a b": ""}}))).len(), 1);
    assert_eq!(
        created("ConfigMap", &map(json!({"data": {"a": ""}, "binaryData": {"a": ""}}))),
        ["binaryData[a]: Invalid value: \"a\": duplicate of key present in data"]
    );
    let big = map(json!({"data": {"a": "x".repeat(1024 * 1024 + 1)}}));
    assert!(created("ConfigMap", &big)[0].ends_with("Too long: may not be more than 1048576 bytes"));
    let frozen = map(json!({"immutable": true, "data": {"a": "b"}}));
    assert_eq!(
        lines(&update("ConfigMap", &map(json!({"data": {}})), &frozen)),
        [
            "immutable: Forbidden: field is immutable when `immutable` is set",
            "data: Forbidden: field is immutable when `immutable` is set",
        ]
    );
    assert_eq!(
        created("Secret", &map(json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}))),
        ["data[tls.key]: Required value"]
    );
    assert_eq!(
        lines(&update("Secret", &map(json!({"type": "b"})), &map(json!({"type": "a"})))),
        ["type: Invalid value: \"b\": field is immutable"]
    );
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn any_object_is_valid_or_not(seed in any::<u64>()) {
        for (api_version, kind) in KINDS {
            let (a, b) = (Arbitrary::new(seed), Arbitrary::new(!seed));
            let [a, b] = [a, b].map(|mut objects| prepared(api_version, kind, objects.object(api_version, kind)));
            let _ = create(kind, &a);
            let _ = update(kind, &a, &b);
            let _ = update_status(kind, &a, &b);
            // Unchanged fields are not errors of an update.
            for error in update(kind, &a, &a) {
                prop_assert!(!error.to_string().contains("immutable"), "{}", error);
            }
        }
    }
}
