//! Upstream's `test/integration/replicaset`.

use kcm_apiserver::{DeleteOptions, Resource, Subresource};
use serde_json::{Value, json};

use super::cluster::{Cluster, changed, controller, count, name, pod, template};

const PODS: Resource = Resource::PODS;
const SETS: Resource = Resource::REPLICA_SETS;

/// A ReplicaSet `rs` with this number of replicas.
fn replica_set(replicas: i64) -> Value {
    json!({
        "metadata": { "name": "rs", "labels": { "name": "test" } },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "name": "test" } },
            "template": template("fakeimage"),
        },
    })
}

fn reference(kind: &str, of: &Value) -> Value {
    let api_version = if kind == "ReplicaSet" { "apps/v1" } else { "v1" };
    json!({ "apiVersion": api_version, "kind": kind, "name": name(of), "uid": of["metadata"]["uid"] })
}

fn foreign_owner(kind: &str) -> Value {
    reference(kind, &json!({ "metadata": { "name": "other", "uid": "some-uid" } }))
}

fn references(pod: &Value) -> &Value {
    pod["metadata"].get("ownerReferences").unwrap_or(&Value::Null)
}

/// Returns the owner references of a pod created with `given`, next to a ReplicaSet `rs` with one replica.
async fn adoption(given: impl Fn(&Value) -> Value) -> (Value, Value) {
    let cluster = Cluster::new();
    // Both are created before the controllers run, so that the ReplicaSet creates no pod.
    let rs = cluster.create(SETS, replica_set(1));
    let metadata = json!({ "metadata": { "ownerReferences": given(&rs) } });
    cluster.create(PODS, changed(pod("pod1"), metadata));
    cluster.settle().await;
    (rs, references(&cluster.get(PODS, "pod1")).clone())
}

/// `TestAdoption`, all four cases.
#[tokio::test(start_paused = true)]
async fn adoption_depends_on_owner_references() {
    struct Case {
        name: &'static str,
        /// Owner references of the pod before and after the sync, given the ReplicaSet.
        before: fn(&Value) -> Value,
        after: fn(&Value) -> Value,
    }
    fn owner(rs: &Value) -> Value {
        reference("ReplicaSet", rs)
    }
    fn controller(rs: &Value) -> Value {
        changed(owner(rs), json!({ "controller": true }))
    }
    fn adopted(rs: &Value) -> Value {
        changed(controller(rs), json!({ "blockOwnerDeletion": true }))
    }
    fn other_controller() -> Value {
        changed(foreign_owner("ReplicaSet"), json!({ "controller": true }))
    }
    let cases = [
        Case {
            name: "pod refers rs as an owner, not a controller",
            before: |rs| json!([owner(rs)]),
            after: |rs| json!([adopted(rs)]),
        },
        Case {
            name: "pod doesn't have owner references",
            before: |_| json!([]),
            after: |rs| json!([adopted(rs)]),
        },
        Case {
            name: "pod refers rs as a controller",
            before: |rs| json!([controller(rs)]),
            after: |rs| json!([controller(rs)]),
        },
        Case {
            name: "pod refers other rs as the controller, refers the rs as an owner",
            before: |rs| json!([other_controller(), owner(rs)]),
            after: |rs| json!([other_controller(), owner(rs)]),
        },
    ];
    for Case { name, before, after } in cases {
        let (rs, references) = adoption(before).await;
        assert_eq!(references, after(&rs), "{name}");
    }
}

/// `TestRSSelectorImmutability`.
#[tokio::test(start_paused = true)]
async fn rs_selector_immutability_of_apps_v1() {
    let cluster = Cluster::new();
    cluster.create(SETS, replica_set(0));
    let patch = json!({ "spec": { "selector": { "matchLabels": { "name": "other" } } } });
    let refused = cluster.try_patch(SETS, "rs", None, patch).unwrap_err().to_string();
    assert!(refused.contains("spec.selector: Invalid value"), "{refused}");
    assert!(refused.contains("field is immutable"), "{refused}");
}

