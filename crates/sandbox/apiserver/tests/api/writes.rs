//! Create, update, patch.

use serde_json::{Value, json};

use crate::client::{Client, DEPLOYMENTS, REPLICA_SETS, deployment, replica_set, version_of};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

#[tokio::test]
async fn create_sets_server_fields() {
    let client = Client::new();
    let created = client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let metadata = &created["metadata"];
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!((&metadata["generation"], &metadata["namespace"]), (&json!(1), &json!("default")));
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert_eq!(created["spec"]["progressDeadlineSeconds"], 600);
    assert_eq!(client.get(&format!("{DEPLOYMENTS}/web")).await.expect(200), created);
}

#[tokio::test]
async fn create_with_existing_name_fails() {
    let client = Client::new();
    client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let answer = client.post(DEPLOYMENTS, &deployment("web")).await;
    assert_eq!(answer.refused(409, "AlreadyExists"), "deployments.apps \"web\" already exists");
    assert_eq!(answer.json()["details"], json!({"name": "web", "group": "apps", "kind": "deployments"}));
}

#[tokio::test]
async fn create_at_wrong_address_fails() {
    let client = Client::new();
    let mut elsewhere = deployment("web");
    elsewhere["metadata"]["namespace"] = json!("kube-system");
    let message = client.post(DEPLOYMENTS, &elsewhere).await.refused(400, "BadRequest");
    assert_eq!(
        message,
        "the namespace of the provided object does not match the namespace sent on the request"
    );

    let mut version = deployment("web");
    version["apiVersion"] = json!("apps/v1beta1");
    client.post(DEPLOYMENTS, &version).await.refused(400, "BadRequest");
    client.post(DEPLOYMENTS, &replica_set("web")).await.refused(400, "BadRequest");

    let missing = DEPLOYMENTS.replace("default", "missing");
    let message = client.post(&missing, &deployment("web")).await.refused(404, "NotFound");
    assert_eq!(message, "namespaces \"missing\" not found");
    client.post("/apis/apps/v1/deployments", &deployment("web")).await.refused(405, "MethodNotAllowed");
}

#[tokio::test]
async fn create_with_resource_version_fails() {
    let client = Client::new();
    let mut exported = deployment("web");
    exported["metadata"]["resourceVersion"] = json!("5");
    let answer = client.post(DEPLOYMENTS, &exported).await;
    assert_eq!(answer.refused(500, ""), "resourceVersion should not be set on objects to be created");
}

#[tokio::test]
async fn create_generates_name() {
    let client = Client::new();
    let mut nameless = replica_set("web");
    nameless["metadata"].as_object_mut().unwrap().remove("name");
    nameless["metadata"]["generateName"] = json!("web-");
    let names: Vec<Value> = [
        client.post(REPLICA_SETS, &nameless).await.expect(201),
        client.post(REPLICA_SETS, &nameless).await.expect(201),
    ]
    .map(|created| created["metadata"]["name"].clone())
    .into();
    assert_ne!(names[0], names[1]);
    assert!(names.iter().all(|name| name.as_str().unwrap().starts_with("web-")), "{names:?}");
}

#[tokio::test]
async fn create_with_name_keeps_generate_name() {
    let client = Client::new();
    let mut named = replica_set("web-bcdfg");
    named["metadata"]["generateName"] = json!("web-");
    let created = client.post(REPLICA_SETS, &named).await.expect(201);
    let metadata = &created["metadata"];
    assert_eq!((&metadata["name"], &metadata["generateName"]), (&json!("web-bcdfg"), &json!("web-")));
    let message = client.post(REPLICA_SETS, &named).await.refused(409, "AlreadyExists");
    assert!(
        message.starts_with("replicasets.apps \"web-bcdfg\" already exists, the server was not able"),
        "{message}"
    );
}

