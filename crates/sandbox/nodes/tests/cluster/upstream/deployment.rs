//! Upstream's `test/integration/deployment`.

use kcm_apiserver::{Resource, Subresource};
use serde_json::{Value, json};

use super::cluster::{Cluster, annotation, changed, condition, controller, count, name, template};

const PODS: Resource = Resource::PODS;
const SETS: Resource = Resource::REPLICA_SETS;
const DEPLOYMENTS: Resource = Resource::DEPLOYMENTS;

const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const HASH: &str = "pod-template-hash";

/// A Deployment `web` with this number of replicas.
fn deployment(replicas: i64) -> Value {
    json!({
        "metadata": { "name": "web", "labels": { "name": "test" } },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "name": "test" } },
            "template": template("fakeimage"),
        },
    })
}

fn rolling(surge: i64, unavailable: i64) -> Value {
    let bounds = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
    json!({ "spec": { "strategy": { "type": "RollingUpdate", "rollingUpdate": bounds } } })
}

const WITHOUT_TERMINATING_REPLICAS: &str = "DeploymentReplicaSetTerminatingReplicas=false";

/// `status.terminatingReplicas` of `web`.
fn terminating(cluster: &Cluster) -> Option<i64> {
    cluster.web()["status"].get("terminatingReplicas").and_then(Value::as_i64)
}

impl Cluster {
    fn web(&self) -> Value {
        self.get(DEPLOYMENTS, "web")
    }

    fn change(&self, patch: Value) {
        self.patch(DEPLOYMENTS, "web", patch);
    }

    fn set_image(&self, image: &str) {
        self.change(json!({ "spec": { "template": { "spec": template(image)["spec"].clone() } } }));
    }

    /// The ReplicaSets of `web`, sorted by revision.
    fn sets(&self) -> Vec<Value> {
        let mut sets = self.owned(SETS, &self.web());
        sets.sort_by_key(|set| annotation(set, REVISION).map(|text| text.parse::<u32>().unwrap()));
        sets
    }

    /// `spec.replicas` of each of [`sets`](Self::sets).
    fn sizes(&self) -> Vec<i64> {
        self.sets().iter().map(|set| set["spec"]["replicas"].as_i64().unwrap()).collect()
    }

    fn assert_complete(&self) {
        let web = self.web();
        let wanted = web["spec"]["replicas"].as_i64().unwrap();
        let counts = ["replicas", "updatedReplicas", "availableReplicas"].map(|field| count(&web, field));
        assert_eq!(counts, [wanted; 3], "{}", web["status"]);
        assert_eq!(count(&web, "observedGeneration"), web["metadata"]["generation"]);
    }

    /// Makes `number` pending pods ready.
    fn start_some(&self, number: usize) {
        let pods = self.list(PODS);
        let waiting = pods.iter().filter(|pod| pod["status"].get("conditions").is_none());
        waiting.take(number).for_each(|pod| self.report_ready(name(pod), 0));
    }
}

