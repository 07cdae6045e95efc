//! Resource quotas: enforcement and usage.

use kcm_apiserver::Resource;
use serde_json::{Value, json};

use crate::client::{Client, DEPLOYMENTS, PODS, REPLICA_SETS};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const SERVICES: &str = "/api/v1/namespaces/default/services";

fn quota(hard: &Value) -> Value {
    json!({"metadata": {"name": "few"}, "spec": {"hard": hard}})
}

/// A pod with these requests.
fn pod(name: &str, requests: &Value) -> Value {
    let container = json!({"name": "c", "image": "nginx:1", "resources": {"requests": requests}});
    json!({"metadata": {"name": name}, "spec": {"containers": [container]}})
}

fn replica_set(name: &str) -> Value {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("", &json!({}))["spec"]});
    json!({
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    })
}

fn service(name: &str, type_: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": type_, "ports": [{"port": 80}]}})
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// Usage of the quota `few`.
fn used(client: &Client) -> Value {
    let quota = client.server.get(Resource::RESOURCE_QUOTAS, "default", "few").unwrap();
    Value::Object(client.server.quota_usage(&quota))
}

#[tokio::test]
async fn object_counts_are_enforced() {
    struct Case {
        name: &'static str,
        path: &'static str,
        object: fn(&str) -> Value,
        plural: &'static str,
    }
    let case = |name, path, object, plural| Case { name, path, object, plural };
    for Case { name, path, object, plural } in [
        case("configmaps", CONFIG_MAPS, named, "configmaps"),
        case("count/configmaps", CONFIG_MAPS, named, "configmaps"),
        case("secrets", SECRETS, named, "secrets"),
        case("services", SERVICES, |name| service(name, "ClusterIP"), "services"),
        case("services.nodeports", SERVICES, |name| service(name, "NodePort"), "services"),
        case("services.nodeports", SERVICES, |name| service(name, "LoadBalancer"), "services"),
        case("services.loadbalancers", SERVICES, |name| service(name, "LoadBalancer"), "services"),
        case("count/pods", PODS, |name| pod(name, &json!({})), "pods"),
        case("count/replicasets.apps", REPLICA_SETS, replica_set, "replicasets.apps"),
        case("count/deployments.apps", DEPLOYMENTS, replica_set, "deployments.apps"),
    ] {
        let client = Client::new();
        client.post(QUOTAS, &quota(&json!({name: "1"}))).await.expect(201);
        assert_eq!(used(&client), json!({name: "0"}));
        client.post(path, &object("a")).await.expect(201);
        assert_eq!(used(&client), json!({name: "1"}));
        let message = client.post(path, &object("b")).await.refused(403, "Forbidden");
        let expected = format!(
            "{plural} \"b\" is forbidden: exceeded quota: few, requested: {name}=1, used: {name}=1, limited: {name}=1"
        );
        assert_eq!(message, expected);
        client.delete(&format!("{path}/a"), &Value::Null).await;
        client.post(path, &object("b")).await.expect(201);
    }
}

#[tokio::test]
async fn cluster_ip_services_use_no_node_ports() {
    let client = Client::new();
    client.post(QUOTAS, &quota(&json!({"services.nodeports": "0"}))).await.expect(201);
    client.post(SERVICES, &service("a", "ClusterIP")).await.expect(201);
    client.post(SERVICES, &service("b", "NodePort")).await.refused(403, "Forbidden");
}

#[tokio::test]
async fn compute_requests_are_enforced() {
    let client = Client::new();
    let hard =
        json!({"cpu": "1", "limits.memory": "1Gi", "memory": "500Mi", "requests.example.com/gpu": "3"});
    client.post(QUOTAS, &quota(&hard)).await.expect(201);
    let message = client.post(PODS, &pod("none", &json!({"cpu": "1"}))).await.refused(403, "Forbidden");
    assert_eq!(
        message,
        "pods \"none\" is forbidden: failed quota: few: must specify limits.memory for: c; memory for: c"
    );
    let sized = |name: &str| {
        let mut pod = pod(name, &json!({"cpu": "600m", "memory": "100Mi", "example.com/gpu": "2"}));
        pod["spec"]["containers"][0]["resources"]["limits"] =
            json!({"memory": "200Mi", "example.com/gpu": "2"});
        pod
    };
    client.post(PODS, &sized("a")).await.expect(201);
    assert_eq!(
        used(&client),
        json!({"cpu": "600m", "limits.memory": "200Mi", "memory": "100Mi", "requests.example.com/gpu": "2"})
    );
    let message = client.post(PODS, &sized("b")).await.refused(403, "Forbidden");
    assert_eq!(
        message,
        "pods \"b\" is forbidden: exceeded quota: few, requested: cpu=600m,requests.example.com/gpu=2, used: \
         cpu=600m,requests.example.com/gpu=2, limited: cpu=1,requests.example.com/gpu=3"
    );
    // A finished pod uses nothing.
    client.patch(&format!("{PODS}/a/status"), &json!({"status": {"phase": "Failed"}})).await.expect(200);
    client.post(PODS, &sized("b")).await.expect(201);
}

#[tokio::test]
async fn quota_applies_to_pods_in_its_scopes() {
    struct Case {
        spec: Value,
        /// Expected usage with a best-effort pod, a pod with a deadline and a pod with requests.
        pods: &'static str,
    }
    let class = |operator: &str, values: &[&str]| {
        let expression = json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
        json!({"scopeSelector": {"matchExpressions": [expression]}})
    };
    for Case { mut spec, pods } in [
        Case { spec: json!({}), pods: "3" },
        Case { spec: json!({"scopes": ["BestEffort"]}), pods: "2" },
        Case { spec: json!({"scopes": ["NotBestEffort"]}), pods: "1" },
        Case { spec: json!({"scopes": ["Terminating"]}), pods: "1" },
        Case { spec: json!({"scopes": ["NotTerminating"]}), pods: "2" },
        Case { spec: json!({"scopes": ["NotTerminating", "BestEffort"]}), pods: "1" },
        Case { spec: class("In", &["system-node-critical"]), pods: "1" },
        Case { spec: class("NotIn", &["system-node-critical"]), pods: "2" },
        Case { spec: class("Exists", &[]), pods: "1" },
        Case { spec: class("DoesNotExist", &[]), pods: "2" },
    ] {
        let client = Client::new();
        spec["hard"] = json!({"pods": "5"});
        client.post(QUOTAS, &json!({"metadata": {"name": "few"}, "spec": spec})).await.expect(201);
        client.post(PODS, &pod("best-effort", &json!({}))).await.expect(201);
        let mut limited = pod("limited", &json!({}));
        limited["spec"]["activeDeadlineSeconds"] = json!(60);
        client.post(PODS, &limited).await.expect(201);
        let mut sized = pod("sized", &json!({"cpu": "1"}));
        sized["spec"]["priorityClassName"] = json!("system-node-critical");
        client.post(PODS, &sized).await.expect(201);
        assert_eq!(used(&client), json!({"pods": pods}), "{spec}");
    }
}

#[tokio::test]
async fn kinds_that_are_not_served_use_nothing() {
    let client = Client::new();
    let hard =
        json!({"persistentvolumeclaims": "1", "requests.storage": "1Gi", "count/unknown.example.com": "1"});
    client.post(QUOTAS, &quota(&hard)).await.expect(201);
    assert_eq!(used(&client), json!({"persistentvolumeclaims": "0", "requests.storage": "0"}));
}
