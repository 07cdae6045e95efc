//! Pods and their containers.

use super::*;

#[test]
fn container_errors() {
    for Invalid { value, error, .. } in invalid("containers") {
        let errors = created("Pod", &container(value.clone()));
        assert!(errors.contains(&error), "{value}: {errors:#?}");
    }
}

#[test]
fn pod_errors() {
    for Invalid { value, error, .. } in invalid("pods") {
        let errors = created("Pod", &pod(value.clone()));
        assert!(errors.contains(&error), "{value}: {errors:#?}");
    }
}

#[test]
fn pod_spec_updates() {
    let old = pod(json!({"activeDeadlineSeconds": 10, "tolerations": [{"key": "a", "operator": "Exists"}]}));
    let changed = |path: &str, value: Value| lines(&update("Pod", &with(old.clone(), path, value), &old));
    assert!(changed("/spec/containers/0/image", json!("nginx:2")).is_empty());
    assert!(changed("/spec/activeDeadlineSeconds", json!(5)).is_empty());
    assert!(changed("/metadata/labels", json!({"a": "b"})).is_empty());
    let more = json!([{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]);
    assert!(changed("/spec/tolerations", more).is_empty());

    let hostname = changed("/spec/hostname", json!("other"));
    assert!(
        hostname[0].starts_with(
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
             existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously \
             negative)\nspec.hostname"
        ),
        "{hostname:?}"
    );
    assert_eq!(
        changed("/spec/activeDeadlineSeconds", json!(11)),
        ["spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value"]
    );
    assert_eq!(
        changed("/spec/activeDeadlineSeconds", Value::Null),
        [
            "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"
        ]
    );
    assert_eq!(
        changed("/spec/tolerations", json!([])),
        ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"]
    );
    let two = json!([old["spec"]["containers"][0], {"name": "d", "image": "a", "imagePullPolicy": "Never",
        "terminationMessagePolicy": "File"}]);
    assert_eq!(
        changed("/spec/containers", two),
        ["spec.containers: Forbidden: pod updates may not add or remove containers"]
    );
}

#[test]
fn scheduling_gates_can_only_be_removed() {
    let gated = pod(json!({"schedulingGates": [{"name": "a"}], "nodeSelector": {"x": "y"}}));
    let free = with(gated.clone(), "/spec/schedulingGates", Value::Null);
    assert!(update("Pod", &free, &gated).is_empty());
    assert_eq!(
        lines(&update("Pod", &gated, &free)),
        ["spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gate 'a'"]
    );
    let narrowed = with(gated.clone(), "/spec/nodeSelector", json!({"x": "y", "z": "1"}));
    assert!(update("Pod", &narrowed, &gated).is_empty());
    assert_eq!(update("Pod", &with(free.clone(), "/spec/nodeSelector", json!({"z": "1"})), &free).len(), 1);
}