fn image(set: &Value) -> &str {
    set["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap()
}

/// `TestNewDeployment`.
#[tokio::test(start_paused = true)]
async fn new_deployment_has_a_replica_set_of_revision_1_with_its_annotations_and_the_hash() {
    let cluster = Cluster::new();
    let annotations =
        json!({ "test": "should-copy-to-replica-set", LAST_APPLIED: "should-not-copy-to-replica-set" });
    let annotated = json!({ "metadata": { "annotations": annotations }, "spec": { "minReadySeconds": 4 } });
    cluster.create(DEPLOYMENTS, changed(deployment(20), annotated));
    cluster.roll_out().await;
    cluster.advance(4).await;
    cluster.assert_complete();
    assert_eq!(annotation(&cluster.web(), REVISION), Some("1"));

    let [set] = &cluster.sets()[..] else { panic!("one ReplicaSet") };
    assert_eq!(annotation(set, "test"), Some("should-copy-to-replica-set"));
    assert_eq!(annotation(set, LAST_APPLIED), None);
    assert_eq!((annotation(set, REVISION), annotation(set, DESIRED)), (Some("1"), Some("20")));
    let hash = set["metadata"]["labels"][HASH].as_str().unwrap();
    assert_eq!(name(set), format!("web-{hash}"));
    assert_eq!(set["spec"]["selector"]["matchLabels"][HASH], hash);
    assert_eq!(set["spec"]["template"]["metadata"]["labels"][HASH], hash);
    assert!(cluster.list(PODS).iter().all(|pod| pod["metadata"]["labels"][HASH] == hash));
}

/// `TestDeploymentRollingUpdate`: rollout, rollback, and rollover of an incomplete rollout.
#[tokio::test(start_paused = true)]
async fn deployment_rolling_update_rolls_out_and_back_and_over() {
    let cluster = Cluster::new();
    cluster.create(DEPLOYMENTS, deployment(20));
    cluster.roll_out().await;
    cluster.assert_complete();

    cluster.set_image("new-image");
    cluster.roll_out().await;
    cluster.assert_complete();
    assert_eq!(cluster.sizes(), [0, 20]);
    assert_eq!(annotation(&cluster.web(), REVISION), Some("2"));

    cluster.set_image("fakeimage");
    cluster.roll_out().await;
    cluster.assert_complete();
    assert_eq!(annotation(&cluster.web(), REVISION), Some("3"));
    let sets = cluster.sets();
    assert_eq!(
        sets.iter().map(image).collect::<Vec<_>>(),
        ["new-image", "fakeimage"],
        "the existing ReplicaSet is used again"
    );

    cluster.set_image("unready-image");
    cluster.settle().await;
    assert_eq!(annotation(&cluster.web(), REVISION), Some("4"));
    assert_eq!(cluster.sizes(), [0, 15, 10], "15 of 20 stay while no new pod is ready");
    cluster.set_image("rollover-image");
    cluster.roll_out().await;
    cluster.assert_complete();
    assert_eq!(annotation(&cluster.web(), REVISION), Some("5"));
    assert_eq!(cluster.sizes(), [0, 0, 0, 20]);
}

/// `TestDeploymentSelectorImmutability`.
#[tokio::test(start_paused = true)]
async fn deployment_selector_immutability_of_apps_v1() {
    let cluster = Cluster::new();
    cluster.create(DEPLOYMENTS, deployment(0));
    let patch = json!({ "spec": { "selector": { "matchLabels": { "name": "other" } } } });
    let refused = cluster.try_patch(DEPLOYMENTS, "web", None, patch).unwrap_err().to_string();
    assert!(refused.contains("spec.selector: Invalid value"), "{refused}");
    assert!(refused.contains("field is immutable"), "{refused}");
}

/// `TestPausedDeployment`.
#[tokio::test(start_paused = true)]
async fn paused_deployment_makes_no_replica_set_until_it_is_resumed() {
    let cluster = Cluster::new();
    let grace =
        |seconds: u32| json!({ "template": { "spec": { "terminationGracePeriodSeconds": seconds } } });
    cluster.create(DEPLOYMENTS, changed(deployment(1), json!({ "spec": { "paused": true } })));
    cluster.change(json!({ "spec": grace(5) }));
    cluster.settle().await;
    assert_eq!(cluster.sets().len(), 0);

    cluster.change(json!({ "spec": { "paused": false } }));
    cluster.roll_out().await;
    cluster.assert_complete();
    assert_eq!(annotation(&cluster.web(), REVISION), Some("1"));

    cluster.change(json!({ "spec": { "paused": true } }));
    cluster.settle().await;
    cluster.change(json!({ "spec": grace(10) }));
    cluster.settle().await;
    assert_eq!(cluster.sets().len(), 1, "no ReplicaSet for the new template");
}

/// `TestScalePausedDeployment`.
#[tokio::test(start_paused = true)]
async fn scale_paused_deployment_is_followed() {
    let cluster = Cluster::new();
    cluster.create(DEPLOYMENTS, deployment(1));
    cluster.roll_out().await;
    cluster.change(json!({ "spec": { "paused": true } }));
    cluster.settle().await;
    cluster.change(json!({ "spec": { "replicas": 10 } }));
    cluster.roll_out().await;
    cluster.assert_complete();
    assert_eq!(cluster.sizes(), [10]);
}

/// `TestDeploymentHashCollision`: a ReplicaSet with another template has the computed name.
#[tokio::test(start_paused = true)]
async fn deployment_hash_collision_is_counted_and_resolved() {
    let cluster = Cluster::new();
    cluster.create(DEPLOYMENTS, deployment(1));
    cluster.settle().await;
    for collisions in 1..=2 {
        // The newest ReplicaSet no longer matches the template, and keeps the name that the template hashes to.
        let env = json!([{ "name": "foo", "value": format!("bar-{collisions}") }]);
        let container = json!([{ "name": "fake-name", "image": "fakeimage", "env": env }]);
        let sets = cluster.sets();
        let newest = name(sets.last().unwrap());
        cluster.patch(
            SETS,
            newest,
            json!({ "spec": { "template": { "spec": { "containers": container } } } }),
        );
        cluster.settle().await;
        assert_eq!(count(&cluster.web(), "collisionCount"), collisions);
        assert_eq!(cluster.sets().len() as i64, 1 + collisions);
    }
    cluster.roll_out().await;
    cluster.assert_complete();
}

/// `TestFailedDeployment`.
#[tokio::test(start_paused = true)]
async fn failed_deployment_exceeds_its_deadline_and_succeeds_later() {
    let cluster = Cluster::new();
    cluster.create(DEPLOYMENTS, changed(deployment(1), json!({ "spec": { "progressDeadlineSeconds": 7 } })));
    cluster.advance(6).await;
    let progressing = |cluster: &Cluster| condition(&cluster.web(), "Progressing").unwrap().1;
    assert_eq!(progressing(&cluster), "ReplicaSetUpdated");
    cluster.advance(4).await;
    assert_eq!(progressing(&cluster), "ProgressDeadlineExceeded");
    cluster.roll_out().await;
    assert_eq!(progressing(&cluster), "NewReplicaSetAvailable");
}

/// `TestOverlappingDeployments`.
#[tokio::test(start_paused = true)]
async fn overlapping_deployments_keep_to_their_own_replica_sets() {
    let cluster = Cluster::new();
    let named = |name: &str| changed(deployment(1), json!({ "metadata": { "name": name } }));
    let both = ["web", "other"].map(|name| cluster.create(DEPLOYMENTS, named(name)));
    cluster.roll_out().await;
    let sizes = |cluster: &Cluster, of: &Value| -> Vec<i64> {
        cluster.owned(SETS, of).iter().map(|set| set["spec"]["replicas"].as_i64().unwrap()).collect()
    };
    assert_eq!(both.each_ref().map(|d| sizes(&cluster, d)), [[1], [1]]);

    // Each Deployment scales its own pods.
    for (deployment, replicas) in both.iter().zip([2, 3]) {
        cluster.patch(DEPLOYMENTS, name(deployment), json!({ "spec": { "replicas": replicas } }));
    }
    cluster.roll_out().await;
    assert_eq!(both.each_ref().map(|d| sizes(&cluster, d)), [[2], [3]]);
    assert_eq!(cluster.list(PODS).len(), 5);
    assert_eq!(
        both.each_ref().map(|d| count(&cluster.get(DEPLOYMENTS, name(d)), "availableReplicas")),
        [2, 3]
    );
}

/// `TestScaledRolloutDeployment`: replicas and image change in one update, up and down, during a rollout.
#[tokio::test(start_paused = true)]
async fn scaled_rollout_deployment_updates_the_replicas_annotations() {
    let cluster = Cluster::new();
    cluster.create(DEPLOYMENTS, changed(deployment(10), rolling(3, 2)));
    cluster.roll_out().await;
    cluster.assert_complete();

    cluster.set_image("second");
    cluster.settle().await;
    assert_eq!(cluster.sizes(), [8, 5], "limits of the bounds while no new pod is ready");

    let both = |replicas: i64, image: &str| json!({ "spec": { "replicas": replicas, "template": { "spec": template(image)["spec"].clone() } } });
    let check_annotations = |cluster: &Cluster, wanted: i64| {
        for set in cluster.sets().iter().filter(|set| set["spec"]["replicas"] != 0) {
            assert_eq!(annotation(set, DESIRED), Some(&*wanted.to_string()), "{}", name(set));
            assert_eq!(annotation(set, MAX), Some(&*(wanted + 3).to_string()), "{}", name(set));
        }
    };
    cluster.change(both(20, "third"));
    cluster.settle().await;
    check_annotations(&cluster, 20);
    cluster.roll_out().await;
    cluster.assert_complete();
    assert_eq!(cluster.sizes(), [0, 0, 20]);

    cluster.set_image("fourth");
    cluster.settle().await;
    cluster.start_some(1);
    cluster.settle().await;
    cluster.change(both(5, "fifth"));
    cluster.settle().await;
    check_annotations(&cluster, 5);
    cluster.roll_out().await;
    cluster.assert_complete();
    assert_eq!(cluster.sizes(), [0, 0, 0, 0, 5]);
    check_annotations(&cluster, 5);
}

/// `TestSpecReplicasChange` of Deployments: `spec.replicas`, and a change of another field.
#[tokio::test(start_paused = true)]
async fn spec_replicas_change_of_a_deployment_is_followed_and_observed() {
    let cluster = Cluster::new();
    cluster.create(
        DEPLOYMENTS,
        changed(deployment(1), json!({ "spec": { "strategy": { "type": "Recreate" } } })),
    );
    for replicas in [2, 0, 1] {
        cluster.change(json!({ "spec": { "replicas": replicas } }));
        cluster.roll_out().await;
        cluster.assert_complete();
        assert_eq!(cluster.sizes(), [replicas]);
    }
    cluster.change(json!({ "spec": { "revisionHistoryLimit": 4 } }));
    let web = cluster.web();
    let generation = web["metadata"]["generation"].as_i64().unwrap();
    assert!(count(&web, "observedGeneration") < generation);
    cluster.settle().await;
    assert_eq!(count(&cluster.web(), "observedGeneration"), generation);
}

/// `TestDeploymentAvailableCondition`.
#[tokio::test(start_paused = true)]
async fn deployment_available_condition_follows_min_ready_seconds() {
    let cluster = Cluster::new();
    let slow = json!({ "spec": { "minReadySeconds": 3600, "progressDeadlineSeconds": 7200 } });
    cluster.create(DEPLOYMENTS, changed(deployment(10), slow));
    cluster.settle().await;
    let available = |cluster: &Cluster| {
        let web = cluster.web();
        let (status, reason) = condition(&web, "Available").unwrap();
        (status, reason, count(&web, "readyReplicas"), count(&web, "availableReplicas"))
    };
    let (no, yes) = (("False", "MinimumReplicasUnavailable"), ("True", "MinimumReplicasAvailable"));
    let expected = |(status, reason): (&str, &str), ready, available| {
        (status.to_owned(), reason.to_owned(), ready, available)
    };
    assert_eq!(available(&cluster), expected(no, 0, 0), "no pod is ready");
    cluster.start_pods();
    cluster.settle().await;
    assert_eq!(available(&cluster), expected(no, 10, 0), "no pod has been ready for minReadySeconds");
    cluster.change(json!({ "spec": { "minReadySeconds": 1 } }));
    cluster.settle().await;
    assert_eq!(available(&cluster), expected(yes, 10, 10));
}

/// `TestGeneralReplicaSetAdoption`.
#[tokio::test(start_paused = true)]
async fn general_replica_set_adoption_leaves_other_owners_and_corrects_our_reference() {
    let cluster = Cluster::new();
    let web = cluster.create(DEPLOYMENTS, deployment(1));
    cluster.roll_out().await;
    let foreign = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "ss", "uid": "some-uid" });
    let ours = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": web["metadata"]["uid"],
        "controller": false,
    });
    let set = name(&cluster.sets()[0]).to_owned();
    for (case, given, owners) in [
        ("another owner that does not manage it", foreign, 2),
        ("our reference with controller=false", ours, 1),
    ] {
        cluster.patch(SETS, &set, json!({ "metadata": { "ownerReferences": [given] } }));
        cluster.settle().await;
        let adopted = cluster.get(SETS, &set);
        assert_eq!(controller(&adopted).unwrap()["uid"], web["metadata"]["uid"], "{case}");
        assert_eq!(adopted["metadata"]["ownerReferences"].as_array().unwrap().len(), owners, "{case}");
        assert_eq!(cluster.list(SETS).len(), 1, "{case}: no additional ReplicaSet");
    }
}