/// `TestSpecReplicasChange` of ReplicaSets: `spec.replicas`, and a change of another field.
#[tokio::test(start_paused = true)]
async fn spec_replicas_change_of_a_replica_set_is_followed_and_observed() {
    let cluster = Cluster::new();
    cluster.create(SETS, replica_set(2));
    for replicas in [3, 0, 2] {
        cluster.patch(SETS, "rs", json!({ "spec": { "replicas": replicas } }));
        cluster.settle().await;
        let rs = cluster.get(SETS, "rs");
        assert_eq!((count(&rs, "replicas"), cluster.list(PODS).len() as i64), (replicas, replicas));
        assert_eq!(count(&rs, "observedGeneration"), rs["metadata"]["generation"]);
    }
    let annotated = json!({ "spec": { "template": { "metadata": { "annotations": { "test": "ing" } } } } });
    let changed = cluster.patch(SETS, "rs", annotated);
    cluster.settle().await;
    let generation = changed["metadata"]["generation"].as_i64().unwrap();
    assert!(count(&changed, "observedGeneration") < generation);
    assert_eq!(count(&cluster.get(SETS, "rs"), "observedGeneration"), generation);
}

/// `TestDeletingAndFailedPods`: both are replaced and kept.
#[tokio::test(start_paused = true)]
async fn deleting_and_failed_pods_are_replaced_and_stay() {
    let cluster = Cluster::new();
    cluster.create(SETS, replica_set(2));
    cluster.settle().await;
    let pods = cluster.list(PODS);
    let (deleting, failed) = (name(&pods[0]), name(&pods[1]));
    cluster.patch(PODS, deleting, json!({ "metadata": { "finalizers": ["fake/finalizer"] } }));
    cluster.delete(PODS, deleting);
    cluster.report_phase(failed, "Failed");
    cluster.settle().await;
    assert_eq!(cluster.list(PODS).len(), 4);
    assert!(cluster.has(PODS, deleting) && cluster.has(PODS, failed));
    assert_eq!(count(&cluster.get(SETS, "rs"), "replicas"), 2);
}

