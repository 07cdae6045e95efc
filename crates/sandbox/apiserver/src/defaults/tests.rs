use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    schema::{
        KINDS,
        arbitrary::{Arbitrary, cases},
    },
    strict,
};

fn defaulted(kind: &str, mut object: Value) -> Value {
    apply(kind, &mut object);
    object
}

#[test]
fn minimal_deployment() {
    let deployment = defaulted(
        "Deployment",
        json!({
            "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}]},
                },
            },
        }),
    );
    assert_eq!(
        deployment,
        json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 1,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
                },
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {
                        "dnsPolicy": "ClusterFirst",
                        "restartPolicy": "Always",
                        "securityContext": {},
                        "terminationGracePeriodSeconds": 30,
                        "schedulerName": "default-scheduler",
                        "containers": [{
                            "name": "c",
                            "image": "nginx",
                            "imagePullPolicy": "Always",
                            "terminationMessagePath": "/dev/termination-log",
                            "terminationMessagePolicy": "File",
                            "resources": {},
                            "ports": [{"containerPort": 80, "protocol": "TCP"}],
                        }],
                    },
                },
            },
        })
    );
}

#[test]
fn explicit_values_are_kept() {
    let spec = json!({
        "replicas": 0, "revisionHistoryLimit": 0, "progressDeadlineSeconds": 5, "strategy": {"type": "Recreate"},
    });
    let spec = &defaulted("Deployment", json!({"spec": spec}))["spec"];
    assert_eq!(spec["replicas"], 0);
    assert_eq!(spec["revisionHistoryLimit"], 0);
    assert_eq!(spec["strategy"], json!({"type": "Recreate"}));
    let surge = json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0}}}});
    let strategy = &defaulted("Deployment", surge)["spec"]["strategy"];
    assert_eq!(strategy["rollingUpdate"], json!({"maxSurge": 0, "maxUnavailable": "25%"}));
}

#[test]
fn replica_set_has_replicas_but_no_selector() {
    let spec = &defaulted("ReplicaSet", json!({"spec": {}}))["spec"];
    assert_eq!(*spec, json!({"replicas": 1}));
}

#[test]
fn requests_default_to_limits_except_in_templates() {
    let containers = json!([{"name": "c", "image": "a:1", "resources": {
        "limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "100u"}}}]);
    let pod = defaulted("Pod", json!({"spec": {"containers": containers}}));
    let resources = &pod["spec"]["containers"][0]["resources"];
    assert_eq!(resources["requests"], json!({"cpu": "1m", "memory": "1Gi"}));
    assert_eq!(pod["spec"]["enableServiceLinks"], true);
    let set = defaulted("ReplicaSet", json!({"spec": {"template": {"spec": {"containers": containers}}}}));
    let spec = &set["spec"]["template"]["spec"];
    assert_eq!(spec["containers"][0]["resources"]["requests"], json!({"cpu": "1m"}));
    assert!(spec.get("enableServiceLinks").is_none());
}

#[test]
fn host_network_sets_host_ports() {
    let ports = json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}]);
    let pod = defaulted(
        "Pod",
        json!({"spec": {"hostNetwork": true, "containers": [{"name": "c", "ports": ports}]}}),
    );
    let ports = &pod["spec"]["containers"][0]["ports"];
    assert_eq!(ports[0]["hostPort"], 80);
    assert_eq!(ports[1]["hostPort"], 8081);
}

#[test]
fn deprecated_service_account_is_synchronized() {
    for (field, other) in [("serviceAccount", "serviceAccountName"), ("serviceAccountName", "serviceAccount")]
    {
        let pod = defaulted("Pod", json!({"spec": {field: "robot"}}));
        assert_eq!(pod["spec"][other], "robot");
    }
    let both = json!({"spec": {"serviceAccount": "old", "serviceAccountName": "new"}});
    assert_eq!(defaulted("Pod", both)["spec"]["serviceAccount"], "new");
}

#[test]
fn pull_policy_depends_on_tag() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("localhost:5000/nginx", "Always"),
        ("localhost:5000/nginx:1", "IfNotPresent"),
        ("Registry.example.com/a/nginx", "Always"),
        ("nginx@sha256:0123", "IfNotPresent"),
        ("nginx:latest@sha256:0123", "Always"),
        ("nginx:1@sha256:0123", "IfNotPresent"),
        ("Nginx", "IfNotPresent"),
        ("", "IfNotPresent"),
    ] {
        assert_eq!(image::pull_policy(image), policy, "{image}");
    }
}