/// `TestDeploymentScaleSubresource`.
#[tokio::test(start_paused = true)]
async fn deployment_scale_subresource_reads_and_sets_the_size() {
    let cluster = Cluster::new();
    cluster.create(DEPLOYMENTS, deployment(2));
    cluster.roll_out().await;
    let scale = || cluster.server.scale(DEPLOYMENTS, "default", "web").unwrap();
    assert_eq!((&scale()["spec"]["replicas"], &scale()["status"]["replicas"]), (&json!(2), &json!(2)));
    let patch = json!({ "spec": { "replicas": 4 } });
    cluster.try_patch(DEPLOYMENTS, "web", Some(Subresource::Scale), patch).unwrap();
    cluster.roll_out().await;
    cluster.assert_complete();
    assert_eq!((&scale()["spec"]["replicas"], &scale()["status"]["replicas"]), (&json!(4), &json!(4)));
}

/// `TestReplicaSetOrphaningAndAdoptionWhenLabelsChange`.
#[tokio::test(start_paused = true)]
async fn replica_set_orphaning_and_adoption_when_labels_change_and_change_back() {
    let cluster = Cluster::new();
    let web = cluster.create(DEPLOYMENTS, deployment(1));
    cluster.roll_out().await;
    let set = name(&cluster.sets()[0]).to_owned();
    cluster.patch(SETS, &set, json!({ "metadata": { "labels": { "name": null, "new": "label" } } }));
    cluster.settle().await;
    assert_eq!(controller(&cluster.get(SETS, &set)), None);
    // The released ReplicaSet still has the name that the template hashes to.
    assert_eq!(count(&cluster.web(), "collisionCount"), 1);
    assert_eq!(cluster.sets().len(), 1);
    assert_ne!(name(&cluster.sets()[0]), set);

    cluster.patch(SETS, &set, json!({ "metadata": { "labels": { "name": "test", "new": null } } }));
    cluster.roll_out().await;
    assert_eq!(controller(&cluster.get(SETS, &set)).unwrap()["uid"], web["metadata"]["uid"]);
    assert_eq!(cluster.sets().len(), 2);
}

