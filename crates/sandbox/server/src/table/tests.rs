use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use kcm_apiserver::schema::{KINDS, SCHEMA, StructId, Type, Wire};

use super::*;

#[path = "../../../apiserver/src/schema/arbitrary.rs"]
mod arbitrary;
use arbitrary::{Arbitrary, cases};

fn row(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    (printer(kind).row)(object, now)
}

fn columns(kind: &str) -> &'static [Column] {
    printer(kind).columns
}

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().unwrap()
}

/// Returns the cells of the columns with these names.
fn cells(kind: &str, object: &Value, names: &[&str]) -> Vec<Value> {
    let row = row(kind, object, now());
    let position = |name: &&str| columns(kind).iter().position(|column| column.name == *name).unwrap();
    names.iter().map(|name| row[position(name)].clone()).collect()
}

#[test]
fn column_names() {
    let names = |kind: &str, priority: i32| -> Vec<&str> {
        columns(kind).iter().filter(|column| column.priority == priority).map(|column| column.name).collect()
    };
    assert_eq!(names("Deployment", 0), ["Name", "Ready", "Up-to-date", "Available", "Age"]);
    assert_eq!(names("Deployment", 1), ["Containers", "Images", "Selector"]);
    assert_eq!(names("ReplicaSet", 0), ["Name", "Desired", "Current", "Ready", "Age"]);
    assert_eq!(names("Pod", 0), ["Name", "Ready", "Status", "Restarts", "Age"]);
    assert_eq!(names("Pod", 1), ["IP", "Node", "Nominated Node", "Readiness Gates"]);
    assert_eq!(names("Event", 0), ["Last Seen", "Type", "Reason", "Object", "Message"]);
    assert_eq!(names("Node", 0), ["Name", "Status", "Roles", "Age", "Version"]);
    assert_eq!(names("Widget", 0), ["Name", "Age"]);
    assert_eq!(
        json!(columns("Lease")[0]),
        json!({
            "name": "Name", "type": "string", "format": "name", "priority": 0,
            "description": "Name of the object, unique within its namespace.",
        })
    );
}

#[test]
fn deployment() {
    let template =
        json!({"spec": {"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y"}]}});
    let object = json!({
        "metadata": {"name": "web", "creationTimestamp": "2026-01-01T23:00:00Z"},
        "spec": {"replicas": 3, "template": template, "selector": {
            "matchLabels": {"z": "1", "app": "web"},
            "matchExpressions": [
                {"key": "m", "operator": "In", "values": ["b", "a"]},
                {"key": "n", "operator": "NotIn", "values": ["c"]},
                {"key": "o", "operator": "Exists"},
                {"key": "p", "operator": "DoesNotExist"},
            ],
        }},
        "status": {"readyReplicas": 2, "updatedReplicas": 1},
    });
    assert_eq!(
        row("Deployment", &object, now()),
        [
            json!("web"),
            json!("2/3"),
            json!(1),
            json!(0),
            json!("60m"),
            json!("a,b"),
            json!("x:1,y"),
            json!("app=web,m in (a,b),n notin (c),o,!p,z=1"),
        ]
    );
    assert_eq!(
        cells("ReplicaSet", &object, &["Desired", "Current", "Ready"]),
        [json!(3), json!(0), json!(2)]
    );
}

#[test]
fn pod_status() {
    #[derive(serde::Deserialize)]
    struct Case {
        status: String,
        fields: BTreeMap<String, Value>,
    }

    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("pod_status.yaml")).unwrap();
    for Case { status, fields } in cases {
        let mut pod = json!({
            "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running"},
        });
        for (path, value) in &fields {
            let (parent, field) = path.rsplit_once('/').unwrap();
            pod.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        assert_eq!(cells("Pod", &pod, &["Status"]), [json!(status)], "{fields:?}");
    }
}

#[test]
fn pod_ready_and_restarts() {
    let object = json!({
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "a"}, {"name": "b"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
            "readinessGates": [{"conditionType": "x/y"}, {"conditionType": "Ready"}],
        },
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "initContainerStatuses": [
                {"name": "i", "restartCount": 5, "state": {"terminated": {"exitCode": 0}}},
                {"name": "s", "restartCount": 1, "started": true, "ready": true, "state": {"running": {}}},
            ],
            "containerStatuses": [
                {"name": "a", "restartCount": 2, "ready": true, "state": {"running": {}},
                 "lastState": {"terminated": {"finishedAt": "2026-01-01T23:59:55Z"}}},
                {"name": "b", "restartCount": 0, "ready": false, "state": {"running": {}},
                 "lastState": {"terminated": {"finishedAt": "2026-01-01T20:00:00Z"}}},
            ],
        },
    });
    assert_eq!(
        row("Pod", &object, now()),
        ["p", "2/3", "Running", "3 (5s ago)", "24h", "10.0.0.1", "n", "<none>", "1/2"].map(Value::from)
    );
    let bare = json!({"metadata": {"name": "p"}, "status": {"phase": "Pending"}});
    assert_eq!(
        row("Pod", &bare, now()),
        ["p", "0/0", "Pending", "0", "<unknown>", "<none>", "<none>", "<none>", "<none>"].map(Value::from)
    );
}

