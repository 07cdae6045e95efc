//! Delete, finalizers, namespaces.

use kcm_apiserver::{Resource, WatchEvent, WatchStart};
use serde_json::{Value, json};

use crate::client::{Client, DEPLOYMENTS, deployment, version_of};

const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";

async fn with_deployment() -> (Client, Value) {
    let client = Client::new();
    let created = client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    (client, created)
}

#[tokio::test]
async fn delete_without_finalizers_returns_status() {
    let (client, created) = with_deployment().await;
    let status = client.delete(WEB, &json!({"propagationPolicy": "Background"})).await.expect(200);
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Success")));
    let uid = &created["metadata"]["uid"];
    assert_eq!(status["details"], json!({"name": "web", "group": "apps", "kind": "deployments", "uid": uid}));
    client.get(WEB).await.refused(404, "NotFound");
    let message = client.delete(WEB, &Value::Null).await.refused(404, "NotFound");
    assert_eq!(message, "deployments.apps \"web\" not found");
}

#[tokio::test]
async fn immediate_removal_is_not_marked() {
    let (client, created) = with_deployment().await;
    let mut watch = client.server.watch(Resource::DEPLOYMENTS, Some("default"), WatchStart::Now);
    client.delete(WEB, &json!({"propagationPolicy": "Background"})).await.expect(200);
    let WatchEvent::Deleted(last) = watch.next().await.unwrap() else { panic!("expected Deleted") };
    let metadata = &last.value()["metadata"];
    assert_eq!(metadata["deletionTimestamp"], Value::Null);
    assert_eq!(metadata["generation"], created["metadata"]["generation"]);
}

#[tokio::test]
async fn dry_run_in_body_keeps_object() {
    let (client, _) = with_deployment().await;
    client.delete(WEB, &json!({"dryRun": ["All"]})).await.expect(200);
    client.delete(&format!("{WEB}?dryRun=All"), &Value::Null).await.expect(200);
    client.get(WEB).await.expect(200);
    // The body takes precedence over the query.
    client.delete(&format!("{WEB}?dryRun=All"), &json!({"kind": "DeleteOptions"})).await.expect(200);
    client.get(WEB).await.refused(404, "NotFound");
}

#[tokio::test]
async fn foreground_deletion_waits_for_finalizer() {
    let (client, _) = with_deployment().await;
    let marked = client.delete(WEB, &json!({"propagationPolicy": "Foreground"})).await.expect(200);
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(marked["metadata"]["generation"], 2);
    let again = client.delete(WEB, &Value::Null).await.expect(200);
    assert_eq!(version_of(&again), version_of(&marked), "already marked");
    let answer = client.post(DEPLOYMENTS, &deployment("web")).await;
    assert_eq!(
        answer.refused(409, "AlreadyExists"),
        "object is being deleted: deployments.apps \"web\" already exists"
    );
    let gone = client.patch(WEB, &json!({"metadata": {"finalizers": null}})).await.expect(200);
    assert_eq!(gone["metadata"]["name"], "web");
    client.get(WEB).await.refused(404, "NotFound");
}

#[tokio::test]
async fn replication_controller_orphans_by_default() {
    let client = Client::new();
    let controllers = "/api/v1/namespaces/default/replicationcontrollers";
    let template = deployment("web")["spec"]["template"].clone();
    for (name, options, finalizers) in [
        ("asked-nothing", Value::Null, json!(["orphan"])),
        ("waits", json!({"propagationPolicy": "Foreground"}), json!(["foregroundDeletion"])),
        ("background", json!({"propagationPolicy": "Background"}), Value::Null),
    ] {
        let controller = json!({"metadata": {"name": name}, "spec": {"template": template}});
        client.post(controllers, &controller).await.expect(201);
        let answer = client.delete(&format!("{controllers}/{name}"), &options).await.expect(200);
        assert_eq!(answer["metadata"]["finalizers"], finalizers, "{name}");
    }
}

