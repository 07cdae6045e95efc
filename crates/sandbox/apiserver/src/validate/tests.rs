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

/// Object with the errors of its creation or of its update.
#[derive(serde::Deserialize)]
struct InvalidObject {
    kind: String,
    object: Value,
    old: Option<Value>,
    decode: Option<String>,
    #[serde(default)]
    status: bool,
    #[serde(default)]
    errors: Vec<String>,
}

#[test]
fn errors_of_objects() {
    let cases: Vec<InvalidObject> = serde_saphyr::from_str(include_str!("tests/objects.yaml")).unwrap();
    for InvalidObject { kind, object, old, decode, status, errors } in cases {
        let prepare = |object: Value| match &decode {
            Some(version) => prepared(version, &kind, object),
            None => object,
        };
        let (object, old) = (prepare(object), old.map(prepare));
        let mut found = lines(&match old {
            None => create(&kind, &object),
            Some(old) if status => update_status(&kind, &object, &old),
            Some(old) => update(&kind, &object, &old),
        });
        // Errors of metadata in updates are reported twice.
        found.dedup();
        let is_same =
            |(error, found): (&String, &String)| match (error.strip_suffix('…'), error.strip_prefix('…'))
            {
                (Some(start), _) => found.starts_with(start),
                (_, Some(end)) => found.ends_with(end),
                _ => error == found,
            };
        assert!(
            errors.len() == found.len() && errors.iter().zip(&found).all(is_same),
            "{kind} {object}: {found:#?}"
        );
    }
}

#[test]
fn long_metadata_errors() {
    let config = |metadata: Value| created("ConfigMap", &json!({"metadata": metadata}));
    let long = "x".repeat(64);
    let labels = config(
        json!({"name": "a", "namespace": "b", "labels": {"a b": "c", "d": long, "/e": "", "a/b/c": ""}}),
    );
    assert_eq!(labels.len(), 4, "{labels:?}");
    assert!(labels.iter().any(|line| line.ends_with("must be no more than 63 characters")));
    assert!(labels.iter().any(|line| line.contains("prefix part must be non-empty")));
    let big = json!({"name": "a", "namespace": "b", "annotations": {"a": "x".repeat(256 * 1024)}});
    assert_eq!(config(big), ["metadata.annotations: Too long: may not be more than 262144 bytes"]);
    let metadata = json!({"name": "a", "namespace": "b"});
    let big = json!({"metadata": metadata, "data": {"a": "x".repeat(1024 * 1024 + 1)}});
    assert!(created("ConfigMap", &big)[0].ends_with("Too long: may not be more than 1048576 bytes"));
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