/// `TestPodDeletionCost`: the first pod has restarted five times and is deleted unless its deletion cost is higher.
#[tokio::test(start_paused = true)]
async fn pod_deletion_cost_selects_the_deleted_pod() {
    struct Case {
        name: &'static str,
        costs: [Option<&'static str>; 2],
        gate: bool,
        /// Index of the remaining pod.
        remaining: usize,
    }
    let different = [Some("1000"), Some("100")];
    let cases = [
        Case { name: "enabled-with-different-costs", costs: different, gate: true, remaining: 0 },
        Case { name: "enabled-with-same-costs", costs: [Some("100"); 2], gate: true, remaining: 1 },
        Case { name: "enabled-with-no-costs", costs: [None; 2], gate: true, remaining: 1 },
        Case { name: "disabled-with-different-costs", costs: different, gate: false, remaining: 1 },
    ];
    for Case { name: case, costs, gate, remaining } in cases {
        let cluster = Cluster::with_gates(&format!("PodDeletionCost={gate}"));
        cluster.create(SETS, replica_set(2));
        cluster.settle().await;
        let pods = cluster.list(PODS);
        for ((pod, cost), restarts) in pods.iter().zip(costs).zip([5, 0]) {
            let annotations = json!({ "controller.kubernetes.io/pod-deletion-cost": cost });
            cluster.patch(PODS, name(pod), json!({ "metadata": { "annotations": annotations } }));
            let status = json!({ "status": { "containerStatuses": [{ "restartCount": restarts }] } });
            cluster.try_patch(PODS, name(pod), Some(Subresource::Status), status).unwrap();
        }
        cluster.settle().await;
        cluster.patch(SETS, "rs", json!({ "spec": { "replicas": 1 } }));
        cluster.settle().await;
        let left = cluster.list(PODS);
        assert_eq!(left.len(), 1, "{case}");
        assert_eq!(name(&left[0]), name(&pods[remaining]), "{case}");
    }
}

/// `TestOverlappingRSs`.
#[tokio::test(start_paused = true)]
async fn overlapping_rss_have_their_own_pods() {
    let cluster = Cluster::new();
    let sets = [1, 2].map(|number| {
        let named = json!({ "metadata": { "name": format!("rs-{number}") } });
        cluster.create(SETS, changed(replica_set(number), named))
    });
    cluster.settle().await;
    for (set, wanted) in sets.iter().zip([1, 2]) {
        assert_eq!(cluster.owned(PODS, set).len(), wanted);
        assert_eq!(count(&cluster.get(SETS, name(set)), "replicas") as usize, wanted);
    }
    assert!(cluster.list(PODS).iter().all(|pod| references(pod).as_array().unwrap().len() == 1));
}

/// `TestPodOrphaningAndAdoptionWhenLabelsChange`.
#[tokio::test(start_paused = true)]
async fn pod_orphaning_and_adoption_when_labels_change_and_change_back() {
    let cluster = Cluster::new();
    let rs = cluster.create(SETS, replica_set(1));
    cluster.roll_out().await;
    let pods = cluster.list(PODS);
    let pod = name(&pods[0]);
    cluster.patch(PODS, pod, json!({ "metadata": { "labels": { "name": null, "new": "label" } } }));
    cluster.settle().await;
    assert_eq!(controller(&cluster.get(PODS, pod)), None);
    assert_eq!(cluster.owned(PODS, &rs).len(), 1, "the released pod is replaced");

    cluster.patch(PODS, pod, json!({ "metadata": { "labels": { "name": "test", "new": null } } }));
    cluster.settle().await;
    // The other pod is deleted: it is not ready.
    let owner = controller(&cluster.get(PODS, pod)).unwrap()["uid"].clone();
    assert_eq!(owner, rs["metadata"]["uid"]);
    assert_eq!(cluster.list(PODS).len(), 1);
}

/// `TestGeneralPodAdoption`.
#[tokio::test(start_paused = true)]
async fn general_pod_adoption_leaves_other_owners_and_corrects_our_reference() {
    let other = foreign_owner("ReplicationController");
    let (rs, found) = adoption(|_| json!([other])).await;
    assert_eq!(found.as_array().unwrap().len(), 2, "{found}");
    assert!(found.as_array().unwrap().contains(&other), "{found}");
    let ours = |found: &Value| controller(&json!({ "metadata": { "ownerReferences": found } })).cloned();
    assert_eq!(ours(&found).unwrap()["uid"], rs["metadata"]["uid"]);

    let (rs, found) =
        adoption(|rs| json!([changed(reference("ReplicaSet", rs), json!({ "controller": false }))])).await;
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!(ours(&found).unwrap()["uid"], rs["metadata"]["uid"]);
}

/// `TestReadyAndAvailableReplicas`: of three pods, two are ready and one of these for `minReadySeconds`.
#[tokio::test(start_paused = true)]
async fn ready_and_available_replicas_are_counted_by_min_ready_seconds() {
    let cluster = Cluster::new();
    cluster.create(SETS, changed(replica_set(3), json!({ "spec": { "minReadySeconds": 3600 } })));
    cluster.settle().await;
    let pods = cluster.list(PODS);
    cluster.report_ready(name(&pods[1]), 0);
    cluster.report_ready(name(&pods[2]), 120 * 60);
    cluster.settle().await;
    let rs = cluster.get(SETS, "rs");
    assert_eq!(
        (count(&rs, "replicas"), count(&rs, "readyReplicas"), count(&rs, "availableReplicas")),
        (3, 2, 1)
    );
}

/// `TestRSScaleSubresource`.
#[tokio::test(start_paused = true)]
async fn rs_scale_subresource_reads_and_sets_the_size() {
    let cluster = Cluster::new();
    cluster.create(SETS, replica_set(1));
    cluster.settle().await;
    let scale = cluster.server.scale(SETS, "default", "rs").unwrap();
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&json!(1), &json!(1)));
    assert_eq!(scale["status"]["selector"], "name=test");
    cluster.try_patch(SETS, "rs", Some(Subresource::Scale), json!({ "spec": { "replicas": 2 } })).unwrap();
    assert_eq!(cluster.get(SETS, "rs")["spec"]["replicas"], 2);
    cluster.settle().await;
    assert_eq!(cluster.server.scale(SETS, "default", "rs").unwrap()["status"]["replicas"], 2);
}

/// `TestExtraPodsAdoptionAndDeletion`: three matching pods, two replicas.
#[tokio::test(start_paused = true)]
async fn extra_pods_adoption_and_deletion() {
    let cluster = Cluster::new();
    cluster.settle().await;
    for name in ["pod-1", "pod-2", "pod-3"] {
        cluster.create(PODS, pod(name));
    }
    cluster.settle().await;
    let rs = cluster.create(SETS, replica_set(2));
    cluster.settle().await;
    assert_eq!((cluster.owned(PODS, &rs).len(), cluster.list(PODS).len()), (2, 2));
    assert!(cluster.list(PODS).iter().all(|pod| name(pod).starts_with("pod-")));
}

