//! Controller tests of upstream's `test/e2e/apps/deployment.go` and `replica_set.go`.

use kcm_apiserver::{DeleteOptions, ListOptions, Resource, Selection, Subresource, WriteOptions};
use serde_json::{Value, json};

use super::cluster::{Cluster, changed, condition, controller, count, name, pod, template};

const PODS: Resource = Resource::PODS;
const SETS: Resource = Resource::REPLICA_SETS;
const DEPLOYMENTS: Resource = Resource::DEPLOYMENTS;

/// Fields that a Deployment and a ReplicaSet `web` have in common.
fn workload(replicas: i64) -> Value {
    json!({
        "metadata": { "name": "web", "labels": { "name": "test" } },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "name": "test" } },
            "template": template("first:1"),
        },
    })
}

fn with_image(image: &str) -> Value {
    json!({ "spec": { "template": { "spec": template(image)["spec"].clone() } } })
}

/// Longer than any rollout of these tests, in seconds.
const ROLLOUT_TIME: u64 = 60;

/// Cluster with a completed Deployment.
async fn with_deployment(deployment: Value) -> Cluster {
    let cluster = Cluster::with(2);
    cluster.create(DEPLOYMENTS, deployment);
    cluster.advance(ROLLOUT_TIME).await;
    assert_available(&cluster);
    cluster
}

fn assert_available(cluster: &Cluster) {
    let web = cluster.get(DEPLOYMENTS, "web");
    let counts = ["updatedReplicas", "replicas", "availableReplicas"].map(|field| count(&web, field));
    assert_eq!(counts, [web["spec"]["replicas"].as_i64().unwrap(); 3], "{}", web["status"]);
}

fn images(objects: &[Value]) -> Vec<&str> {
    let of = |object: &'static str| move |value: &Value| value.pointer(object).is_some();
    let pointer = ["/spec/containers/0/image", "/spec/template/spec/containers/0/image"];
    let pointer = pointer.into_iter().find(|pointer| objects.iter().all(of(pointer))).unwrap_or_default();
    let mut images: Vec<_> =
        objects.iter().map(|object| object.pointer(pointer).unwrap().as_str().unwrap()).collect();
    images.sort_unstable();
    images
}

/// "deployment reaping should cascade to its replica sets and pods".
#[tokio::test(start_paused = true)]
async fn deployment_reaping_should_cascade_to_its_replica_sets_and_pods() {
    let cluster = with_deployment(workload(1)).await;
    cluster.delete(DEPLOYMENTS, "web");
    cluster.advance(ROLLOUT_TIME).await;
    assert_eq!((cluster.list(SETS).len(), cluster.list(PODS).len()), (0, 0));
}

/// "RollingUpdateDeployment should delete old pods and create new ones".
#[tokio::test(start_paused = true)]
async fn rolling_update_deployment_should_delete_old_pods_and_create_new_ones() {
    let cluster = Cluster::with(2);
    // The Deployment adopts this ReplicaSet and continues from its revision.
    let revision = "3546343826724305832";
    let annotated =
        json!({ "metadata": { "annotations": { "deployment.kubernetes.io/revision": revision } } });
    cluster.create(SETS, changed(workload(1), annotated));
    cluster.advance(ROLLOUT_TIME).await;
    cluster.create(DEPLOYMENTS, changed(workload(1), with_image("second:1")));
    cluster.advance(ROLLOUT_TIME).await;
    assert_available(&cluster);
    assert_eq!(images(&cluster.list(PODS)), ["second:1"]);
    let web = cluster.get(DEPLOYMENTS, "web");
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3546343826724305833");
    assert_eq!(cluster.owned(SETS, &web).len(), 2);
}

/// "RecreateDeployment should delete old pods and create new ones".
#[tokio::test(start_paused = true)]
async fn recreate_deployment_should_delete_old_pods_and_create_new_ones() {
    let recreate = json!({ "spec": { "strategy": { "type": "Recreate" } } });
    let cluster = with_deployment(changed(workload(3), recreate)).await;
    cluster.patch(DEPLOYMENTS, "web", with_image("second:1"));
    for _ in 0..ROLLOUT_TIME {
        cluster.advance(1).await;
        let pods = cluster.list(PODS);
        let images = images(&pods);
        assert!(images.first() == images.last(), "old and new pods exist at the same time: {images:?}");
    }
    assert_available(&cluster);
    assert_eq!(images(&cluster.list(PODS)), ["second:1"; 3]);
}

/// "deployment should delete old replica sets".
#[tokio::test(start_paused = true)]
async fn deployment_should_delete_old_replica_sets() {
    let cluster =
        with_deployment(changed(workload(1), json!({ "spec": { "revisionHistoryLimit": 0 } }))).await;
    cluster.patch(DEPLOYMENTS, "web", with_image("second:1"));
    cluster.advance(ROLLOUT_TIME).await;
    assert_available(&cluster);
    assert_eq!(images(&cluster.list(SETS)), ["second:1"]);
}

