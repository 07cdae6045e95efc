//! Custom resources.

use std::{collections::BTreeMap, pin::pin, task::Poll};

use bytes::Bytes;
use futures_util::poll;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    client::{Client, version_of},
    website::{DEFINITION, DEFINITIONS, WEBSITES, definition, website},
};

pub(crate) async fn with_definition() -> Client {
    let client = Client::new();
    client.post(DEFINITIONS, &definition()).await.expect(201);
    client
}

/// Creates the website `a` with a spec, and returns the message of the failure or the stored spec.
async fn create(client: &Client, spec: Value) -> Result<Value, String> {
    let answer = client.post(&format!("{WEBSITES}?dryRun=All"), &website("a", spec)).await;
    match answer.code {
        201 => Ok(answer.json()["spec"].clone()),
        422 => Err(answer.refused(422, "Invalid")),
        _ => panic!("{}", answer.text),
    }
}

fn condition(definition: &Value, ty: &str) -> (String, String) {
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == ty).unwrap();
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    (text("status"), text("reason"))
}

mod definitions {
    use super::*;

    #[tokio::test]
    async fn are_established() {
        let client = Client::new();
        let created = client.post(DEFINITIONS, &definition()).await.expect(201);
        assert_eq!(created["spec"]["names"]["listKind"], "WebsiteList");
        assert_eq!(created["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(created["metadata"]["generation"], 1);
        let established = client.get(DEFINITION).await.expect(200);
        assert_eq!(condition(&established, "NamesAccepted"), ("True".into(), "NoConflicts".into()));
        assert_eq!(condition(&established, "Established"), ("True".into(), "InitialNamesAccepted".into()));
        assert_eq!(established["status"]["acceptedNames"]["shortNames"], json!(["ws"]));
        assert_eq!(established["status"]["storedVersions"], json!(["v1"]));
        client.get(WEBSITES).await.expect(200);
    }

    #[tokio::test]
    async fn with_taken_names_wait() {
        let client = with_definition().await;
        let mut other = definition();
        other["metadata"]["name"] = json!("sites.example.com");
        other["spec"]["names"] = json!({"plural": "sites", "kind": "Website", "shortNames": ["ws"]});
        client.post(DEFINITIONS, &other).await.expect(201);
        let path = format!("{DEFINITIONS}/sites.example.com");
        let waiting = client.get(&path).await.expect(200);
        assert_eq!(condition(&waiting, "NamesAccepted"), ("False".into(), "ListKindConflict".into()));
        assert_eq!(condition(&waiting, "Established"), ("False".into(), "NotAccepted".into()));
        assert_eq!(waiting["status"]["acceptedNames"]["plural"], "sites");
        let sites = WEBSITES.replace("websites", "sites");
        assert_eq!(client.get(&sites).await.code, 404);

        client.delete(DEFINITION, &Value::Null).await.expect(200);
        let accepted = client.get(&path).await.expect(200);
        assert_eq!(condition(&accepted, "Established").0, "True");
        client.get(&sites).await.expect(200);
    }

    #[tokio::test]
    async fn are_updated() {
        let client = with_definition().await;
        client.post(WEBSITES, &website("a", json!({"host": "abc"}))).await.expect(201);
        let mut changed = client.get(DEFINITION).await.expect(200);
        let spec = &mut changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        spec["properties"]["color"] = json!({"type": "string", "default": "blue"});
        let updated = client.put(DEFINITION, &changed).await.expect(200);
        assert_eq!(updated["metadata"]["generation"], 2);
        // The default appears in objects that were stored before.
        let path = format!("{WEBSITES}/a");
        assert_eq!(client.get(&path).await.expect(200)["spec"]["color"], "blue");
        let list = client.get(WEBSITES).await.expect(200);
        assert_eq!(list["items"][0]["spec"]["color"], "blue");

        let mut kind = client.get(DEFINITION).await.expect(200);
        kind["spec"]["names"]["kind"] = json!("Other");
        kind["spec"]["scope"] = json!("Cluster");
        assert_eq!(
            client.put(DEFINITION, &kind).await.refused(422, "Invalid"),
            "CustomResourceDefinition.apiextensions.k8s.io \"websites.example.com\" is invalid: \
             [spec.scope: Invalid value: \"Cluster\": field is immutable, \
             spec.names.kind: Invalid value: \"Other\": field is immutable]"
        );
        let mut unversioned = kind.clone();
        unversioned["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        client.put(DEFINITION, &unversioned).await.refused(422, "Invalid");
    }

    #[tokio::test]
    async fn are_deleted_with_their_objects() {
        let client = with_definition().await;
        client.post(WEBSITES, &website("a", json!({"host": "abc"}))).await.expect(201);
        let mut kept = website("kept", json!({"host": "abc"}));
        kept["metadata"]["finalizers"] = json!(["example.com/keep"]);
        client.post(WEBSITES, &kept).await.expect(201);

        let deleted = client.delete(DEFINITION, &Value::Null).await.expect(200);
        assert_eq!(condition(&deleted, "Terminating"), ("True".into(), "InstanceDeletionPending".into()));
        assert_eq!(client.get(&format!("{WEBSITES}/a")).await.code, 404);
        assert!(
            client.get(&format!("{WEBSITES}/kept")).await.expect(200)["metadata"]["deletionTimestamp"]
                .is_string()
        );
        assert_eq!(
            client
                .post(WEBSITES, &website("b", json!({"host": "abc"})))
                .await
                .refused(405, "MethodNotAllowed"),
            "create not allowed while custom resource definition is terminating"
        );
        client.get(DEFINITION).await.expect(200);

        let released = json!({"metadata": {"finalizers": null}});
        client.patch(&format!("{WEBSITES}/kept"), &released).await.expect(200);
        assert_eq!(client.get(DEFINITION).await.code, 404);
        assert_eq!(client.get(WEBSITES).await.code, 404);

        // A new definition starts without objects.
        client.post(DEFINITIONS, &definition()).await.expect(201);
        assert_eq!(client.get(WEBSITES).await.expect(200)["items"], json!([]));
    }

    #[tokio::test]
    async fn end_watches_when_deleted() {
        let client = with_definition().await;
        client.post(WEBSITES, &website("a", json!({"host": "abc"}))).await.expect(201);
        let request = Request::get(format!("{WEBSITES}?watch=true")).body(Full::<Bytes>::default()).unwrap();
        let mut body = client.send(request).await.into_body();
        client.delete(DEFINITION, &Value::Null).await.expect(200);
        let mut text = Vec::new();
        while let Poll::Ready(frame) = poll!(pin!(body.frame())) {
            let Some(frame) = frame else {
                let text = String::from_utf8(text).unwrap();
                let types: Vec<Value> = text
                    .lines()
                    .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone())
                    .collect();
                assert_eq!(types, ["ADDED", "DELETED"]);
                return;
            };
            text.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
        panic!("the watch continues");
    }

    /// Changes of the definition, and the errors that they cause.
    #[derive(Deserialize)]
    struct Invalid {
        name: String,
        #[serde(default)]
        set: BTreeMap<String, Value>,
        property: Option<Value>,
        errors: String,
    }

    /// Adds a property to the spec.
    fn property(definition: &mut Value, schema: Value) {
        let root = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        root["spec"] = json!({"type": "object", "properties": {"b": schema}});
    }

    #[cfg(not(feature = "cel"))]
    #[tokio::test]
    async fn with_rules_require_the_feature() {
        let mut changed = definition();
        property(&mut changed, json!({"type": "string", "x-kubernetes-validations": [{"rule": "true"}]}));
        let message = Client::new().post(DEFINITIONS, &changed).await.refused(422, "Invalid");
        assert!(message.contains("CEL validation rules require the feature `cel`"), "{message}");
    }

    #[tokio::test]
    async fn are_validated() {
        let cases: Vec<Invalid> =
            serde_saphyr::from_str(include_str!("testdata/invalid_definitions.yaml")).unwrap();
        let client = Client::new();
        for Invalid { name, set, property: schema, errors } in cases {
            let mut changed = definition();
            for (path, value) in set {
                let (parent, field) = path.rsplit_once('/').unwrap();
                let parent = changed.pointer_mut(parent).unwrap().as_object_mut().unwrap();
                match value {
                    Value::Null => drop(parent.remove(field)),
                    value => drop(parent.insert(field.to_owned(), value)),
                }
            }
            if let Some(schema) = schema {
                property(&mut changed, schema);
            }
            let message = client.post(DEFINITIONS, &changed).await.refused(422, "Invalid");
            let (_, found) = message.split_once(" is invalid: ").unwrap();
            assert_eq!(found, errors, "{name}");
        }
    }

    #[tokio::test]
    async fn with_unknown_keywords_are_rejected() {
        let client = Client::new();
        let mut unknown = definition();
        property(&mut unknown, json!({"type": "string", "typo": 1}));
        assert_eq!(
            client
                .post(&format!("{DEFINITIONS}?fieldValidation=Strict"), &unknown)
                .await
                .refused(400, "BadRequest"),
            "CustomResourceDefinition in version \"v1\" cannot be handled as a CustomResourceDefinition: strict \
             decoding error: unknown field \
             \"spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.b.typo\""
        );
    }
}

mod objects {
    use super::*;

    #[tokio::test]
    async fn are_created_and_updated() {
        let client = with_definition().await;
        let created = client.post(WEBSITES, &website("a", json!({"host": "abc"}))).await.expect(201);
        assert_eq!(created["spec"], json!({"host": "abc", "replicas": 1}));
        assert_eq!(created["metadata"]["generation"], 1);
        let path = format!("{WEBSITES}/a");
        assert_eq!(client.get(&path).await.expect(200), created);

        let labelled = client.patch(&path, &json!({"metadata": {"labels": {"x": "y"}}})).await.expect(200);
        assert_eq!(labelled["metadata"]["generation"], 1);
        let mut changed = labelled.clone();
        changed["spec"]["tier"] = json!("paid");
        changed["status"] = json!({"replicas": 7});
        let changed = client.put(&path, &changed).await.expect(200);
        assert_eq!((&changed["metadata"]["generation"], &changed["status"]), (&json!(2), &Value::Null));
        client.put(&path, &labelled).await.refused(409, "Conflict");

        let again = client.patch(&path, &json!({"spec": {"tier": "paid"}})).await.expect(200);
        assert_eq!(version_of(&again), version_of(&changed));
        let replace = json!([{"op": "replace", "path": "/spec/tier", "value": "free"}]);
        let patched = client.patch_as("json", &path, &replace).await.expect(200);
        assert_eq!(patched["spec"]["tier"], "free");
        assert_eq!(
            client.patch_as("strategic-merge", &path, &json!({})).await.refused(415, "UnsupportedMediaType"),
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        );
    }

    #[tokio::test]
    async fn are_listed_and_watched() {
        let client = with_definition().await;
        let empty = client.get(WEBSITES).await.expect(200);
        assert_eq!((&empty["kind"], &empty["apiVersion"]), (&json!("WebsiteList"), &json!("example.com/v1")));
        client.post(WEBSITES, &website("a", json!({"host": "abc"}))).await.expect(201);
        client.post(WEBSITES, &website("b", json!({"host": "abc"}))).await.expect(201);
        client
            .patch(&format!("{WEBSITES}/b"), &json!({"metadata": {"labels": {"x": "y"}}}))
            .await
            .expect(200);
        let list = client.get("/apis/example.com/v1/websites").await.expect(200);
        // As upstream, items of custom kinds have their type.
        assert_eq!(
            (&list["items"][0]["kind"], &list["items"][1]["metadata"]["name"]),
            (&json!("Website"), &json!("b"))
        );
        let selected = client.get(&format!("{WEBSITES}?labelSelector=x=y")).await.expect(200);
        assert_eq!(selected["items"].as_array().unwrap().len(), 1);
        let named = client.get(&format!("{WEBSITES}?fieldSelector=metadata.name=a")).await.expect(200);
        assert_eq!(named["items"].as_array().unwrap().len(), 1);
        let page = client.get(&format!("{WEBSITES}?limit=1")).await.expect(200);
        let token = page["metadata"]["continue"].as_str().unwrap();
        let next = client.get(&format!("{WEBSITES}?limit=1&continue={token}")).await.expect(200);
        assert_eq!(next["items"][0]["metadata"]["name"], "b");

        let query = format!("{WEBSITES}?watch=true&resourceVersion={}", version_of(&empty));
        let mut body = client.send(Request::get(query).body(Full::default()).unwrap()).await.into_body();
        let text = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let types: Vec<Value> = std::str::from_utf8(&text)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone())
            .collect();
        assert_eq!(types, ["ADDED", "ADDED", "MODIFIED"]);
    }

    #[tokio::test]
    async fn are_deleted() {
        let client = with_definition().await;
        for name in ["a", "b", "c"] {
            client.post(WEBSITES, &website(name, json!({"host": "abc"}))).await.expect(201);
        }
        let path = format!("{WEBSITES}/a");
        let deleted = client.delete(&path, &Value::Null).await.expect(200);
        assert_eq!(deleted["details"]["kind"], "websites");
        client.delete(&path, &Value::Null).await.refused(404, "NotFound");

        let path = format!("{WEBSITES}/b");
        client.patch(&path, &json!({"metadata": {"finalizers": ["example.com/x"]}})).await.expect(200);
        let marked = client.delete(&path, &Value::Null).await.expect(200);
        assert_eq!(marked["metadata"]["generation"], 2);
        client.patch(&path, &json!({"metadata": {"finalizers": null}})).await.expect(200);
        assert_eq!(client.get(&path).await.code, 404);

        client.delete(WEBSITES, &Value::Null).await.expect(200);
        assert_eq!(client.get(WEBSITES).await.expect(200)["items"], json!([]));
    }

    /// A spec and the errors that it causes.
    #[derive(Deserialize)]
    struct Invalid {
        spec: Value,
        errors: String,
    }

    #[tokio::test]
    async fn are_validated() {
        let cases: Vec<Invalid> =
            serde_saphyr::from_str(include_str!("testdata/invalid_websites.yaml")).unwrap();
        let client = with_definition().await;
        for Invalid { spec, errors } in cases {
            let message = create(&client, spec.clone()).await.unwrap_err();
            assert_eq!(message, format!("Website.example.com \"a\" is invalid: {errors}"), "{spec}");
        }
    }

    #[tokio::test]
    async fn with_invalid_fields_can_be_updated_elsewhere() {
        let client = with_definition().await;
        let spec = json!({"host": "abc", "tier": "paid", "paths": [{"path": "a", "weight": 1}]});
        client.post(WEBSITES, &website("a", spec)).await.expect(201);
        let mut stricter = client.get(DEFINITION).await.expect(200);
        let properties = stricter
            .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties")
            .unwrap();
        properties["tier"]["enum"] = json!(["free"]);
        properties["paths"]["items"]["properties"]["weight"]["minimum"] = json!(2);
        client.put(DEFINITION, &stricter).await.expect(200);
        let path = format!("{WEBSITES}/a");
        let second = json!({"spec": {"paths": [{"path": "b", "weight": 2}, {"path": "a", "weight": 1}]}});
        client.patch(&path, &second).await.expect(200);
        client.patch(&path, &json!({"spec": {"tier": "gold"}})).await.refused(422, "Invalid");
        let third = json!({"spec": {"paths": [{"path": "a", "weight": 0}]}});
        client.patch(&path, &third).await.refused(422, "Invalid");
        client
            .post(WEBSITES, &website("b", json!({"host": "abc", "tier": "paid"})))
            .await
            .refused(422, "Invalid");
    }

    #[tokio::test]
    async fn with_short_finalizer_names_cause_warnings() {
        let client = with_definition().await;
        let mut object = website("a", json!({"host": "abc"}));
        object["metadata"]["finalizers"] = json!(["short", "example.com/long"]);
        let warnings = |answer: &crate::client::Answer| answer.warnings().join("\n");
        let prefer = |name: &str, path: &str| {
            format!(
                "299 - \"metadata.finalizers: \\\"{name}\\\": prefer a domain-qualified finalizer name{path} to avoid \
                 accidental conflicts with other finalizer writers\""
            )
        };
        assert_eq!(warnings(&client.post(WEBSITES, &object).await), prefer("short", ""));
        let added = json!({"metadata": {"finalizers": ["short", "example.com"]}});
        let patched = client.patch(&format!("{WEBSITES}/a"), &added).await;
        assert_eq!(warnings(&patched), prefer("example.com", " including a path (/)"));
    }

    #[tokio::test]
    async fn without_version_are_not_replaced() {
        let client = with_definition().await;
        let mut created = client.post(WEBSITES, &website("a", json!({"host": "abc"}))).await.expect(201);
        created["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        assert_eq!(
            client.put(&format!("{WEBSITES}/a"), &created).await.refused(422, "Invalid"),
            "websites.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an \
             update"
        );
    }

    #[tokio::test]
    async fn are_pruned_and_defaulted() {
        let client = with_definition().await;
        let kept = json!({"x": null, "y": [null, {"z": 1}]});
        let spec = json!({"host": "abc", "note": null, "port": "http", "extra": kept, "typo": 1});
        let stored = create(&client, spec).await.unwrap();
        assert_eq!(
            stored,
            json!({"host": "abc", "note": null, "port": "http", "extra": kept, "replicas": 1})
        );
        assert_eq!(create(&client, json!({"host": "abc", "replicas": null})).await.unwrap()["replicas"], 1);
    }

    #[tokio::test]
    async fn with_unknown_fields_are_reported() {
        let client = with_definition().await;
        let text = r#"{"apiVersion":"example.com/v1","kind":"Website","metadata":{"name":"a","labelz":{}},"foo":1,
            "spec":{"host":"abc","hots":1,"paths":[{"path":"a","x":1}],"host":"abd"}}"#;
        let refused = client.call("POST", &format!("{WEBSITES}?fieldValidation=Strict"), &[], text).await;
        assert_eq!(
            refused.refused(400, "BadRequest"),
            "Website in version \"v1\" cannot be handled as a Website: strict decoding error: duplicate field \
             \"spec.host\", unknown field \"metadata.labelz\", unknown field \"foo\", unknown field \"spec.hots\", \
             unknown field \"spec.paths[0].x\""
        );
        let warned = client.call("POST", &format!("{WEBSITES}?fieldValidation=Warn"), &[], text).await;
        assert_eq!(warned.expect(201)["spec"]["host"], "abd");
        assert!(
            warned.warnings().contains(&r#"299 - "unknown field \"spec.hots\"""#),
            "{:?}",
            warned.warnings()
        );
    }
}

mod subresources {
    use super::*;

    #[tokio::test]
    async fn status_changes_only_the_status() {
        let client = with_definition().await;
        let mut with_status = website("a", json!({"host": "abc"}));
        with_status["status"] = json!({"replicas": 3});
        let created = client.post(WEBSITES, &with_status).await.expect(201);
        assert_eq!(created["status"], Value::Null);
        let mut changed = created.clone();
        changed["status"] = json!({"replicas": 2, "unknown": 1});
        changed["spec"]["host"] = json!("other");
        changed["metadata"]["labels"] = json!({"x": "y"});
        let path = format!("{WEBSITES}/a/status");
        let updated = client.put(&path, &changed).await.expect(200);
        assert_eq!(updated["status"], json!({"replicas": 2}));
        assert_eq!(updated["spec"]["host"], "abc");
        assert_eq!(
            (&updated["metadata"]["labels"], &updated["metadata"]["generation"]),
            (&Value::Null, &json!(1))
        );
        assert_eq!(
            client.patch(&path, &json!({"status": {"replicas": "x"}})).await.refused(422, "Invalid"),
            "Website.example.com \"a\" is invalid: [status.replicas: Invalid value: \"string\": status.replicas in body \
             must be of type integer: \"string\", .status.replicas: Invalid value: 0: .status.replicas accessor error: \
             x is of the type string, expected int64]"
        );
    }

    #[tokio::test]
    async fn scale_maps_to_the_fields() {
        let client = with_definition().await;
        client.post(WEBSITES, &website("a", json!({"host": "abc"}))).await.expect(201);
        let status = json!({"status": {"replicas": 1, "selector": "app=a"}});
        client.patch(&format!("{WEBSITES}/a/status"), &status).await.expect(200);
        let path = format!("{WEBSITES}/a/scale");
        let mut scale = client.get(&path).await.expect(200);
        assert_eq!(scale["spec"], json!({"replicas": 1}));
        assert_eq!(scale["status"], json!({"replicas": 1, "selector": "app=a"}));
        scale["spec"]["replicas"] = json!(3);
        client.put(&path, &scale).await.expect(200);
        client.patch(&path, &json!({"spec": {"replicas": 4}})).await.expect(200);
        let scaled = client.get(&format!("{WEBSITES}/a")).await.expect(200);
        assert_eq!((&scaled["spec"]["replicas"], &scaled["metadata"]["generation"]), (&json!(4), &json!(3)));
        client.patch(&path, &json!({"spec": {"replicas": 30}})).await.refused(422, "Invalid");
    }

    #[tokio::test]
    async fn scale_without_replicas_is_refused() {
        let client = Client::new();
        let mut definition = definition();
        let replicas = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas";
        definition.pointer_mut(replicas).unwrap().as_object_mut().unwrap().remove("default");
        client.post(DEFINITIONS, &definition).await.expect(201);
        client.post(WEBSITES, &website("a", json!({"host": "abc"}))).await.expect(201);
        let path = format!("{WEBSITES}/a/scale");
        let message = client.patch(&path, &json!({})).await.refused(400, "BadRequest");
        assert_eq!(message, "the spec replicas field \".spec.replicas\" cannot be empty");
        client.patch(&path, &json!({"spec": {"replicas": 2}})).await.expect(200);
    }

    #[tokio::test]
    async fn absent_subresources_are_not_found() {
        let client = Client::new();
        let mut plain = definition();
        plain["spec"]["versions"][0].as_object_mut().unwrap().remove("subresources");
        client.post(DEFINITIONS, &plain).await.expect(201);
        let mut with_status = website("a", json!({"host": "abc"}));
        with_status["status"] = json!({"replicas": 3});
        let created = client.post(WEBSITES, &with_status).await.expect(201);
        assert_eq!(created["status"], json!({"replicas": 3}));
        let changed =
            client.patch(&format!("{WEBSITES}/a"), &json!({"status": {"replicas": 4}})).await.expect(200);
        assert_eq!(
            (&changed["status"]["replicas"], &changed["metadata"]["generation"]),
            (&json!(4), &json!(2))
        );
        assert_eq!(client.get(&format!("{WEBSITES}/a/status")).await.code, 404);
        assert_eq!(client.get(&format!("{WEBSITES}/a/scale")).await.code, 404);
    }
}

// Conversion is compared with kube-apiserver: see the transcript `versions`.
#[tokio::test]
async fn versions_are_deprecated_and_stored() {
    let client = Client::new();
    let mut versions = definition();
    let mut old = versions["spec"]["versions"][0].clone();
    old["name"] = json!("v1beta1");
    old["storage"] = json!(false);
    old["deprecated"] = json!(true);
    versions["spec"]["versions"].as_array_mut().unwrap().push(old);
    client.post(DEFINITIONS, &versions).await.expect(201);
    let beta = WEBSITES.replace("/v1/", "/v1beta1/");
    let mut object = website("a", json!({"host": "abc"}));
    object["apiVersion"] = json!("example.com/v1beta1");
    let created = client.post(&beta, &object).await;
    assert!(
        created.warnings()[0].contains("example.com/v1beta1 Website is deprecated"),
        "{:?}",
        created.warnings()
    );
    assert_eq!(created.expect(201)["apiVersion"], "example.com/v1beta1");

    let group = client.get("/apis/example.com").await.expect(200);
    assert_eq!(group["preferredVersion"]["version"], "v1");
    assert_eq!(group["versions"][1]["version"], "v1beta1");

    // The new storage version is used for the next write.
    let path = format!("{WEBSITES}/a");
    let mut swapped = client.get(DEFINITION).await.expect(200);
    swapped["spec"]["versions"][0]["storage"] = json!(false);
    swapped["spec"]["versions"][1]["storage"] = json!(true);
    client.put(DEFINITION, &swapped).await.expect(200);
    let stored = client.get(DEFINITION).await.expect(200);
    assert_eq!(stored["status"]["storedVersions"], json!(["v1", "v1beta1"]));
    let websites = client.server.resource("example.com", "websites").unwrap();
    let version = || client.server.get(websites, "default", "a").unwrap().api_version().to_owned();
    assert_eq!(version(), "example.com/v1");
    client.patch(&path, &json!({"spec": {"replicas": 2}})).await.expect(200);
    assert_eq!(version(), "example.com/v1beta1");
}

#[tokio::test]
async fn discovery_lists_custom_resources() {
    let client = with_definition().await;
    let groups = client.get("/apis").await.expect(200);
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "example.com"));
    let resources = client.get("/apis/example.com/v1").await.expect(200);
    let names: Vec<&Value> = resources["resources"].as_array().unwrap().iter().map(|r| &r["name"]).collect();
    assert_eq!(names, ["websites", "websites/status", "websites/scale"]);
    assert_eq!(resources["resources"][0]["shortNames"], json!(["ws"]));
    let accept = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let aggregated = client.call("GET", "/apis", &accept, "").await.expect(200);
    let group = aggregated["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|i| i["metadata"]["name"] == "example.com")
        .unwrap();
    assert_eq!(group["versions"][0]["resources"][0]["subresources"][1]["responseKind"]["kind"], "Scale");
    client.delete(DEFINITION, &Value::Null).await.expect(200);
    assert_eq!(client.get("/apis/example.com/v1").await.code, 404);
}