/// `TestTerminatingReplicasDeploymentStatus`, with the feature gate enabled (default).
#[tokio::test(start_paused = true)]
async fn terminating_replicas_deployment_status_sums_all_replica_sets() {
    let cluster = Cluster::new();
    cluster.create(DEPLOYMENTS, deployment(6));
    cluster.roll_out().await;
    let terminating = |cluster: &Cluster| cluster.web()["status"]["terminatingReplicas"].clone();
    assert_eq!(terminating(&cluster), 0);
    for pod in &cluster.list(PODS) {
        cluster.patch(PODS, name(pod), json!({ "metadata": { "finalizers": ["fake/finalizer"] } }));
    }
    cluster.change(json!({ "spec": { "replicas": 4 } }));
    cluster.settle().await;
    assert_eq!(terminating(&cluster), 2);
    cluster.set_image("new-image");
    cluster.roll_out().await;
    assert_eq!(terminating(&cluster), 6, "including the pods of the rollout");
    for pod in cluster.list(PODS) {
        cluster.patch(PODS, name(&pod), json!({ "metadata": { "finalizers": null } }));
    }
    cluster.settle().await;
    assert_eq!(terminating(&cluster), 0);
    cluster.assert_complete();
}

/// `TestTerminatingReplicasDeploymentStatus`: gate disabled, and changed at runtime. Here, a restart changes it.
#[tokio::test(start_paused = true)]
async fn terminating_replicas_deployment_status_follows_the_feature_gate() {
    let mut cluster = Cluster::with_gates(WITHOUT_TERMINATING_REPLICAS);
    cluster.create(
        DEPLOYMENTS,
        changed(deployment(6), json!({ "spec": { "strategy": { "type": "Recreate" } } })),
    );
    cluster.roll_out().await;
    for pod in &cluster.list(PODS) {
        cluster.patch(PODS, name(pod), json!({ "metadata": { "finalizers": ["fake/finalizer"] } }));
    }
    assert_eq!((count(&cluster.web(), "replicas"), terminating(&cluster)), (6, None));
    let steps =
        [(4, WITHOUT_TERMINATING_REPLICAS, None), (3, "", Some(3)), (2, WITHOUT_TERMINATING_REPLICAS, None)];
    for (replicas, gates, expected) in steps {
        cluster.run_with(gates);
        cluster.change(json!({ "spec": { "replicas": replicas } }));
        cluster.settle().await;
        let web = cluster.web();
        let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
        assert_eq!(counts.map(|field| count(&web, field)), [replicas; 4], "{gates}");
        assert_eq!(terminating(&cluster), expected, "{gates}");
    }
}

