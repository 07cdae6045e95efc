//! Get and list.

use serde_json::{Value, json};

use crate::client::{Client, DEPLOYMENTS, PODS, pod};

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

async fn with_pods(names: &[&str]) -> Client {
    let client = Client::new();
    for name in names {
        client.post(PODS, &pod(name)).await.expect(201);
    }
    client
}

#[tokio::test]
async fn empty_list_has_items() {
    let client = Client::new();
    let list = client.get(DEPLOYMENTS).await.expect(200);
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("DeploymentList"), &json!("apps/v1")));
    assert_eq!(list["items"], json!([]));
    assert_eq!(list["metadata"]["resourceVersion"], client.server.revision().to_string());
}

#[tokio::test]
async fn list_items_have_no_type() {
    let client = with_pods(&["p"]).await;
    let mut object = client.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("Pod"), &json!("v1")));
    let members = object.as_object_mut().unwrap();
    members.remove("kind");
    members.remove("apiVersion");
    assert_eq!(client.get(PODS).await.expect(200)["items"][0], object);
}

#[tokio::test]
async fn pages_show_one_state() {
    let client = with_pods(&["a", "b", "c"]).await;
    let first = client.get(&format!("{PODS}?limit=2")).await.expect(200);
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(1)));
    client.post(PODS, &pod("d")).await.expect(201);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = client.get(&format!("{PODS}?limit=2&continue={token}")).await.expect(200);
    assert_eq!(names(&second), ["c"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert!(second["metadata"].get("continue").is_none());
    let selected = client.get(&format!("{PODS}?limit=2&labelSelector=app=web")).await.expect(200);
    assert!(selected["metadata"].get("remainingItemCount").is_none(), "unknown with a selector");
    client.get(&format!("{PODS}?continue={token}&resourceVersion=5")).await.refused(400, "BadRequest");
    client.get(&format!("{PODS}?continue=nonsense")).await.refused(400, "BadRequest");
}

#[tokio::test]
async fn selectors() {
    let client = with_pods(&["a", "b"]).await;
    client.patch(&format!("{PODS}/b"), &json!({"metadata": {"labels": {"tier": "x"}}})).await.expect(200);
    for (query, expected) in [
        ("labelSelector=tier=x", vec!["b"]),
        ("labelSelector=!tier", vec!["a"]),
        ("labelSelector=app+in+(web),tier+notin+(x)", vec!["a"]),
        ("fieldSelector=metadata.name=a", vec!["a"]),
        ("fieldSelector=metadata.name%3Db,status.phase!%3DRunning", vec!["b"]),
        ("fieldSelector=spec.nodeName=", vec!["a", "b"]),
        ("fieldSelector=status.phase=Running", vec![]),
    ] {
        assert_eq!(names(&client.get(&format!("{PODS}?{query}")).await.expect(200)), expected, "{query}");
    }
    let message = client.get(&format!("{PODS}?fieldSelector=foo=bar")).await.refused(400, "BadRequest");
    assert_eq!(message, "field label not supported: foo");
    client.get(&format!("{PODS}?labelSelector=a+b")).await.refused(400, "BadRequest");
}

#[tokio::test]
async fn resource_versions() {
    let client = with_pods(&["a"]).await;
    let then = client.server.revision();
    client.post(PODS, &pod("b")).await.expect(201);
    let exact =
        client.get(&format!("{PODS}?resourceVersion={then}&resourceVersionMatch=Exact")).await.expect(200);
    assert_eq!(names(&exact), ["a"]);
    for query in ["resourceVersion=0", "resourceVersion=2&resourceVersionMatch=NotOlderThan", ""] {
        assert_eq!(names(&client.get(&format!("{PODS}?{query}")).await.expect(200)), ["a", "b"], "{query}");
    }
    let future = client.get(&format!("{PODS}?resourceVersion=999")).await;
    let message = future.refused(504, "Timeout");
    assert!(message.contains("Too large resource version: 999, current: "), "{message}");
    assert_eq!(future.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    for query in [
        "resourceVersionMatch=Exact",
        "sendInitialEvents=true",
        "resourceVersion=0&resourceVersionMatch=Exact",
    ] {
        client.get(&format!("{PODS}?{query}")).await.refused(422, "Invalid");
    }
    client.get(&format!("{PODS}?resourceVersion=x")).await.refused(400, "BadRequest");
}

#[tokio::test]
async fn metadata_only() {
    let client = with_pods(&["a"]).await;
    let accept = [("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")];
    let list = client.call("GET", PODS, &accept, "").await.expect(200);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
    assert!(list["items"][0].get("spec").is_none());
}

#[tokio::test]
async fn component_statuses() {
    const PATH: &str = "/api/v1/componentstatuses";
    let client = Client::new();
    let list = client.get(PATH).await;
    assert_eq!(list.warnings(), ["299 - \"v1 ComponentStatus is deprecated in v1.19+\""]);
    assert_eq!(names(&list.expect(200)), ["controller-manager", "etcd-0", "scheduler"]);
    let etcd = client.get(&format!("{PATH}/etcd-0")).await.expect(200);
    let condition = json!({"type": "Healthy", "status": "True", "message": "ok"});
    let metadata = json!({"name": "etcd-0"});
    assert_eq!(
        etcd,
        json!({"kind": "ComponentStatus", "apiVersion": "v1", "metadata": metadata, "conditions": [condition]})
    );
    let selected = client.get(&format!("{PATH}?fieldSelector=metadata.name=etcd-0")).await.expect(200);
    assert_eq!(names(&selected), ["etcd-0"]);
    let message = client.get(&format!("{PATH}/web")).await.refused(404, "NotFound");
    assert_eq!(message, "componentstatus \"web\" not found");
    let message = client.get(&format!("{PATH}?watch=true")).await.refused(405, "MethodNotAllowed");
    assert_eq!(message, "watch is not supported on resources of kind \"componentstatuses\"");
    client.delete(&format!("{PATH}/etcd-0"), &Value::Null).await.refused(405, "MethodNotAllowed");
    let resources = client.get("/api/v1").await.expect(200);
    let served = resources["resources"].as_array().unwrap();
    let served = served.iter().find(|resource| resource["name"] == "componentstatuses").unwrap();
    assert_eq!(served["verbs"], json!(["get", "list"]));
}
