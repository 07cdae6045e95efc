//! Status, scale, eviction.

use kcm_client::{DeleteOptions, Patch, Preconditions, StrategicMerge};
use kcm_meta::Kind;

use super::*;

for_each_type!(status, scale);

async fn status<K: Subject>() {
    let api = objects::<K>();
    let web = api.create(&K::named("web")).await.unwrap();
    let observed: K = changed(&web, |object| {
        object["status"] = json!({"replicas": 3});
        object["spec"]["replicas"] = json!(9);
    });
    let stored = to_json(&api.replace_status(&observed).await.unwrap());
    assert_eq!((&stored["status"]["replicas"], &stored["spec"]["replicas"]), (&json!(3), &json!(1)));

    let patch = Patch::merge(&json!({"status": {"replicas": 4}, "spec": {"replicas": 9}}));
    let stored = to_json(&api.patch_status("web", &patch).await.unwrap());
    assert_eq!((&stored["status"]["replicas"], &stored["spec"]["replicas"]), (&json!(4), &json!(1)));
}

async fn scale<K: Subject>() {
    let api = objects::<K>();
    api.create(&K::named("web")).await.unwrap();
    let mut scale = api.get_scale("web").await.unwrap();
    assert_eq!(scale.spec.replicas, 1);
    scale.spec.replicas = 2;
    assert_eq!(api.replace_scale(&scale).await.unwrap().spec.replicas, 2);
    assert!(api.replace_scale(&scale).await.unwrap_err().is_conflict());
    let patch = Patch::merge(&json!({"spec": {"replicas": 3}}));
    assert_eq!(api.patch_scale(&key("web"), &patch).await.unwrap().spec.replicas, 3);
    assert_eq!(to_json(&api.get("web").await.unwrap())["spec"]["replicas"], 3);
}

fn pod() -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
    })
    .to_string()
}

/// Evicts a pod twice: while its budget does not permit it, and without the budget.
async fn evicts<K>(pods: Api<K>)
where
    K: Kind + StrategicMerge + Debug,
{
    let pods = pods.namespaced(NAMESPACE);
    let web = pods.create_json(pod()).await.unwrap();
    let running = Patch::strategic(&json!({"status": {"phase": "Running"}}));
    pods.patch_status("web", &running).await.unwrap();
    let budgets = pods.client().api_for::<Value>(ApiResource::namespaced(
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
    ));
    let budgets = budgets.namespaced(NAMESPACE);
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    budgets.create_json(budget.to_string()).await.unwrap();
    let observed = Patch::merge(&json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0}}));
    budgets.patch_status("web", &observed).await.unwrap();

    let options = DeleteOptions { preconditions: Preconditions::uid_of(&web), ..DeleteOptions::default() };
    let refused = pods.evict("web", &options).await.unwrap_err();
    assert!(refused.is_too_many_requests(), "{refused:?}");
    budgets.delete("web", &DeleteOptions::default()).await.unwrap();
    let other = Preconditions { uid: Some("other".to_owned()), resource_version: None };
    let of_other = DeleteOptions { preconditions: other, ..DeleteOptions::default() };
    assert!(pods.evict("web", &of_other).await.unwrap_err().is_conflict());
    pods.evict("web", &options).await.unwrap();
    assert!(pods.find("web").await.unwrap().is_none_or(|pod| pod.is_being_deleted()));
}

#[tokio::test]
async fn eviction() {
    evicts(client().api::<kcm_api::Pod>()).await;
    evicts(client().api::<k8s_openapi::api::core::v1::Pod>()).await;
}

#[tokio::test]
async fn scale_has_the_selector_of_the_pods() {
    let api = objects::<kcm_api::Deployment>();
    api.create(&deployment("web")).await.unwrap();
    assert_eq!(api.get_scale("web").await.unwrap().status.selector, "app=web");
}

#[tokio::test]
async fn resource_without_scale() {
    let error = client().api::<kcm_api::Pod>().get_scale(&key("web")).await.unwrap_err();
    assert!(error.is_not_found(), "{error:?}");
}