/// "deployment should support rollover": a rollout that cannot complete is superseded.
#[tokio::test(start_paused = true)]
async fn deployment_should_support_rollover() {
    let cluster = with_deployment(workload(4)).await;
    cluster.patch(DEPLOYMENTS, "web", with_image("second:broken"));
    cluster.advance(ROLLOUT_TIME).await;
    cluster.patch(DEPLOYMENTS, "web", with_image("third:1"));
    cluster.advance(ROLLOUT_TIME).await;
    assert_available(&cluster);
    assert_eq!(images(&cluster.list(PODS)), ["third:1"; 4]);
    let old = cluster.list(SETS);
    let with_pods = old.iter().filter(|set| count(set, "replicas") > 0);
    assert_eq!(with_pods.count(), 1, "pods of other ReplicaSets are left");
}

/// "iterative rollouts should eventually progress".
#[tokio::test(start_paused = true)]
async fn iterative_rollouts_should_eventually_progress() {
    let cluster = with_deployment(workload(6)).await;
    for step in 0..20 {
        match step % 5 {
            0 => drop(cluster.patch(DEPLOYMENTS, "web", with_image(&format!("image:{step}")))),
            1 => drop(cluster.patch(DEPLOYMENTS, "web", json!({ "spec": { "replicas": 4 + step % 4 } }))),
            2 => drop(cluster.patch(DEPLOYMENTS, "web", json!({ "spec": { "paused": true } }))),
            3 => drop(cluster.patch(DEPLOYMENTS, "web", json!({ "spec": { "paused": false } }))),
            _ => {
                let pods = cluster.list(PODS);
                pods.iter().step_by(2).for_each(|pod| cluster.delete(PODS, name(pod)));
            }
        }
        // Some of the operations are interrupted by the next one.
        cluster.advance(step % 3).await;
    }
    cluster.advance(ROLLOUT_TIME).await;
    assert_available(&cluster);
    let (_, reason) = condition(&cluster.get(DEPLOYMENTS, "web"), "Progressing").unwrap();
    assert_eq!(reason, "NewReplicaSetAvailable");
}

/// "test Deployment ReplicaSet orphaning and adoption regarding controllerRef".
#[tokio::test(start_paused = true)]
async fn deployment_replica_set_orphaning_and_adoption_regarding_controller_ref() {
    let cluster = with_deployment(workload(1)).await;
    let orphaning = DeleteOptions { orphan_dependents: Some(true), ..DeleteOptions::default() };
    cluster.server.delete(DEPLOYMENTS, "default", "web", &orphaning).unwrap();
    cluster.advance(ROLLOUT_TIME).await;
    let sets = cluster.list(SETS);
    assert_eq!((sets.len(), controller(&sets[0])), (1, None));
    assert_eq!(cluster.list(PODS).len(), 1);

    let other = json!({ "metadata": { "name": "other" } });
    let other = cluster.create(DEPLOYMENTS, changed(workload(1), other));
    cluster.advance(ROLLOUT_TIME).await;
    assert_eq!(cluster.owned(SETS, &other).len(), 1);
    assert_eq!((cluster.list(SETS).len(), cluster.list(PODS).len()), (1, 1), "the existing objects are used");
}

/// "Deployment should have a working scale subresource".
#[tokio::test(start_paused = true)]
async fn deployment_should_have_a_working_scale_subresource() {
    let cluster = with_deployment(workload(1)).await;
    assert_working_scale(&cluster, DEPLOYMENTS).await;
}

/// "Replicaset should have a working scale subresource".
#[tokio::test(start_paused = true)]
async fn replica_set_should_have_a_working_scale_subresource() {
    let cluster = Cluster::with(1);
    cluster.create(SETS, workload(1));
    cluster.advance(ROLLOUT_TIME).await;
    assert_working_scale(&cluster, SETS).await;
}

async fn assert_working_scale(cluster: &Cluster, resource: Resource) {
    let wanted = |cluster: &Cluster| {
        let scale = cluster.server.scale(resource, "default", "web").unwrap();
        (scale["spec"]["replicas"].as_i64().unwrap(), scale["status"]["replicas"].as_i64().unwrap())
    };
    assert_eq!(wanted(cluster), (1, 1));
    for replicas in [2, 4] {
        let patch = json!({ "spec": { "replicas": replicas } });
        cluster.try_patch(resource, "web", Some(Subresource::Scale), patch).unwrap();
        assert_eq!(cluster.get(resource, "web")["spec"]["replicas"], replicas);
        cluster.advance(ROLLOUT_TIME).await;
        assert_eq!(wanted(cluster), (replicas, replicas));
        assert_eq!(cluster.list(PODS).len() as i64, replicas);
    }
}