#[test]
fn event() {
    let old = json!({
        "metadata": {"name": "e"}, "type": "Normal", "reason": "Created", "message": " made it\n",
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
        "firstTimestamp": "2026-01-01T23:58:00Z", "lastTimestamp": "2026-01-01T23:59:00Z", "count": 3,
        "source": {"component": "kubelet", "host": "n"},
    });
    let shown = ["Last Seen", "Object", "Subobject", "Source", "Message", "First Seen", "Count", "Name"];
    assert_eq!(
        cells("Event", &old, &shown),
        [
            json!("60s"),
            json!("pod/p"),
            json!("spec"),
            json!("kubelet, n"),
            json!("made it"),
            json!("2m"),
            json!(3),
            json!("e")
        ]
    );
    let new = json!({
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Node"}, "eventTime": "2026-01-01T23:59:30.000000Z",
        "reportingComponent": "c", "reportingInstance": "i",
    });
    assert_eq!(
        cells("Event", &new, &["Last Seen", "Object", "Source", "Count"]),
        [json!("30s"), json!("node"), json!("c, i"), json!(1)]
    );
    let mut series = new;
    series["series"] = json!({"count": 9, "lastObservedTime": "2026-01-01T23:59:59.000000Z"});
    assert_eq!(cells("Event", &series, &["Last Seen", "Count"]), [json!("1s"), json!(9)]);
}

#[test]
fn node() {
    let node = json!({
        "metadata": {"name": "n", "labels": {
            "node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge", "node-role.kubernetes.io/": ""}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1", "osImage": "os"},
        },
    });
    assert_eq!(
        row("Node", &node, now()),
        [
            "n",
            "Ready,SchedulingDisabled",
            "edge,worker",
            "<unknown>",
            "v1",
            "10.0.0.1",
            "<none>",
            "os",
            "<unknown>",
            "<unknown>",
        ]
        .map(Value::from)
    );
    let status = |conditions: Value| {
        cells("Node", &json!({"status": {"conditions": conditions}}), &["Status", "Roles"])
    };
    assert_eq!(status(json!([])), [json!("Unknown"), json!("<none>")]);
    assert_eq!(status(json!([{"type": "Ready", "status": "Unknown"}])), [json!("NotReady"), json!("<none>")]);
}

#[test]
fn budgets_quotas_classes_and_autoscalers() {
    let budget = json!({
        "metadata": {"name": "b"}, "spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 2},
    });
    let names = ["Min Available", "Max Unavailable", "Allowed Disruptions"];
    assert_eq!(cells("PodDisruptionBudget", &budget, &names), [json!("50%"), json!("N/A"), json!(2)]);
    let quota = json!({"metadata": {"name": "q"}, "status": {
        "hard": {"pods": "3", "limits.cpu": "2"}, "used": {"pods": "1"},
    }});
    let expected = [json!("pods: 1/3"), json!("limits.cpu: 0/2")];
    assert_eq!(cells("ResourceQuota", &quota, &["Request", "Limit"]), expected);
    let class = json!({"metadata": {"name": "c"}, "value": 7, "globalDefault": true});
    assert_eq!(cells("PriorityClass", &class, &["Value", "Global-Default"]), [json!(7), json!(true)]);
    let utilisation = json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
    }});
    let scaler = json!({"metadata": {"name": "h"}, "spec": {
        "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 5, "metrics": [utilisation],
    }});
    let names = ["Reference", "Targets", "MinPods", "MaxPods", "Replicas"];
    let expected =
        [json!("Deployment/web"), json!("cpu: <unknown>/80%"), json!("<unset>"), json!(5), json!(0)];
    assert_eq!(cells("HorizontalPodAutoscaler", &scaler, &names), expected);
}

#[test]
fn other_kinds() {
    let service = json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "selector": {"a": "b"}, "ports": [
        {"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]}});
    assert_eq!(
        cells("Service", &service, &["External-IP", "Port(s)", "Selector"]),
        [json!("<pending>"), json!("80:30080/TCP,53/UDP"), json!("a=b")]
    );
    assert_eq!(
        cells("ConfigMap", &json!({"data": {"a": ""}, "binaryData": {"b": ""}}), &["Data"]),
        [json!(2)]
    );
    assert_eq!(
        cells("Namespace", &json!({"status": {"phase": "Active"}}), &["Status", "Age"]),
        [json!("Active"), json!("<unknown>")]
    );
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn any_object_has_a_cell_for_each_column(seed in any::<u64>()) {
        for (api_version, kind) in KINDS {
            let object = Arbitrary::new(seed).object(api_version, kind);
            prop_assert_eq!(row(kind, &object, now()).len(), columns(kind).len(), "{}", kind);
            prop_assert_eq!(row(kind, &Value::Null, now()).len(), columns(kind).len(), "{}", kind);
        }
    }
}