#[test]
fn quantities_are_rounded_up_to_thousandths() {
    let limits = json!({"a": "100u", "b": "1500m", "c": "1000001n", "d": "64Mi", "e": "1e-4"});
    let pod =
        defaulted("Pod", json!({"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}));
    assert_eq!(
        pod["spec"]["containers"][0]["resources"]["limits"],
        json!({"a": "1m", "b": "1500m", "c": "2m", "d": "64Mi", "e": "1e-3"})
    );
}

#[test]
fn probes_and_hooks() {
    let pod = defaulted(
        "Pod",
        json!({"spec": {"containers": [{
            "name": "c", "image": "a:1",
            "livenessProbe": {"httpGet": {"port": 80}, "timeoutSeconds": 5},
            "readinessProbe": {"grpc": {"port": 90}},
            "lifecycle": {"preStop": {"httpGet": {"port": 80}}, "postStart": {"exec": {}}},
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        }]}}),
    );
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["livenessProbe"],
        json!({
            "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
            "timeoutSeconds": 5, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
        })
    );
    assert_eq!(container["readinessProbe"]["grpc"], json!({"port": 90, "service": ""}));
    assert_eq!(container["lifecycle"]["preStop"]["httpGet"]["path"], "/");
    assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
}

#[test]
fn volume_sources() {
    let sources = [
        (json!({}), json!({"emptyDir": {}})),
        (json!({"hostPath": {"path": "/x"}}), json!({"hostPath": {"path": "/x", "type": ""}})),
        (json!({"secret": {}}), json!({"secret": {"defaultMode": 420}})),
        (json!({"configMap": {"defaultMode": 0}}), json!({"configMap": {"defaultMode": 0}})),
        (
            json!({"projected": {"sources": [
                {"serviceAccountToken": {"path": "t"}},
                {"downwardAPI": {"items": [{"fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]}}),
            json!({"projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                {"downwardAPI": {"items": [{"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}]}},
            ]}}),
        ),
        (json!({"iscsi": {}}), json!({"iscsi": {"iscsiInterface": "default"}})),
        (
            json!({"rbd": {"user": "me"}}),
            json!({"rbd": {"user": "me", "pool": "rbd", "keyring": "/etc/ceph/keyring"}}),
        ),
        (
            json!({"azureDisk": {}}),
            json!({"azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": false, "kind": "Shared"}}),
        ),
        (json!({"scaleIO": {}}), json!({"scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"}})),
        (
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeMode": "Filesystem"}}}}),
        ),
        (json!({"image": {"reference": "a"}}), json!({"image": {"reference": "a", "pullPolicy": "Always"}})),
    ];
    for (mut given, mut expected) in sources {
        given["name"] = json!("v");
        expected["name"] = json!("v");
        let pod = defaulted("Pod", json!({"spec": {"volumes": [given]}}));
        assert_eq!(pod["spec"]["volumes"][0], expected);
    }
}

#[test]
fn namespace_has_label_and_phase() {
    assert_eq!(
        defaulted("Namespace", json!({"metadata": {"name": "team"}})),
        json!({
            "metadata": {"name": "team", "labels": {"kubernetes.io/metadata.name": "team"}},
            "status": {"phase": "Active"},
        })
    );
}

#[test]
fn service_has_type_and_target_ports() {
    let spec = json!({"ports": [{"port": 80, "targetPort": 0}, {"port": 81, "targetPort": "web"}]});
    assert_eq!(
        defaulted("Service", json!({"spec": spec}))["spec"],
        json!({
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ports": [
                {"port": 80, "targetPort": 80, "protocol": "TCP"},
                {"port": 81, "targetPort": "web", "protocol": "TCP"},
            ],
        })
    );
    let balancer =
        defaulted("Service", json!({"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP"}}));
    assert_eq!(balancer["spec"]["externalTrafficPolicy"], "Cluster");
    assert_eq!(balancer["spec"]["allocateLoadBalancerNodePorts"], true);
    assert_eq!(balancer["spec"]["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"], 10_800);
}

#[test]
fn secret_string_data_becomes_data() {
    let secret = json!({"stringData": {"a": "hello"}, "data": {"a": "eA==", "b": "eQ=="}});
    assert_eq!(
        defaulted("Secret", secret),
        json!({"type": "Opaque", "data": {"a": "aGVsbG8=", "b": "eQ=="}})
    );
}

#[test]
fn non_objects_are_ignored() {
    for value in [json!(null), json!([]), json!({"spec": 1, "metadata": "x", "status": []})] {
        for (_, kind) in KINDS {
            apply(kind, &mut value.clone());
        }
    }
    assert_eq!(defaulted("Deployment", json!({"spec": 1})), json!({"spec": 1}));
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn defaulting_twice_is_defaulting_once(seed in any::<u64>()) {
        for (api_version, kind) in KINDS {
            let object = Arbitrary::new(seed).object(api_version, kind);
            let once = defaulted(kind, strict::decode_value(api_version, kind, object).unwrap().object);
            prop_assert_eq!(&defaulted(kind, once.clone()), &once, "{}", kind);
            // Clients send defaulted objects back.
            let again = strict::decode_value(api_version, kind, once.clone()).unwrap().object;
            prop_assert_eq!(&defaulted(kind, again), &once, "{}", kind);
        }
    }
}