/// `TestRecreateDeploymentForPodReplacement`, with the feature gate enabled and with the gate disabled.
#[tokio::test(start_paused = true)]
async fn recreate_deployment_for_pod_replacement_waits_for_terminating_pods() {
    for (gates, counted) in [("", true), (WITHOUT_TERMINATING_REPLICAS, false)] {
        let cluster = Cluster::with_gates(gates);
        let expected = |count: i64| counted.then_some(count);
        cluster.create(
            DEPLOYMENTS,
            changed(deployment(10), json!({ "spec": { "strategy": { "type": "Recreate" } } })),
        );
        cluster.roll_out().await;
        for pod in &cluster.list(PODS) {
            cluster.patch(PODS, name(pod), json!({ "metadata": { "finalizers": ["fake/finalizer"] } }));
        }
        cluster.set_image("new-image");
        cluster.settle().await;
        assert_eq!(cluster.sizes(), [0], "no new ReplicaSet while pods are terminating: {gates}");
        assert_eq!((count(&cluster.web(), "replicas"), terminating(&cluster)), (0, expected(10)), "{gates}");

        for pod in cluster.list(PODS) {
            cluster.patch(PODS, name(&pod), json!({ "metadata": { "finalizers": null } }));
        }
        cluster.roll_out().await;
        cluster.assert_complete();
        assert_eq!(cluster.sizes(), [0, 10], "{gates}");
        assert_eq!(terminating(&cluster), expected(0), "{gates}");
    }
}

