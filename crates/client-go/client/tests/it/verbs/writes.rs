//! Create, replace, patch, delete.

use k8s_openapi::api::apps::v1::Deployment;
use kcm_client::{
    ApplyOptions, DeleteOptions, FieldValidation, ListParams, Patch, Preconditions, Propagation, WriteOptions,
};

use super::*;

for_each_type!(creates, replaces, patches, applies, deletes, deletes_collections, dry_run);

async fn creates<K: Subject>() {
    let api = objects::<K>();
    let created = api.create(&K::named("web")).await.unwrap();
    assert!(!created.uid_str().is_empty());
    assert_eq!(to_json(&created)["spec"]["replicas"], 1);
    assert!(api.create(&K::named("web")).await.unwrap_err().is_already_exists());

    // The namespace of the object, and a generated name.
    let generated: K = changed(&K::named("web"), |object| {
        object["metadata"] = json!({"generateName": "web-", "namespace": "kube-system"});
    });
    let created = K::all(api.client()).create(&generated).await.unwrap().key();
    assert_eq!(&*created.namespace, "kube-system");
    assert!(created.name.starts_with("web-"), "{created}");

    let body = to_json(&K::named("json")).to_string();
    assert_eq!(api.create_json(body).await.unwrap().key(), key("json"));
}

async fn replaces<K: Subject>() {
    let api = objects::<K>();
    let first = api.create(&K::named("web")).await.unwrap();
    let wanted: K = changed(&first, |object| object["spec"]["replicas"] = json!(3));
    let second = api.replace(&wanted).await.unwrap();
    assert_eq!(to_json(&second)["spec"]["replicas"], 3);
    assert!(api.replace(&wanted).await.unwrap_err().is_conflict());

    // An item of a list, without its type.
    let item: K = changed(&second, |object| {
        for field in ["apiVersion", "kind"] {
            object.as_object_mut().unwrap().remove(field);
        }
        object["spec"]["replicas"] = json!(4);
    });
    assert_eq!(to_json(&api.replace(&item).await.unwrap())["spec"]["replicas"], 4);
}

async fn patches<K: Subject>() {
    let api = objects::<K>();
    api.create(&K::named("web")).await.unwrap();
    let replicas = async |patch: Patch<K>| {
        to_json(&api.patch("web", &patch).await.unwrap())["spec"]["replicas"].as_i64().unwrap()
    };
    let operations = json!([{"op": "replace", "path": "/spec/replicas", "value": 2}]);
    assert_eq!(replicas(Patch::json(&operations)).await, 2);
    assert_eq!(replicas(Patch::merge(&json!({"spec": {"replicas": 3}}))).await, 3);

    let failed = json!([{"op": "test", "path": "/spec/replicas", "value": 9}]);
    assert!(api.patch("web", &Patch::json(&failed)).await.unwrap_err().is_invalid());
    assert!(api.patch("db", &Patch::merge(&json!({}))).await.unwrap_err().is_not_found());
}

/// Adds a container. A merge patch would replace the other.
#[tokio::test]
async fn strategic_merge_patch() {
    let container =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "log", "image": "log:1"}]}}}});
    let api = objects::<Deployment>();
    api.create(&deployment("web")).await.unwrap();
    let patched = api.patch("web", &Patch::strategic(&container)).await.unwrap();
    assert_eq!(patched.spec.unwrap().template.spec.unwrap().containers.len(), 2);

    let api = objects::<kcm_api::Deployment>();
    api.create(&deployment("web")).await.unwrap();
    let patched = api.patch("web", &Patch::strategic(container.to_string())).await.unwrap();
    let containers = &to_json(&patched)["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers.as_array().unwrap().len(), 2);
}

async fn applies<K: Subject>() {
    let api = objects::<K>();
    let mut body = to_json(&K::named("web"));
    // The client adds the type.
    body.as_object_mut().unwrap().remove("kind");
    body["spec"]["replicas"] = json!(2);
    let apply = async |manager: &str, force, body: &Value| {
        let options = ApplyOptions { force, ..ApplyOptions::new(manager) };
        api.patch("web", &Patch::apply(body, options)).await
    };
    let created = apply("one", false, &body).await.unwrap();
    assert_eq!(to_json(&created)["spec"]["replicas"], 2);
    body["spec"]["replicas"] = json!(3);
    assert!(apply("two", false, &body).await.unwrap_err().is_conflict());
    let forced = apply("two", true, &body).await.unwrap();
    assert_eq!(to_json(&forced)["spec"]["replicas"], 3);
}

async fn deletes<K: Subject>() {
    let api = objects::<K>();
    let web = api.create(&K::named("web")).await.unwrap();
    let of = |preconditions| DeleteOptions { preconditions, ..DeleteOptions::default() };
    let other = Preconditions { uid: Some("other".to_owned()), resource_version: None };
    assert!(api.delete("web", &of(other)).await.unwrap_err().is_conflict());
    let old = Preconditions { uid: None, resource_version: Some("1".to_owned()) };
    assert!(api.delete("web", &of(old)).await.unwrap_err().is_conflict());

    let foreground = DeleteOptions {
        preconditions: Preconditions::uid_of(&web),
        propagation: Some(Propagation::Foreground),
        grace_period_seconds: Some(0),
    };
    api.delete(&key("web"), &foreground).await.unwrap();
    let deleting = api.get("web").await.unwrap();
    assert!(deleting.is_being_deleted());
    assert_eq!(to_json(&deleting)["metadata"]["finalizers"], json!(["foregroundDeletion"]));

    api.create(&K::named("db")).await.unwrap();
    api.delete("db", &DeleteOptions::default()).await.unwrap();
    assert!(api.get("db").await.unwrap_err().is_not_found());
}

async fn deletes_collections<K: Subject>() {
    let api = objects::<K>();
    for name in ["a", "b", "c"] {
        api.create(&K::named(name)).await.unwrap();
    }
    let defaults = DeleteOptions::default();
    api.delete_collection(&ListParams::labels("app!=b"), &defaults).await.unwrap();
    assert_eq!(names(&api.list(&ListParams::default()).await.unwrap().items), ["b"]);
}

async fn dry_run<K: Subject>() {
    let api = objects::<K>();
    api.create(&K::named("web")).await.unwrap();
    let dry = api.with_write_options(WriteOptions { dry_run: true, ..WriteOptions::default() });
    let patch = Patch::merge(&json!({"spec": {"replicas": 3}}));
    assert_eq!(to_json(&dry.patch("web", &patch).await.unwrap())["spec"]["replicas"], 3);
    dry.delete("web", &DeleteOptions::default()).await.unwrap();
    assert_eq!(to_json(&api.get("web").await.unwrap())["spec"]["replicas"], 1);
}

#[tokio::test]
async fn field_validation() {
    let api = objects::<DynamicObject>();
    api.create(&website("web")).await.unwrap();
    let patch = Patch::merge(&json!({"spec": {"replica": 3}}));
    api.patch("web", &patch).await.unwrap();
    let strict = WriteOptions { field_validation: Some(FieldValidation::Strict), ..WriteOptions::default() };
    let error = api.with_write_options(strict).patch("web", &patch).await.unwrap_err();
    assert!(error.to_string().contains(r#"unknown field "spec.replica""#), "{error}");
}
