//! Scenarios in the embedded cluster that make each cause happen, and the diagnosis of each.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

mod docs;
mod evidence;
mod notes;
mod property;
mod rules;
mod workloads;
mod world;

use std::time::Duration;

use kcm_apiserver::Resource;
use kcm_rollouts::{
    Cause, Diagnosis, Effect, Known, State, Unreadable,
    render::{Style, WIDTH, text},
};
use serde_json::{Value, json};

use self::world::{NAME, NAMESPACE, World, deployment, simulate};

pub(crate) const READY: Duration = Duration::from_secs(5);
/// Ready delay with which the simulated kubelet reports nothing in a test.
const SILENT: &str = "24h";

/// Asserts the diagnosis, with a part of the explanation of the cause.
fn check(world: &World, state: State, cause: Cause, message: &str) -> Diagnosis {
    let diagnosis = world.diagnose();
    let shown = text(&diagnosis, world.now(), Style::Plain);
    assert_eq!(outcome(&diagnosis), (state, Some(cause)), "{shown}");
    assert!(
        diagnosis.findings.iter().any(|found| found.cause == cause && found.message.contains(message)),
        "{shown}"
    );
    if diagnosis.state == State::Stuck {
        assert_eq!(world.cached_cause(), cause.in_caches(), "in the caches of a manager");
    }
    for line in shown.lines().filter(|line| !line.starts_with("  kubectl")) {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    diagnosis
}

/// Change of the template: another image, and annotations for the simulated kubelet.
pub(crate) fn template(image: &str, annotations: &Value) -> Value {
    json!({ "spec": { "template": {
        "metadata": { "annotations": annotations },
        "spec": { "containers": [{ "name": "app", "image": image }] },
    } } })
}

pub(crate) fn outcome(diagnosis: &Diagnosis) -> (State, Option<Cause>) {
    (diagnosis.state, diagnosis.cause)
}

/// Rolls out a number of replicas.
pub(crate) async fn rolled_out(replicas: i64) -> World {
    let world = World::new(READY);
    world.roll_out(deployment(replicas, "app:1")).await;
    world
}

/// Rolls out 4 replicas, and then the image `app:2` with the annotations.
pub(crate) async fn changed(annotations: &Value) -> World {
    let world = rolled_out(4).await;
    world.change(template("app:2", annotations));
    world
}

/// A rollout in which the simulated kubelet reports nothing about new pods.
pub(crate) async fn silent() -> World {
    silent_with("hostNetwork", json!(false)).await
}

/// As [`silent`], with a field in the spec of the new pods.
async fn silent_with(field: &str, value: Value) -> World {
    let world = rolled_out(4).await;
    let mut change = template("app:2", &json!({ "kube-sandbox/ready-delay": SILENT }));
    change["spec"]["template"]["spec"][field] = value;
    world.change(change);
    world.advance(5).await;
    world
}

pub(crate) fn stuck(world: &World, cause: Cause, message: &str) -> Diagnosis {
    check(world, State::Stuck, cause, message)
}

pub(crate) fn progressing(world: &World, cause: Cause, message: &str) -> Diagnosis {
    check(world, State::Progressing, cause, message)
}

pub(crate) fn waiting(reason: &str, message: &str) -> Value {
    json!({
        "phase": "Pending",
        "containerStatuses": [{
            "name": "app", "image": "app:2", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": reason, "message": message } },
        }],
    })
}

#[test]
fn complete() {
    simulate(async {
        let world = rolled_out(2).await;
        let diagnosis = world.diagnose();
        assert_eq!(outcome(&diagnosis), (State::Complete, None));
        assert_eq!(diagnosis.summary, "Complete: 2 of 2 pods updated, 2 available.");
    });
}

#[test]
fn pod_starting() {
    simulate(async {
        let world = changed(&json!({})).await;
        world.advance(2).await;
        let diagnosis = progressing(&world, Cause::PodStarting, "Starting");
        assert!(diagnosis.expected.is_some());
    });
}

#[test]
fn image_pull() {
    simulate(async {
        let world = rolled_out(4).await;
        world.change(template("app:broken", &json!({})));
        world.advance(60).await;
        let diagnosis =
            stuck(&world, Cause::ImagePull, "Image app:broken cannot be pulled: Failed to pull image");
        let bounds = diagnosis.bounds.unwrap();
        assert!(bounds.surge_used_up && bounds.no_availability_to_spare, "{bounds:?}");
        assert!(diagnosis.commands.iter().any(|command| command.command.contains("rollout undo")));
    });
}

#[test]
fn crash_loop() {
    simulate(async {
        let annotations = json!({ "kube-sandbox/ready": "never", "kube-sandbox/crash-after": "3s" });
        let world = changed(&annotations).await;
        world.advance(60).await;
        stuck(&world, Cause::CrashLoop, "exit code 1");
    });
}

#[test]
fn pods_that_crash_after_they_were_available_do_not_hold_the_rollout() {
    simulate(async {
        let world = changed(&json!({ "kube-sandbox/crash-after": "20s" })).await;
        for _ in 0..15 {
            world.advance(10).await;
            assert_ne!(world.diagnose().state, State::Stuck, "{:#?}", world.diagnose());
        }
    });
}

#[test]
fn probe_failing() {
    simulate(async {
        let world = changed(&json!({ "kube-sandbox/ready": "never" })).await;
        world.advance(30).await;
        progressing(&world, Cause::PodStarting, "Running, not ready yet");
        world.event("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503");
        world.advance(60).await;
        stuck(&world, Cause::ProbeFailing, "statuscode: 503");
    });
}

#[test]
fn unschedulable() {
    simulate(async {
        let world = rolled_out(4).await;
        world.patch_nodes(None, &json!({ "spec": { "unschedulable": true } }));
        world.change(template("app:2", &json!({})));
        world.advance(30).await;
        stuck(&world, Cause::Unschedulable, "0/2 nodes are available: 2 node(s) were unschedulable.");
    });
}

#[test]
fn scheduling_gated() {
    simulate(async {
        let world = rolled_out(4).await;
        world.change(json!({ "spec": { "template": { "spec": {
            "schedulingGates": [{ "name": "example.com/quota" }],
        } } } }));
        world.advance(30).await;
        stuck(&world, Cause::SchedulingGated, "example.com/quota");
    });
}

#[test]
fn scheduler_not_running() {
    simulate(async {
        let world = rolled_out(1).await;
        let mut snapshot = world.snapshot();
        world.change(template("app:2", &json!({ "kube-sandbox/ready-delay": SILENT })));
        world.advance(90).await;
        // The simulated scheduler binds all pods, so the binding is removed from what was read.
        snapshot.replica_sets = Known::Read(world.list(Resource::REPLICA_SETS));
        let mut pods = world.list(Resource::PODS);
        for pod in &mut pods {
            if pod["spec"]["containers"][0]["image"] == "app:2" {
                pod["spec"].as_object_mut().unwrap().remove("nodeName");
                pod["status"] = json!({ "phase": "Pending" });
            }
        }
        snapshot.pods = Known::Read(pods);
        let diagnosis = world.diagnose_as(&snapshot, &world.deployment());
        assert_eq!(outcome(&diagnosis), (State::Stuck, Some(Cause::SchedulerNotRunning)));
    });
}

#[test]
fn node_lost() {
    simulate(async {
        let world = silent().await;
        let status = json!({ "status": { "conditions": [{
            "type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status.",
        }] } });
        world.patch_nodes(Some(kcm_apiserver::Subresource::Status), &status);
        world.advance(5).await;
        stuck(&world, Cause::NodeLost, "Kubelet stopped posting node status.");
    });
}

#[test]
fn reported_statuses() {
    let mut killed = waiting("CrashLoopBackOff", "");
    killed["containerStatuses"][0]["restartCount"] = json!(3);
    killed["containerStatuses"][0]["lastState"] =
        json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled", "message": "no memory" } });
    let config = waiting("CreateContainerConfigError", "configmap \"settings\" not found");
    let cases = [
        (config, Cause::ContainerConfig, "configmap \"settings\" not found"),
        (killed, Cause::CrashLoop, "exit code 137 (OOMKilled); last message: no memory. 3 restarts."),
    ];
    for (status, cause, part) in cases {
        simulate(async {
            let world = silent().await;
            world.report(&status);
            stuck(&world, cause, part);
        });
    }
}

#[test]
fn volume_mount() {
    simulate(async {
        let world = silent().await;
        world.report(&waiting("ContainerCreating", ""));
        world.event("FailedMount", "MountVolume.SetUp failed for volume \"data\"");
        progressing(&world, Cause::VolumeMount, "volume \"data\"");
        world.advance(30).await;
        stuck(&world, Cause::VolumeMount, "volume \"data\"");
    });
}

#[test]
fn init_container() {
    simulate(async {
        let world = silent_with("initContainers", json!([{ "name": "migrate", "image": "app:2" }])).await;
        let init = |state: Value| {
            json!({
                "phase": "Pending",
                "initContainerStatuses": [{
                    "name": "migrate", "image": "app:2", "imageID": "", "ready": false, "restartCount": 2,
                    "state": state,
                    "lastState": { "terminated": { "exitCode": 2, "reason": "Error" } },
                }],
            })
        };
        world.report(&init(json!({ "waiting": { "reason": "CrashLoopBackOff" } })));
        stuck(&world, Cause::InitContainer, "Init container migrate: Container migrate crashes: exit code 2");
        world.report(&init(json!({ "waiting": null, "running": { "startedAt": "2026-01-15T00:00:00Z" } })));
        progressing(&world, Cause::InitContainer, "Init container migrate has not completed");
    });
}

#[test]
fn readiness_gate() {
    simulate(async {
        let world = silent_with("readinessGates", json!([{ "conditionType": "example.com/lb" }])).await;
        world.report(&json!({
            "phase": "Running",
            "conditions": [
                { "type": "ContainersReady", "status": "True" },
                { "type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady" },
            ],
        }));
        stuck(&world, Cause::ReadinessGate, "Readiness gate example.com/lb is not true");
    });
}

#[test]
fn min_ready_seconds() {
    simulate(async {
        let world = rolled_out(4).await;
        let mut change = template("app:2", &json!({}));
        change["spec"]["minReadySeconds"] = json!(30);
        world.change(change);
        world.advance(20).await;
        let diagnosis = progressing(&world, Cause::MinReadySeconds, "minReadySeconds (30s)");
        assert!(diagnosis.summary.starts_with("Waiting because"), "{}", diagnosis.summary);
        assert!(diagnosis.expected.is_some());
    });
}

/// A Recreate rollout with terminating old pods.
async fn recreated(metadata: &Value, grace: i64) -> World {
    let world = World::new(READY);
    let mut manifest = deployment(2, "app:1");
    manifest["spec"]["strategy"] = json!({ "type": "Recreate" });
    world.roll_out(manifest).await;
    for pod in world.new_pods() {
        let name = pod["metadata"]["name"].as_str().unwrap();
        world.patch(Resource::PODS, NAMESPACE, name, None, json!({ "metadata": metadata }));
    }
    let mut change = template("app:2", &json!({}));
    change["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = grace.into();
    world.change(change);
    world
}

#[test]
fn terminating_finalizer() {
    simulate(async {
        let world = recreated(&json!({ "finalizers": ["example.com/backup"] }), 30).await;
        world.advance(120).await;
        stuck(&world, Cause::TerminatingFinalizer, "held by finalizer example.com/backup");
    });
}

#[test]
fn terminating_grace_period() {
    simulate(async {
        let world = recreated(&json!({}), 30).await;
        world.advance(1).await;
        progressing(&world, Cause::TerminatingGracePeriod, "grace period 30s");
    });
}

#[test]
fn pod_failed() {
    simulate(async {
        let world = silent().await;
        world.report(
            &json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on memory." }),
        );
        world.advance(5).await;
        let diagnosis = world.diagnose();
        let failed = diagnosis.findings.iter().find(|finding| finding.cause == Cause::PodFailed).unwrap();
        assert!(failed.message.contains("Evicted. The node was low on memory."));
        assert_eq!((failed.effect, diagnosis.state), (Effect::Note, State::Progressing));
    });
}

#[test]
fn quota_exceeded() {
    simulate(async {
        let world = rolled_out(4).await;
        let quota = json!({ "metadata": { "name": "small" }, "spec": { "hard": { "pods": "4" } } });
        world.create(Resource::RESOURCE_QUOTAS, quota);
        change_with_surge(&world).await;
        stuck(&world, Cause::QuotaExceeded, "Quota small refuses new pods: requested: pods=1, used: pods=4");
    });
}

/// Rolls out the image `app:2` without unavailability, and waits.
async fn change_with_surge(world: &World) {
    world.change(json!({ "spec": { "strategy": { "rollingUpdate": { "maxUnavailable": 0 } } } }));
    world.change(template("app:2", &json!({})));
    world.advance(30).await;
}

#[test]
fn creates_refused() {
    let cases = [
        (
            "admission webhook \"images.example.com\" denied the request: unsigned image",
            Cause::AdmissionWebhook,
            "images.example.com denies new pods: unsigned image",
        ),
        (
            "pods \"web-1\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true",
            Cause::PodSecurity,
            "runAsNonRoot",
        ),
        (
            "pods \"web-1\" is forbidden: maximum cpu usage per Container is 100m, but limit is 2",
            Cause::LimitRange,
            "maximum cpu usage per Container is 100m",
        ),
        (
            "pods \"web-1\" is forbidden: error looking up service account shop/web: not found",
            Cause::CreateRefused,
            "service account shop/web",
        ),
    ];
    for (refusal, cause, part) in cases {
        simulate(async {
            let world = rolled_out(4).await;
            world.refuse_pods(refusal);
            change_with_surge(&world).await;
            stuck(&world, cause, part);
        });
    }
}

#[test]
fn paused() {
    simulate(async {
        let world = rolled_out(4).await;
        world.change(json!({ "spec": { "paused": true } }));
        world.advance(5).await;
        assert_eq!(world.diagnose().state, State::Complete);
        world.change(template("app:2", &json!({})));
        world.advance(5).await;
        let diagnosis = check(&world, State::Paused, Cause::Paused, "spec.paused");
        assert!(diagnosis.commands[0].command.ends_with("rollout resume deployment/web"));
    });
}

#[test]
fn controller_not_running() {
    simulate(async {
        let mut world = rolled_out(4).await;
        world.stop_controllers();
        world.change(template("app:2", &json!({})));
        let mut deployment = world.deployment();
        let changed = kcm_api::Time::new(world.now());
        deployment["metadata"]["managedFields"] = json!([{ "manager": "kubectl-set", "time": changed }]);
        world.advance(30).await;
        assert_eq!(world.diagnose_as(&world.snapshot(), &deployment).state, State::Progressing);
        world.advance(60).await;
        let diagnosis = world.diagnose_as(&world.snapshot(), &deployment);
        assert_eq!(outcome(&diagnosis), (State::Stuck, Some(Cause::ControllerNotRunning)));
        assert!(diagnosis.findings[0].message.contains("has observed generation 1 of 2"));
    });
}

#[test]
fn deadline_exceeded() {
    simulate(async {
        let world = rolled_out(4).await;
        world.change(template("app:broken", &json!({})));
        world.advance(300).await;
        let diagnosis = stuck(&world, Cause::ImagePull, "app:broken");
        assert!(diagnosis.summary.contains("will fail its deadline in 5m"), "{}", diagnosis.summary);
        world.advance(400).await;
        check(&world, State::DeadlineExceeded, Cause::ImagePull, "app:broken");
    });
}

#[test]
fn desired_replicas_annotation() {
    simulate(async {
        let mut world = rolled_out(4).await;
        world.stop_controllers();
        let mut snapshot = world.snapshot();
        let mut sets = world.list(Resource::REPLICA_SETS);
        sets[0]["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"] = json!("9");
        snapshot.replica_sets = Known::Read(sets);
        let mut deployment = world.deployment();
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
        deployment["status"]["updatedReplicas"] = json!(0);
        let diagnosis = world.diagnose_as(&snapshot, &deployment);
        assert_eq!(
            outcome(&diagnosis),
            (State::Stuck, Some(Cause::DesiredReplicasAnnotation)),
            "{diagnosis:#?}"
        );
    });
}

#[test]
fn deployment_deleted() {
    simulate(async {
        let world = World::new(READY);
        let mut manifest = deployment(2, "app:1");
        manifest["metadata"]["finalizers"] = json!(["example.com/backup"]);
        world.roll_out(manifest).await;
        let options = kcm_apiserver::DeleteOptions::default();
        world.server.delete(Resource::DEPLOYMENTS, NAMESPACE, NAME, &options).unwrap();
        world.advance(5).await;
        stuck(&world, Cause::DeploymentDeleted, "example.com/backup");
    });
}

/// Deployments that the embedded cluster does not store.
#[test]
fn changed_deployments() {
    let failed = json!([{
        "type": "Progressing", "status": "False", "reason": "ReplicaSetCreateError",
        "message": "Failed to create new replica set \"web-1\": exceeded quota",
    }]);
    let create_failed =
        vec![("/spec/template/spec/containers/0/image", json!("app:2")), ("/status/conditions", failed)];
    let cases = [
        // The API server rejects an empty selector; other versions of the API have stored some.
        (vec![("/spec/selector", json!({}))], Cause::EmptySelector),
        (create_failed, Cause::ReplicaSetCreateFailed),
    ];
    for (changes, cause) in cases {
        simulate(async {
            let mut world = rolled_out(1).await;
            world.stop_controllers();
            let mut deployment = world.deployment();
            for (path, value) in changes {
                *deployment.pointer_mut(path).unwrap() = value;
            }
            let diagnosis = world.diagnose_as(&world.snapshot(), &deployment);
            assert_eq!(outcome(&diagnosis), (State::Stuck, Some(cause)));
        });
    }
}

#[test]
fn bounds_that_round_to_zero() {
    simulate(async {
        let world = World::new(READY);
        let mut manifest = deployment(4, "app:1");
        manifest["spec"]["strategy"] =
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": "10%" } });
        world.roll_out(manifest).await;
        world.change(template("app:broken", &json!({})));
        world.advance(60).await;
        let bounds = stuck(&world, Cause::ImagePull, "app:broken").bounds.unwrap();
        assert!(bounds.both_zero && bounds.surge_used_up, "{bounds:?}");
    });
}

#[test]
fn unknown_if_pods_cannot_be_read() {
    simulate(async {
        let world = silent().await;
        let diagnose = || {
            let mut snapshot = world.snapshot();
            snapshot.pods = Known::Unread(Unreadable {
                resource: "pods".into(),
                reason: "pods is forbidden: User \"dev\" cannot list resource \"pods\"".into(),
                permission: Some("list pods in namespace shop".into()),
            });
            world.diagnose_as(&snapshot, &world.deployment())
        };
        let diagnosis = diagnose();
        assert_eq!(outcome(&diagnosis), (State::Unknown, Some(Cause::Unknown)));
        assert_eq!(diagnosis.state.exit_code(), 5);
        let shown = text(&diagnosis, world.now(), Style::Plain);
        for part in [
            "The reason why the rollout is not complete is unknown",
            "The cause is unknown without pods.",
            "- not permitted to list pods in namespace shop",
            "kubectl -n shop create rolebinding rollouts-view --clusterrole=view --user=dev",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
    });
}