/// `TestRollingUpdateAndProportionalScalingForDeploymentPodReplacement`, with the feature gate enabled and with the
/// gate disabled.
#[tokio::test(start_paused = true)]
async fn rolling_update_and_proportional_scaling_for_deployment_pod_replacement_do_not_wait_for_terminating_pods()
 {
    for (gates, terminating_replicas) in [("", Some(100)), (WITHOUT_TERMINATING_REPLICAS, None)] {
        let cluster = Cluster::with_gates(gates);
        roll_and_scale_in_flight(&cluster).await;
        // Finalizers keep the pods of the old ReplicaSet in termination.
        assert_eq!(terminating(&cluster), terminating_replicas, "{gates}");
    }
}

async fn roll_and_scale_in_flight(cluster: &Cluster) {
    cluster.create(DEPLOYMENTS, changed(deployment(100), rolling(20, 0)));
    cluster.roll_out().await;
    cluster.assert_complete();
    for pod in &cluster.list(PODS) {
        cluster.patch(PODS, name(pod), json!({ "metadata": { "finalizers": ["fake/finalizer"] } }));
    }
    cluster.set_image("new-image");
    cluster.settle().await;
    assert_eq!(cluster.sizes(), [100, 20]);

    cluster.change(json!({ "spec": { "replicas": 120 } }));
    cluster.settle().await;
    assert_eq!(cluster.sizes(), [117, 23]);
    for set in cluster.sets() {
        assert_eq!((annotation(&set, DESIRED), annotation(&set, MAX)), (Some("120"), Some("140")));
    }

    cluster.roll_out().await;
    cluster.assert_complete();
    assert_eq!(cluster.sizes(), [0, 120]);
}