/// "deployment should support proportional scaling": 10 replicas, `maxSurge: 3`, `maxUnavailable: 2`, while no new pod
/// can start.
#[tokio::test(start_paused = true)]
async fn deployment_should_support_proportional_scaling() {
    let bounds = json!({ "maxSurge": 3, "maxUnavailable": 2 });
    let strategy = json!({ "spec": { "strategy": { "rollingUpdate": bounds } } });
    let cluster = with_deployment(changed(workload(10), strategy)).await;
    let sizes = |cluster: &Cluster| {
        let mut sets = cluster.list(SETS);
        sets.sort_by_key(|set| images(std::slice::from_ref(set))[0].to_owned());
        sets.iter().map(|set| set["spec"]["replicas"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    cluster.patch(DEPLOYMENTS, "web", with_image("second:broken"));
    cluster.advance(ROLLOUT_TIME).await;
    assert_eq!(sizes(&cluster), [8, 5]);
    cluster.patch(DEPLOYMENTS, "web", json!({ "spec": { "replicas": 30 } }));
    cluster.advance(ROLLOUT_TIME).await;
    assert_eq!(sizes(&cluster), [20, 13]);
}

/// "should run the lifecycle of a Deployment".
#[tokio::test(start_paused = true)]
async fn should_run_the_lifecycle_of_a_deployment() {
    let labelled = json!({ "metadata": { "labels": { "deployment-static": "true" } } });
    let cluster = with_deployment(changed(workload(1), labelled)).await;
    let patched =
        json!({ "metadata": { "labels": { "test-deployment": "patched" } }, "spec": { "replicas": 2 } });
    cluster.patch(DEPLOYMENTS, "web", changed(patched, with_image("second:1")));
    cluster.advance(ROLLOUT_TIME).await;
    assert_available(&cluster);

    let selected = |labels: &str| ListOptions {
        selection: Selection::labels(labels).unwrap(),
        ..ListOptions::default()
    };
    let found = cluster.server.list(DEPLOYMENTS, None, &selected("deployment-static=true")).unwrap().items;
    assert_eq!(
        found.iter().map(|object| object.label("test-deployment")).collect::<Vec<_>>(),
        [Some("patched")]
    );

    let mut updated = cluster.get(DEPLOYMENTS, "web");
    updated["spec"]["replicas"] = json!(3);
    cluster.server.update(DEPLOYMENTS, "default", updated, &WriteOptions::default()).unwrap();
    cluster.advance(ROLLOUT_TIME).await;
    assert_available(&cluster);

    let options = DeleteOptions::default();
    cluster
        .server
        .delete_collection(DEPLOYMENTS, Some("default"), &selected("deployment-static=true"), &options)
        .unwrap();
    cluster.advance(ROLLOUT_TIME).await;
    assert_eq!(cluster.list(DEPLOYMENTS).len() + cluster.list(SETS).len() + cluster.list(PODS).len(), 0);
}

/// "should validate Deployment Status endpoints".
#[tokio::test(start_paused = true)]
async fn should_validate_deployment_status_endpoints() {
    let cluster = with_deployment(workload(1)).await;
    assert_status_endpoints(&cluster, DEPLOYMENTS).await;
}

/// "should validate Replicaset Status endpoints".
#[tokio::test(start_paused = true)]
async fn should_validate_replica_set_status_endpoints() {
    let cluster = Cluster::with(1);
    cluster.create(SETS, workload(1));
    cluster.advance(ROLLOUT_TIME).await;
    assert_status_endpoints(&cluster, SETS).await;
}

/// Conditions set by other clients, with PUT and PATCH of the status, are kept.
async fn assert_status_endpoints(cluster: &Cluster, resource: Resource) {
    let mut object = cluster.get(resource, "web");
    let foreign =
        json!({ "type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "Set from e2e test" });
    let conditions =
        object["status"].as_object_mut().unwrap().entry("conditions").or_insert_with(|| json!([]));
    conditions.as_array_mut().unwrap().push(foreign);
    cluster.server.update_status(resource, "default", object, &WriteOptions::default()).unwrap();
    cluster.settle().await;
    let set = |cluster: &Cluster, type_: &str| condition(&cluster.get(resource, "web"), type_).is_some();
    assert!(set(cluster, "StatusUpdate"));

    let patched =
        json!([{ "type": "StatusPatched", "status": "True", "reason": "E2E", "message": "Patched" }]);
    let patch = json!({ "status": { "conditions": patched } });
    cluster.try_patch(resource, "web", Some(Subresource::Status), patch).unwrap();
    cluster.settle().await;
    assert!(set(cluster, "StatusPatched"));
    assert!(!set(cluster, "StatusUpdate"), "a merge patch replaces the list");
}

/// "should serve a basic image on each replica with a public image", as far as simulated pods allow.
#[tokio::test(start_paused = true)]
async fn should_serve_a_basic_image_on_each_replica_that_runs() {
    let cluster = Cluster::with(1);
    let rs = cluster.create(SETS, workload(2));
    cluster.advance(ROLLOUT_TIME).await;
    let pods = cluster.owned(PODS, &rs);
    assert_eq!(pods.iter().map(|pod| &pod["status"]["phase"]).collect::<Vec<_>>(), ["Running", "Running"]);
    assert!(pods.iter().all(|pod| pod["status"]["podIP"].is_string()));
}

/// "should surface a failure condition on a common issue like exceeded quota".
#[tokio::test(start_paused = true)]
async fn should_surface_a_failure_condition_on_a_common_issue_like_exceeded_quota() {
    let cluster = Cluster::with(1);
    let quota = json!({ "metadata": { "name": "condition-test" }, "spec": { "hard": { "pods": "2" } } });
    cluster.create(Resource::RESOURCE_QUOTAS, quota);
    cluster.create(SETS, workload(3));
    cluster.advance(ROLLOUT_TIME).await;
    let failure = |cluster: &Cluster| condition(&cluster.get(SETS, "web"), "ReplicaFailure");
    assert_eq!(failure(&cluster), Some(("True".to_owned(), "FailedCreate".to_owned())));
    assert_eq!(cluster.list(PODS).len(), 2);
    cluster.patch(SETS, "web", json!({ "spec": { "replicas": 2 } }));
    cluster.advance(ROLLOUT_TIME).await;
    assert_eq!(failure(&cluster), None);
}

/// "should adopt matching pods on creation and release no longer matching pods".
#[tokio::test(start_paused = true)]
async fn should_adopt_matching_pods_on_creation_and_release_no_longer_matching_pods() {
    let cluster = Cluster::with(1);
    cluster.create(PODS, pod("adoption-release"));
    cluster.advance(ROLLOUT_TIME).await;
    let rs = cluster.create(SETS, workload(1));
    cluster.advance(ROLLOUT_TIME).await;
    let owner = |cluster: &Cluster| controller(&cluster.get(PODS, "adoption-release")).cloned();
    assert_eq!(owner(&cluster).unwrap()["uid"], rs["metadata"]["uid"]);
    assert_eq!(cluster.list(PODS).len(), 1);
    cluster.patch(
        PODS,
        "adoption-release",
        json!({ "metadata": { "labels": { "name": "not-matching-name" } } }),
    );
    cluster.advance(ROLLOUT_TIME).await;
    assert_eq!(owner(&cluster), None);
    assert_eq!(cluster.list(PODS).len(), 2, "the released pod is replaced");
}

/// "Replace and Patch tests".
#[tokio::test(start_paused = true)]
async fn replica_set_replace_and_patch_tests() {
    let cluster = Cluster::with(1);
    cluster.create(SETS, workload(1));
    cluster.advance(ROLLOUT_TIME).await;
    let patched = json!({ "metadata": { "labels": { "test-rs": "patched" } }, "spec": { "replicas": 3 } });
    cluster.patch(SETS, "web", changed(patched, with_image("second:1")));
    cluster.advance(ROLLOUT_TIME).await;
    let rs = cluster.get(SETS, "web");
    assert_eq!(rs["metadata"]["labels"]["test-rs"], "patched");
    assert_eq!((count(&rs, "replicas"), count(&rs, "availableReplicas")), (3, 3));
    assert_eq!(
        images(&cluster.list(PODS)),
        ["first:1", "second:1", "second:1"],
        "existing pods keep their image"
    );
}

/// "should list and delete a collection of ReplicaSets".
#[tokio::test(start_paused = true)]
async fn should_list_and_delete_a_collection_of_replica_sets() {
    let cluster = Cluster::with(1);
    cluster.create(SETS, workload(3));
    cluster.advance(ROLLOUT_TIME).await;
    let selected =
        ListOptions { selection: Selection::labels("name=test").unwrap(), ..ListOptions::default() };
    assert_eq!(cluster.server.list(SETS, None, &selected).unwrap().items.len(), 1);
    assert_eq!(cluster.list(PODS).len(), 3);
    cluster.server.delete_collection(SETS, Some("default"), &selected, &DeleteOptions::default()).unwrap();
    cluster.advance(ROLLOUT_TIME).await;
    assert_eq!((cluster.list(SETS).len(), cluster.list(PODS).len()), (0, 0));
}
