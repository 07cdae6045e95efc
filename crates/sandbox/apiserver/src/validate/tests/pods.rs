//! Pods and their containers.

use super::*;

#[test]
fn container_errors() {
    for (fields, expected) in [
        (json!({"name": ""}), "spec.containers[0].name: Required value"),
        (json!({"image": ""}), "spec.containers[0].image: Required value"),
        (
            json!({"image": " nginx"}),
            "spec.containers[0].image: Invalid value: \" nginx\": must not have leading or trailing whitespace",
        ),
        (
            json!({"imagePullPolicy": "Sometimes"}),
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \
             \"IfNotPresent\", \"Never\"",
        ),
        (json!({"ports": [{}]}), "spec.containers[0].ports[0].containerPort: Required value"),
        (
            json!({"ports": [{"containerPort": 65536}]}),
            "spec.containers[0].ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
        ),
        (
            json!({"ports": [{"containerPort": 80, "protocol": "HTTP"}]}),
            "spec.containers[0].ports[0].protocol: Unsupported value: \"HTTP\": supported values: \"SCTP\", \"TCP\", \
             \"UDP\"",
        ),
        (
            json!({"ports": [{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}]}),
            "spec.containers[0].ports[1].name: Duplicate value: \"a\"",
        ),
        (
            json!({"ports": [{"containerPort": 80, "hostPort": 9}, {"containerPort": 81, "hostPort": 9}]}),
            "spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//9\"",
        ),
        (json!({"env": [{"value": "x"}]}), "spec.containers[0].env[0].name: Required value"),
        (
            json!({"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
            "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
        ),
        (
            json!({"envFrom": [{}]}),
            "spec.containers[0].envFrom[0]: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
        ),
        (
            json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
            "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
        ),
        (
            json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}}),
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of \
             1500m",
        ),
        (
            json!({"resources": {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}}}),
            "spec.containers[0].resources.requests: Invalid value: \"1\": must be equal to example.com/gpu limit of 2",
        ),
        (
            json!({"resources": {"limits": {"cpu": "-1"}}}),
            "spec.containers[0].resources.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            json!({"livenessProbe": {"successThreshold": 2, "httpGet": {"port": 80}}}),
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            json!({"readinessProbe": {}}),
            "spec.containers[0].readinessProbe: Required value: must specify a handler type",
        ),
        (
            json!({"readinessProbe": {"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}}),
            "spec.containers[0].readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
        ),
        (
            json!({"securityContext": {"runAsUser": -1}}),
            "spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, \
             inclusive",
        ),
    ] {
        let errors = created("Pod", &container(fields.clone()));
        assert!(errors.contains(&expected.to_owned()), "{fields}: {errors:#?}");
    }
}

#[test]
fn pod_errors() {
    let volume = |volume: Value| json!({"volumes": [volume]});
    let (a, b) = (json!({"name": "c", "image": "a"}), json!({"name": "c", "image": "b"}));
    for (fields, expected) in [
        (json!({"containers": []}), "spec.containers: Required value"),
        (json!({"containers": [a, b]}), "spec.containers[1].name: Duplicate value: \"c\""),
        (json!({"initContainers": [b]}), "spec.initContainers[0].name: Duplicate value: \"c\""),
        (
            json!({"restartPolicy": "Maybe"}),
            "spec.restartPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
        (
            json!({"terminationGracePeriodSeconds": -1}),
            "spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"activeDeadlineSeconds": 0}),
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "kernel/shm_rmid_forced", "value": "1"}, {"name": "bar..", "value": "1"}]}}),
            "spec.securityContext.sysctls[1].name: Invalid value: \"bar..\": must have at most 253 characters and match \
             regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "a.b", "value": "1"}, {"name": "a.b", "value": "2"}]}}),
            "spec.securityContext.sysctls[1].name: Duplicate value: \"a.b\"",
        ),
        (volume(json!({"name": ""})), "spec.volumes[0].name: Required value"),
        (
            volume(json!({"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}})),
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (volume(json!({"name": "v", "configMap": {}})), "spec.volumes[0].configMap.name: Required value"),
        (volume(json!({"name": "v", "secret": {}})), "spec.volumes[0].secret.secretName: Required value"),
        (
            volume(json!({"name": "v", "secret": {"secretName": "s", "defaultMode": 512}})),
            "spec.volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both \
             inclusive",
        ),
        (json!({"volumes": [{"name": "v"}, {"name": "v"}]}), "spec.volumes[1].name: Duplicate value: \"v\""),
        (
            json!({"tolerations": [{"effect": "NoSchedule"}]}),
            "spec.tolerations[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which \
             means \"match all values and all keys\"",
        ),
        (
            json!({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}]}),
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
        ),
        (
            json!({"nodeName": "n", "schedulingGates": [{"name": "g"}]}),
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        ),
        (
            json!({"ephemeralContainers": [{"name": "e", "image": "a"}]}),
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ),
    ] {
        let errors = created("Pod", &pod(fields.clone()));
        assert!(errors.contains(&expected.to_owned()), "{fields}: {errors:#?}");
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