#[tokio::test]
async fn dry_run_writes_nothing() {
    let client = Client::new();
    let before = client.server.revision();
    let path = format!("{DEPLOYMENTS}?dryRun=All");
    client.post(&path, &deployment("web")).await.expect(201);
    client.get(&format!("{DEPLOYMENTS}/web")).await.refused(404, "NotFound");
    assert_eq!(client.server.revision(), before);
    let answer = client.post(&format!("{DEPLOYMENTS}?dryRun=Some"), &deployment("web")).await;
    let message = answer.refused(422, "Invalid");
    assert!(
        message.ends_with("dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""),
        "{message}"
    );
}

#[tokio::test]
async fn unknown_field_is_rejected_warned_about_or_ignored() {
    let client = Client::new();
    let mut typo = deployment("web");
    typo["spec"]["repliccas"] = json!(2);
    let with = |mode: &str| format!("{DEPLOYMENTS}?fieldValidation={mode}&dryRun=All");
    let message = client.post(&with("Strict"), &typo).await.refused(400, "BadRequest");
    let expected = "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown field \"spec.repliccas\"";
    assert_eq!(message, expected);
    let warned = client.post(&with("Warn"), &typo).await;
    warned.expect(201);
    assert_eq!(warned.warnings(), ["299 - \"unknown field \\\"spec.repliccas\\\"\""]);
    assert!(client.post(&with("Ignore"), &typo).await.warnings().is_empty());
    client.post(&with("Sometimes"), &typo).await.refused(422, "Invalid");
}

#[tokio::test]
async fn invalid_object_is_rejected_with_all_errors() {
    let client = Client::new();
    let mut invalid = deployment("web");
    invalid["spec"]["replicas"] = json!(-1);
    invalid["spec"]["template"]["metadata"]["labels"] = json!({"app": "x"});
    let answer = client.post(DEPLOYMENTS, &invalid).await;
    let message = answer.refused(422, "Invalid");
    assert!(message.starts_with("Deployment.apps \"web\" is invalid: ["), "{message}");
    assert!(
        message.contains("spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        "{message}"
    );
    let details = &answer.json()["details"];
    assert_eq!((&details["kind"], &details["group"]), (&json!("Deployment"), &json!("apps")));
    assert_eq!(details["causes"].as_array().unwrap().len(), 2, "{details}");
}

#[tokio::test]
async fn update_with_stale_version_conflicts() {
    let client = Client::new();
    let path = format!("{DEPLOYMENTS}/web");
    let first = client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let mut changed = first.clone();
    changed["spec"]["replicas"] = json!(4);
    client.put(&path, &changed).await.expect(200);
    let answer = client.put(&path, &changed).await;
    let expected = "Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; please \
                    apply your changes to the latest version and try again";
    assert_eq!(answer.refused(409, "Conflict"), expected);
    let mut blind = deployment("web");
    blind["spec"]["replicas"] = json!(7);
    let overwritten = client.put(&path, &blind).await.expect(200);
    assert_eq!(overwritten["spec"]["replicas"], 7);
    assert_eq!(overwritten["metadata"]["uid"], first["metadata"]["uid"]);
}

#[tokio::test]
async fn lease_update_requires_version() {
    let client = Client::new();
    let lease =
        json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}});
    let created = client.post(LEASES, &lease).await.expect(201);
    let path = format!("{LEASES}/l");
    let message = client.put(&path, &lease).await.refused(422, "Invalid");
    assert!(
        message.ends_with("metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
        "{message}"
    );
    client.put(&path, &created).await.expect(200);
}

#[tokio::test]
async fn update_without_change_writes_nothing() {
    let client = Client::new();
    let path = format!("{DEPLOYMENTS}/web");
    let created = client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let before = client.server.revision();
    assert_eq!(client.put(&path, &created).await.expect(200), created);
    assert_eq!(client.patch(&path, &json!({})).await.expect(200), created);
    // Unset fields are defaulted before the comparison.
    assert_eq!(client.put(&path, &deployment("web")).await.expect(200), created);
    assert_eq!(client.server.revision(), before);
}

#[tokio::test]
async fn update_with_other_uid_conflicts() {
    let client = Client::new();
    client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let mut other = deployment("web");
    other["metadata"]["uid"] = json!("other");
    let message = client.put(&format!("{DEPLOYMENTS}/web"), &other).await.refused(409, "Conflict");
    assert!(
        message.contains("Precondition failed: UID in precondition: other, UID in object meta: "),
        "{message}"
    );
}