#[tokio::test]
async fn orphaning_by_policy_or_deprecated_option() {
    for options in [json!({"propagationPolicy": "Orphan"}), json!({"orphanDependents": true})] {
        let (client, _) = with_deployment().await;
        let marked = client.delete(WEB, &options).await.expect(200);
        assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]), "{options}");
    }
    let (client, _) = with_deployment().await;
    let both = json!({"orphanDependents": true, "propagationPolicy": "Orphan"});
    client.delete(WEB, &both).await.refused(422, "Invalid");
    client.delete(WEB, &json!({"propagationPolicy": "Sideways"})).await.refused(422, "Invalid");
    client.delete(WEB, &json!({"gracePeriodSeconds": "x"})).await.refused(400, "BadRequest");
    client.delete(WEB, &json!({"kind": "Pod"})).await.refused(400, "BadRequest");
}

#[tokio::test]
async fn finalizer_delays_removal() {
    let (client, _) = with_deployment().await;
    client.patch(WEB, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await.expect(200);
    let marked = client.delete(WEB, &json!({"orphanDependents": false})).await;
    assert_eq!(marked.expect(202)["metadata"]["finalizers"], json!(["example.com/hold"]));
    let added = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    let message = client.patch(WEB, &added).await.refused(422, "Invalid");
    assert!(message.contains("no new finalizers can be added if the object is being deleted"), "{message}");
    client.patch(WEB, &json!({"metadata": {"finalizers": []}})).await.expect(200);
    client.get(WEB).await.refused(404, "NotFound");
}

#[tokio::test]
async fn failed_precondition_conflicts() {
    let (client, created) = with_deployment().await;
    let answer = client.delete(WEB, &json!({"preconditions": {"uid": "other"}})).await;
    let message = answer.refused(409, "Conflict");
    assert!(
        message.contains("the UID in the precondition (other) does not match the UID in record"),
        "{message}"
    );
    assert_eq!(answer.json()["details"]["kind"], "Deployment");
    client.delete(WEB, &json!({"preconditions": {"resourceVersion": "1"}})).await.refused(409, "Conflict");
    let right = json!({"preconditions": {"uid": created["metadata"]["uid"], "resourceVersion": version_of(&created)}});
    client.delete(WEB, &right).await.expect(200);
}

#[tokio::test]
async fn delete_collection_deletes_selected_objects() {
    let client = Client::new();
    for name in ["a", "b", "c"] {
        client.post(DEPLOYMENTS, &deployment(name)).await.expect(201);
    }
    let list =
        client.delete(&format!("{DEPLOYMENTS}?labelSelector=app+in+(a,b)"), &Value::Null).await.expect(200);
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("DeploymentList"), 2));
    let left = client.get(DEPLOYMENTS).await.expect(200);
    assert_eq!(left["items"][0]["metadata"]["name"], "c");
    client.delete("/apis/apps/v1/deployments", &Value::Null).await.refused(405, "MethodNotAllowed");
}

#[tokio::test]
async fn namespace_is_terminating_until_finalized() {
    let client = Client::new();
    let created =
        client.post("/api/v1/namespaces", &json!({"metadata": {"name": "team-a"}})).await.expect(201);
    assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(created["status"]["phase"], "Active");
    assert_eq!(created["metadata"]["labels"]["kubernetes.io/metadata.name"], "team-a");

    let path = "/api/v1/namespaces/team-a";
    let mut marked = client.delete(path, &Value::Null).await.expect(200);
    assert_eq!((&marked["kind"], &marked["status"]["phase"]), (&json!("Namespace"), &json!("Terminating")));
    let answer = client.post(&DEPLOYMENTS.replace("default", "team-a"), &deployment("web")).await;
    let message = answer.refused(403, "Forbidden");
    let expected = "deployments.apps \"web\" is forbidden: unable to create new content in namespace team-a because \
                    it is being terminated";
    assert_eq!(message, expected);
    assert_eq!(answer.json()["details"]["causes"][0]["reason"], "NamespaceTerminating");

    marked["spec"]["finalizers"] = json!([]);
    client.put(path, &marked).await.expect(200);
    client.get(path).await.expect(200);
    client.put(&format!("{path}/finalize"), &client.get(path).await.json()).await.expect(200);
    client.get(path).await.expect(200);
    client.put(&format!("{path}/finalize"), &marked).await.expect(200);
    client.get(path).await.refused(404, "NotFound");
}

#[tokio::test]
async fn system_namespaces_are_protected() {
    let client = Client::new();
    let message = client.delete("/api/v1/namespaces/default", &Value::Null).await.refused(403, "Forbidden");
    assert_eq!(message, "namespaces \"default\" is forbidden: this namespace may not be deleted");
}