/// `TestFullyLabeledReplicas`.
#[tokio::test(start_paused = true)]
async fn fully_labeled_replicas_have_all_labels_of_the_template() {
    let cluster = Cluster::new();
    cluster.create(SETS, replica_set(2));
    cluster.settle().await;
    let pods = cluster.list(PODS);
    let extra = json!({ "metadata": { "labels": { "extraKey": "extraValue" } } });
    cluster.patch(SETS, "rs", json!({ "spec": { "template": extra } }));
    cluster.patch(PODS, name(&pods[0]), extra);
    cluster.settle().await;
    let rs = cluster.get(SETS, "rs");
    assert_eq!((count(&rs, "replicas"), count(&rs, "fullyLabeledReplicas")), (2, 1));
}

/// `TestReplicaSetsAppsV1DefaultGCPolicy`: background deletion adds no orphan finalizer.
#[tokio::test(start_paused = true)]
async fn replica_sets_apps_v1_default_gc_policy_is_background() {
    let cluster = Cluster::new();
    let held = json!({ "metadata": { "finalizers": ["fake.example.com/blockDeletion"] } });
    cluster.create(SETS, changed(replica_set(2), held));
    cluster.settle().await;
    cluster.server.delete(SETS, "default", "rs", &DeleteOptions::default()).unwrap();
    cluster.settle().await;
    let rs = cluster.get(SETS, "rs");
    assert!(rs["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(rs["metadata"]["finalizers"], json!(["fake.example.com/blockDeletion"]));
}

/// `TestTerminatingReplicas`: gate disabled, and changed at runtime. Here, a restart changes it.
#[tokio::test(start_paused = true)]
async fn terminating_replicas_of_a_replica_set_follow_the_feature_gate() {
    const GATE: &str = "DeploymentReplicaSetTerminatingReplicas";
    let mut cluster = Cluster::with_gates(&format!("{GATE}=false"));
    cluster.create(SETS, replica_set(5));
    cluster.roll_out().await;
    let terminating =
        |cluster: &Cluster| cluster.get(SETS, "rs")["status"].get("terminatingReplicas").cloned();
    let pods = cluster.list(PODS);
    let held = json!({ "metadata": { "finalizers": ["fake/finalizer"] } });
    pods.iter().for_each(|pod| drop(cluster.patch(PODS, name(pod), held.clone())));
    cluster.delete(PODS, name(&pods[0]));
    cluster.roll_out().await;
    assert_eq!(terminating(&cluster), None);

    cluster.run_with(&format!("{GATE}=true"));
    cluster.delete(PODS, name(&pods[1]));
    cluster.roll_out().await;
    assert_eq!(terminating(&cluster), Some(json!(2)));
    cluster.patch(PODS, name(&pods[0]), json!({ "metadata": { "finalizers": null } }));
    cluster.settle().await;
    assert_eq!(terminating(&cluster), Some(json!(1)), "updated when the pod is removed");

    cluster.run_with(&format!("{GATE}=false"));
    cluster.delete(PODS, name(&pods[2]));
    cluster.roll_out().await;
    assert_eq!(terminating(&cluster), None, "cleared");
    assert_eq!(cluster.list(PODS).len(), 7, "5 non-terminating, 2 terminating");
}

/// `TestTerminatingReplicas`, with the feature gate enabled (default).
#[tokio::test(start_paused = true)]
async fn terminating_replicas_of_a_replica_set_are_counted() {
    let cluster = Cluster::new();
    cluster.create(SETS, replica_set(5));
    cluster.roll_out().await;
    let counts = |cluster: &Cluster| {
        let rs = cluster.get(SETS, "rs");
        ["replicas", "readyReplicas", "terminatingReplicas"].map(|field| count(&rs, field))
    };
    assert_eq!(counts(&cluster), [5, 5, 0]);
    let held = json!({ "metadata": { "finalizers": ["fake/finalizer"] } });
    for pod in &cluster.list(PODS) {
        cluster.patch(PODS, name(pod), held.clone());
    }
    cluster.patch(SETS, "rs", json!({ "spec": { "replicas": 3 } }));
    cluster.settle().await;
    assert_eq!(counts(&cluster), [3, 3, 2], "two are terminating");
    let pods = cluster.list(PODS);
    let staying = pods.iter().find(|pod| pod["metadata"].get("deletionTimestamp").is_none()).unwrap();
    cluster.delete(PODS, name(staying));
    cluster.settle().await;
    assert_eq!(counts(&cluster), [3, 2, 3], "one more is terminating and was replaced");
    for pod in cluster.list(PODS) {
        cluster.patch(PODS, name(&pod), json!({ "metadata": { "finalizers": null } }));
    }
    cluster.settle().await;
    assert_eq!(counts(&cluster), [3, 2, 0], "all are deleted");
}