#[tokio::test]
async fn generation_counts_as_upstream() {
    let client = Client::new();
    let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap();
    let annotate = json!({"metadata": {"annotations": {"a": "b"}}});
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let scale = json!({"spec": {"replicas": 5}});
    client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    client.post(REPLICA_SETS, &replica_set("web")).await.expect(201);
    for (path, expected) in [(DEPLOYMENTS, [2, 2, 3]), (REPLICA_SETS, [1, 1, 2])] {
        for (patch, expected) in [&annotate, &label, &scale].into_iter().zip(expected) {
            let patched = client.patch(&format!("{path}/web"), patch).await.expect(200);
            assert_eq!(generation(&patched), expected, "{path} {patch}");
        }
    }
    let mut lying = deployment("web");
    lying["metadata"]["generation"] = json!(99);
    lying["spec"]["replicas"] = json!(1);
    assert_eq!(generation(&client.put(&format!("{DEPLOYMENTS}/web"), &lying).await.expect(200)), 4);
}

#[tokio::test]
async fn status_is_written_only_through_its_subresource() {
    let client = Client::new();
    let path = format!("{DEPLOYMENTS}/web");
    client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let patch = json!({
        "metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}},
        "spec": {"replicas": 9},
        "status": {"replicas": 2, "observedGeneration": 1},
    });
    let status = client.patch(&format!("{path}/status"), &patch).await.expect(200);
    assert_eq!((&status["spec"]["replicas"], &status["status"]["replicas"]), (&json!(3), &json!(2)));
    assert_eq!(status["metadata"]["labels"], json!({"app": "web"}));
    assert_eq!(status["metadata"]["annotations"], json!({"x": "y"}));
    assert_eq!(status["metadata"]["generation"], 1);
    let main = client.patch(&path, &json!({"status": {"replicas": 7}})).await.expect(200);
    assert_eq!(main["status"]["replicas"], 2);
    assert_eq!(version_of(&main), version_of(&status));
}

#[tokio::test]
async fn patch_with_version_is_conditional() {
    let client = Client::new();
    let path = format!("{DEPLOYMENTS}/web");
    let created = client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let patch = |version: &str, replicas: i32| json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}});
    client.patch(&path, &patch(version_of(&created), 4)).await.expect(200);
    client.patch(&path, &patch(version_of(&created), 5)).await.refused(409, "Conflict");
    client.patch(&path, &json!({"spec": {"replicas": 5}})).await.expect(200);
    client.patch(&format!("{DEPLOYMENTS}/nope"), &json!({})).await.refused(404, "NotFound");
}

#[tokio::test]
async fn patch_formats() {
    let client = Client::new();
    let path = format!("{DEPLOYMENTS}/web");
    client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}});
    let patched = client.patch_as("strategic-merge", &path, &image).await.expect(200);
    let container = &patched["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&container["image"], &container["terminationMessagePath"]),
        (&json!("nginx:2"), &json!("/dev/termination-log"))
    );
    let replace = json!([{"op": "replace", "path": "/spec/replicas", "value": 6}]);
    assert_eq!(client.patch_as("json", &path, &replace).await.expect(200)["spec"]["replicas"], 6);
    let failing = json!([{"op": "test", "path": "/spec/replicas", "value": 1}]);
    client.patch_as("json", &path, &failing).await.refused(422, "Invalid");
    client
        .call("PATCH", &path, &[("content-type", "application/merge-patch+json")], "{")
        .await
        .refused(400, "BadRequest");
}

#[tokio::test]
async fn duplicate_keys_of_an_applied_configuration_are_reported() {
    let client = Client::new();
    let apply = async |validation: &str| {
        let uri =
            format!("/api/v1/namespaces/default/configmaps/c?fieldManager=m&fieldValidation={validation}");
        let body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: one\n  a: two\n";
        client.call("PATCH", &uri, &[("content-type", "application/apply-patch+yaml")], body).await
    };
    let strict = apply("Strict").await;
    assert_eq!(strict.code, 400);
    assert_eq!(
        strict.json()["message"],
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key \"a\" \
         already set in map"
    );
    let warned = apply("Warn").await;
    assert_eq!(warned.json()["data"]["a"], "two");
    assert!(warned.header("warning").contains("line 6: key"), "{}", warned.header("warning"));
    let ignored = apply("Ignore").await;
    assert_eq!((ignored.code, ignored.header("warning")), (200, ""));
}

#[tokio::test]
async fn equal_write_of_another_manager_changes_nothing() {
    let client = Client::new();
    let created = client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let path = format!("{DEPLOYMENTS}/web?fieldManager=other");
    assert_eq!(client.put(&path, &created).await.expect(200), created);
    let replicas = json!({"spec": {"replicas": created["spec"]["replicas"]}});
    assert_eq!(client.patch(&path, &replicas).await.expect(200), created);
    client.patch(&format!("{DEPLOYMENTS}/web/scale?fieldManager=other"), &replicas).await.expect(200);
    assert_eq!(client.get(&format!("{DEPLOYMENTS}/web")).await.expect(200), created);
}

