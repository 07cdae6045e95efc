//! Pods: admission, graceful deletion, binding, eviction.

use serde_json::{Value, json};

use crate::client::{Client, PODS, pod, version_of};

const P: &str = "/api/v1/namespaces/default/pods/p";

async fn running() -> Client {
    let client = Client::new();
    client.post(PODS, &pod("p")).await.expect(201);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    client.post(&format!("{P}/binding"), &binding).await.expect(201);
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "c", "ready": true, "started": true, "restartCount": 0, "image": "nginx:1", "imageID": ""}],
    }});
    client.patch(&format!("{P}/status"), &status).await.expect(200);
    client
}

#[tokio::test]
async fn admission_sets_fields() {
    let client = Client::new();
    let created = client.post(PODS, &pod("p")).await.expect(201);
    assert_eq!(created["spec"]["serviceAccountName"], "default");
    assert_eq!(
        (&created["spec"]["priority"], &created["spec"]["preemptionPolicy"]),
        (&json!(0), &json!("PreemptLowerPriority"))
    );
    assert_eq!(created["spec"]["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(created["status"]["phase"], "Pending");
    assert_eq!(created["status"]["qosClass"], "BestEffort");
}

#[tokio::test]
async fn admission_errors_contain_the_name_prefix() {
    let client = Client::new();
    let mut nameless = pod("p");
    nameless["metadata"] = json!({"generateName": "rs-"});
    nameless["spec"]["priorityClassName"] = json!("high");
    let message = client.post(PODS, &nameless).await.refused(403, "Forbidden");
    assert_eq!(message, "pods \"rs-\" is forbidden: no PriorityClass with name high was found");
}

#[tokio::test]
async fn priority_class_sets_priority() {
    let client = Client::new();
    let mut important = pod("p");
    important["spec"]["priorityClassName"] = json!("high");
    let message = client.post(PODS, &important).await.refused(403, "Forbidden");
    assert_eq!(message, "pods \"p\" is forbidden: no PriorityClass with name high was found");
    let class = json!({"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"});
    client.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await.expect(201);
    let created = client.post(PODS, &important).await.expect(201);
    assert_eq!(
        (&created["spec"]["priority"], &created["spec"]["preemptionPolicy"]),
        (&json!(1000), &json!("Never"))
    );
}

#[tokio::test]
async fn quota_is_enforced() {
    let client = Client::new();
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}});
    client.post("/api/v1/namespaces/default/resourcequotas", &quota).await.expect(201);
    client.post(PODS, &pod("p")).await.expect(201);
    let message = client.post(PODS, &pod("q")).await.refused(403, "Forbidden");
    assert_eq!(
        message,
        "pods \"q\" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1"
    );
    client.patch(&format!("{P}/status"), &json!({"status": {"phase": "Succeeded"}})).await.expect(200);
    client.post(PODS, &pod("q")).await.expect(201);
}

#[tokio::test]
async fn pod_is_bound_once() {
    let client = running().await;
    let bound = client.get(P).await.expect(200);
    assert_eq!(bound["spec"]["nodeName"], "n");
    let condition = &bound["status"]["conditions"][0];
    let again = json!({"metadata": {"name": "p"}, "target": {"name": "m"}});
    let message = client.post(&format!("{P}/binding"), &again).await.refused(409, "Conflict");
    assert_eq!(
        message,
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\""
    );
    // The binding had set the condition before the status was replaced.
    let client = Client::new();
    client.post(PODS, &pod("q")).await.expect(201);
    let binding = json!({"metadata": {"name": "q"}, "target": {"kind": "Node", "name": "n"}});
    client.post("/api/v1/namespaces/default/bindings", &binding).await.expect(201);
    let fresh = client.get(&format!("{PODS}/q")).await.expect(200);
    assert_eq!(fresh["status"]["conditions"][0]["type"], "PodScheduled", "{condition}");
    assert_eq!(fresh["status"]["conditions"][0]["status"], "True");
}

#[tokio::test]
async fn running_pod_has_grace_period() {
    let client = running().await;
    let marked = client.delete(P, &Value::Null).await.expect(200);
    assert_eq!(marked["kind"], "Pod");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    let longer = client.delete(P, &json!({"gracePeriodSeconds": 60})).await.expect(200);
    assert_eq!(version_of(&longer), version_of(&marked), "the grace period can only be shortened");
    let sooner = client.delete(P, &json!({"gracePeriodSeconds": 10})).await.expect(200);
    assert_eq!(sooner["metadata"]["deletionTimestamp"], "2026-01-01T00:00:10Z");
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": marked["metadata"]["uid"]}});
    client.delete(P, &options).await.expect(200);
    client.get(P).await.refused(404, "NotFound");
}

#[tokio::test]
async fn unbound_pod_is_removed_immediately() {
    let client = Client::new();
    client.post(PODS, &pod("p")).await.expect(201);
    assert_eq!(client.delete(P, &Value::Null).await.expect(200)["kind"], "Pod");
    client.get(P).await.refused(404, "NotFound");
}

#[tokio::test]
async fn finalizer_outlives_grace_period() {
    let client = running().await;
    client.patch(P, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await.expect(200);
    client.delete(P, &json!({"gracePeriodSeconds": 0})).await.expect(200);
    client.get(P).await.expect(200);
    client.patch(P, &json!({"metadata": {"finalizers": null}})).await.expect(200);
    client.get(P).await.refused(404, "NotFound");
}

#[tokio::test]
async fn eviction_respects_disruption_budget() {
    let client = running().await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let budget = json!({
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    client.post(budgets, &budget).await.expect(201);
    let stale = client.post(&format!("{P}/eviction"), &eviction).await;
    stale.refused(429, "TooManyRequests");
    assert_eq!(stale.header("retry-after"), "10");
    let status = |allowed: i32| json!({"status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    client.patch(&format!("{budgets}/b/status"), &status(0)).await.expect(200);
    let refused = client.post(&format!("{P}/eviction"), &eviction).await;
    let message = refused.refused(429, "TooManyRequests");
    assert_eq!(message, "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(refused.json()["details"]["causes"][0]["reason"], "DisruptionBudget");
    client.patch(&format!("{budgets}/b/status"), &status(1)).await.expect(200);
    client.post(&format!("{P}/eviction"), &eviction).await.expect(201);
    let evicted = client.get(P).await.expect(200);
    assert_eq!(evicted["metadata"]["deletionGracePeriodSeconds"], 30);
    let conditions = evicted["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|condition| condition["type"] == "DisruptionTarget"), "{conditions:?}");
    let budget = client.get(&format!("{budgets}/b")).await.expect(200);
    assert_eq!(budget["status"]["disruptionsAllowed"], json!(0), "spent");
}