#[tokio::test]
async fn managed_fields_begin_with_the_first_apply_if_disabled() {
    let client = Client::with(|config| config.managed_fields = false);
    let created = client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    assert_eq!(created["metadata"].get("managedFields"), None);
    let path = format!("{DEPLOYMENTS}/web?fieldManager=a");
    let header = [("content-type", "application/apply-patch+yaml")];
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": {"a": "b"}}});
    let applied = client.call("PATCH", &path, &header, config.to_string()).await.expect(200);
    let managers = applied["metadata"]["managedFields"].as_array().unwrap();
    let names: Vec<&Value> = managers.iter().map(|entry| &entry["manager"]).collect();
    assert_eq!(names, ["a", "before-first-apply"]);
}

#[tokio::test]
async fn apply_conflicts_with_other_managers() {
    let client = Client::new();
    let apply = async |query: &str, replicas: u32, managed: Value| {
        let mut config = deployment("web");
        config["spec"]["replicas"] = json!(replicas);
        config["metadata"]["managedFields"] = managed;
        let path = format!("{DEPLOYMENTS}/web?{query}");
        let header = [("content-type", "application/apply-patch+yaml")];
        client.call("PATCH", &path, &header, config.to_string()).await
    };
    apply("", 1, Value::Null).await.refused(422, "Invalid");
    let message = apply("fieldManager=a", 1, json!([{"manager": "a"}])).await.refused(400, "BadRequest");
    assert_eq!(message, "metadata.managedFields must be nil");
    let created = apply("fieldManager=a", 1, Value::Null).await.expect(201);
    assert_eq!(created["metadata"]["managedFields"][0]["operation"], "Apply");
    let again = apply("fieldManager=a", 1, Value::Null).await.expect(200);
    assert_eq!(again["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    client
        .patch(&format!("{DEPLOYMENTS}/web/scale?fieldManager=b"), &json!({"spec": {"replicas": 4}}))
        .await
        .expect(200);
    let message = apply("fieldManager=a", 1, Value::Null).await.refused(409, "Conflict");
    assert_eq!(
        message,
        "Apply failed with 1 conflict: conflict with \"b\" with subresource \"scale\" using apps/v1: .spec.replicas"
    );
    let forced = apply("fieldManager=a&force=true", 1, Value::Null).await.expect(200);
    assert_eq!(forced["spec"]["replicas"], 1);
}

/// The managed fields are those of kube-apiserver.
#[tokio::test]
async fn scale_is_applied() {
    let client = Client::new();
    let path = format!("{DEPLOYMENTS}/web");
    let apply = async |query: &str, config: Value| {
        let mut config = config;
        config["apiVersion"] = json!("autoscaling/v1");
        config["kind"] = json!("Scale");
        let path = format!("{path}/scale?{query}");
        let header = [("content-type", "application/apply-patch+yaml")];
        client.call("PATCH", &path, &header, config.to_string()).await
    };
    // Owners of replicas, in the order of the managed fields. Entries of a Scale have no time.
    let owners = async || {
        let object = client.get(&path).await.expect(200);
        let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
        let entries = entries.map(|entry| {
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let owned = entry["fieldsV1"].pointer("/f:spec/f:replicas").is_some();
            let time = entry.get("time").map_or("", |_| " at a time");
            let owned = if owned { "owns" } else { "does not own" };
            format!("{} {} {owned}{time}", text("manager"), text("subresource"))
        });
        (object["spec"]["replicas"].as_i64().unwrap(), entries.collect::<Vec<_>>().join(", "))
    };
    let replicas = |replicas: i64| json!({"spec": {"replicas": replicas}});
    let create = async || {
        client.delete(&path, &json!({})).await;
        let deployments = format!("{DEPLOYMENTS}?fieldManager=cr");
        client.post(&deployments, &deployment("web")).await.expect(201);
    };
    create().await;
    assert_eq!(owners().await, (3, "cr  owns at a time".into()));
    let message = apply("fieldManager=m", replicas(4)).await.refused(409, "Conflict");
    assert_eq!(
        message,
        "Apply failed with 1 conflict: conflict with \"cr\" using autoscaling/v1: .spec.replicas"
    );
    let scale = apply("fieldManager=m&force=true", replicas(4)).await.expect(200);
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(4)));
    assert_eq!(scale["metadata"].get("managedFields"), None);
    assert_eq!(owners().await, (4, "m scale owns, cr  does not own at a time".into()));
    apply("fieldManager=n", replicas(4)).await.expect(200);
    assert_eq!(owners().await, (4, "m scale owns, n scale owns, cr  does not own at a time".into()));
    let message = apply("fieldManager=m", replicas(5)).await.refused(409, "Conflict");
    assert!(message.ends_with("conflict with \"n\" with subresource \"scale\": .spec.replicas"), "{message}");
    // Without fields, the manager owns nothing any more.
    apply("fieldManager=n", json!({})).await.expect(200);
    apply("fieldManager=m", json!({})).await.expect(200);
    assert_eq!(owners().await, (0, "cr  does not own at a time".into()));

    create().await;
    apply("fieldManager=m", replicas(3)).await.expect(200);
    assert_eq!(owners().await, (3, "m scale owns, cr  owns, cr  does not own at a time".into()));
    // The last of the entries of a manager is used.
    client
        .patch(&format!("{path}?fieldManager=cr"), &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .expect(200);
    assert_eq!(owners().await, (3, "m scale owns, cr  does not own at a time".into()));

    for (config, code, reason, message) in [
        (
            json!({"metadata": {"name": "a"}}),
            400,
            "BadRequest",
            "the name of the object (a) does not match the name on the URL (web)",
        ),
        (
            json!({"metadata": {"namespace": "a"}}),
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            json!({"metadata": {"managedFields": [{}]}}),
            400,
            "BadRequest",
            "metadata.managedFields must be nil",
        ),
    ] {
        assert_eq!(apply("fieldManager=m", config).await.refused(code, reason), message);
    }
    let unknown = apply("fieldManager=m", json!({"foo": 1})).await;
    assert_eq!(unknown.code, 500, "{}", unknown.text);
    apply("", replicas(1)).await.refused(422, "Invalid");
    apply("fieldManager=m", replicas(-1)).await.refused(422, "Invalid");
}

#[tokio::test]
async fn status_of_a_service_cidr_has_no_metadata() {
    let client = Client::new();
    let path = "/apis/networking.k8s.io/v1/servicecidrs";
    let range = json!({"metadata": {"name": "a", "labels": {"a": "b"}}, "spec": {"cidrs": ["10.1.0.0/24"]}});
    client.post(path, &range).await.expect(201);
    let metadata = json!({"labels": {"a": "c"}, "annotations": {"a": "b"}, "finalizers": ["example.com/a"]});
    let condition = json!({"type": "Ready", "status": "True", "reason": "a", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let patch = json!({"metadata": metadata, "status": {"conditions": [condition]}});
    let written = client.patch(&format!("{path}/a/status"), &patch).await.expect(200);
    assert_eq!(written["status"]["conditions"][0]["type"], "Ready");
    assert_eq!(written["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(written["metadata"].get("annotations"), None);
    assert_eq!(written["metadata"].get("finalizers"), None);
}

#[tokio::test]
async fn patch_with_unknown_field_fails_if_strict() {
    let client = Client::new();
    client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let path = format!("{DEPLOYMENTS}/web?fieldValidation=Strict");
    let message = client.patch(&path, &json!({"spec": {"repliccas": 1}})).await.refused(422, "Invalid");
    assert!(message.contains("strict decoding error: unknown field \"spec.repliccas\""), "{message}");
    let warned = client.patch(&format!("{DEPLOYMENTS}/web"), &json!({"spec": {"repliccas": 1}})).await;
    warned.expect(200);
    assert_eq!(warned.warnings().len(), 1);
}

#[tokio::test]
async fn scale_reads_and_writes_replicas() {
    let client = Client::new();
    let path = format!("{DEPLOYMENTS}/web/scale");
    let created = client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let mut scale = client.get(&path).await.expect(200);
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(3), &json!("app=web")));
    assert_eq!(version_of(&scale), version_of(&created));

    scale["spec"]["replicas"] = json!(5);
    assert_eq!(client.put(&path, &scale).await.expect(200)["spec"]["replicas"], 5);
    client.put(&path, &scale).await.refused(409, "Conflict");
    assert_eq!(client.patch(&path, &json!({"spec": {"replicas": 0}})).await.expect(200)["spec"], json!({}));
    let parent = client.get(&format!("{DEPLOYMENTS}/web")).await.expect(200);
    assert_eq!((&parent["spec"]["replicas"], &parent["metadata"]["generation"]), (&json!(0), &json!(3)));

    let message = client.patch(&path, &json!({"spec": {"replicas": -1}})).await.refused(422, "Invalid");
    let expected = "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    assert_eq!(message, expected);
    client.get(&format!("{DEPLOYMENTS}/nope/scale")).await.refused(404, "NotFound");
}

#[tokio::test]
async fn duplicate_owner_is_dropped_with_warning() {
    let client = Client::new();
    let mut owned = replica_set("web");
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1"});
    owned["metadata"]["ownerReferences"] = json!([owner, owner]);
    let answer = client.post(REPLICA_SETS, &owned).await;
    assert_eq!(answer.expect(201)["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    assert!(answer.warnings()[0].contains("duplicate"), "{:?}", answer.warnings());
    assert_eq!(client.server.dependents("1").len(), 1);
}

#[tokio::test]
async fn concurrent_writers_lose_no_update() {
    let client = Client::new();
    let created = client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    let path = format!("{DEPLOYMENTS}/web");
    let put = |replicas: i32| {
        let mut changed = created.clone();
        changed["spec"]["replicas"] = json!(replicas);
        changed
    };
    let (a, b) = (put(1), put(2));
    let (a, b) = tokio::join!(client.put(&path, &a), client.put(&path, &b));
    let mut codes = [a.code, b.code];
    codes.sort_unstable();
    assert_eq!(codes, [200, 409]);
}

#[tokio::test]
async fn event_is_the_same_in_both_groups() {
    let client = Client::new();
    let event = json!({
        "metadata": {"name": "e"}, "reason": "Scaled", "note": "up", "type": "Normal", "action": "Scale",
        "regarding": {"kind": "Deployment", "name": "web", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.123456Z", "reportingController": "c", "reportingInstance": "i",
    });
    let face = "/apis/events.k8s.io/v1/namespaces/default/events";
    let created = client.post(face, &event).await.expect(201);
    assert_eq!((&created["apiVersion"], &created["note"]), (&json!("events.k8s.io/v1"), &json!("up")));
    let core = client.get("/api/v1/namespaces/default/events/e").await.expect(200);
    assert_eq!((&core["apiVersion"], &core["message"]), (&json!("v1"), &json!("up")));
    assert_eq!(core["involvedObject"]["name"], "web");
    let patched = client.patch(&format!("{face}/e"), &json!({"note": "down"})).await.expect(200);
    assert_eq!(patched["note"], "down");
    for path in [
        "/api/v1/events?fieldSelector=involvedObject.name=web,involvedObject.uid=",
        "/apis/events.k8s.io/v1/events?fieldSelector=regarding.name=web",
    ] {
        assert_eq!(client.get(path).await.expect(200)["items"].as_array().unwrap().len(), 1, "{path}");
    }
}

#[tokio::test]
async fn event_expires_after_an_hour() {
    let client = Client::new();
    let event = |name: &str| {
        json!({
            "metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
            "reason": "r", "message": "m", "type": "Normal",
        })
    };
    let path = "/api/v1/namespaces/default/events";
    client.post(path, &event("old")).await.expect(201);
    client.clock.step(std::time::Duration::from_secs(3599));
    client.post(path, &event("new")).await.expect(201);
    client.get(&format!("{path}/old")).await.expect(200);
    client.clock.step(std::time::Duration::from_secs(61));
    client.post(path, &event("newer")).await.expect(201);
    client.get(&format!("{path}/old")).await.refused(404, "NotFound");
    client.get(&format!("{path}/new")).await.expect(200);
}

#[tokio::test]
async fn autoscaler_is_the_same_in_both_versions() {
    let client = Client::new();
    let v1 = json!({
        "metadata": {"name": "web"},
        "spec": {
            "maxReplicas": 3, "targetCPUUtilizationPercentage": 80,
            "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
        },
    });
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let answer = client.post(path, &v1).await;
    assert_eq!(answer.expect(201)["spec"]["targetCPUUtilizationPercentage"], 80);
    assert!(answer.warnings()[0].contains("stored only"), "{:?}", answer.warnings());
    let v2 = client.get(&format!("{}/web", path.replace("v1", "v2"))).await.expect(200);
    assert_eq!(v2["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
}
