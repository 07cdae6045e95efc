//! Scenarios in the embedded cluster that make each cause happen, and the diagnosis of each.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

mod docs;
mod evidence;
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

/// Expected diagnosis.
struct Expected {
    state: State,
    cause: Cause,
    /// Part of the explanation of the cause.
    message: &'static str,
}

fn check(world: &World, expected: &Expected) -> Diagnosis {
    let diagnosis = world.diagnose();
    let shown = text(&diagnosis, world.now(), Style::Plain);
    assert_eq!((diagnosis.state, diagnosis.cause), (expected.state, Some(expected.cause)), "{shown}");
    let messages = diagnosis.findings.iter().filter(|finding| finding.cause == expected.cause);
    assert!(messages.clone().any(|finding| finding.message.contains(expected.message)), "{shown}");
    if diagnosis.state == State::Stuck {
        assert_eq!(world.cached_cause(), expected.cause.in_caches(), "in the caches of a manager");
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

/// Rolls out 4 replicas, and then the image `app:2` with the annotations.
pub(crate) async fn changed(annotations: &Value) -> World {
    let world = World::new(READY);
    world.roll_out(deployment(4, "app:1")).await;
    world.change(template("app:2", annotations));
    world
}

/// A rollout in which the simulated kubelet reports nothing about new pods.
pub(crate) async fn silent() -> World {
    let world = changed(&json!({ "kube-sandbox/ready-delay": SILENT })).await;
    world.advance(5).await;
    world
}

pub(crate) fn stuck(world: &World, cause: Cause, message: &'static str) -> Diagnosis {
    check(world, &Expected { state: State::Stuck, cause, message })
}

pub(crate) fn progressing(world: &World, cause: Cause, message: &'static str) -> Diagnosis {
    check(world, &Expected { state: State::Progressing, cause, message })
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
        let world = World::new(READY);
        world.roll_out(deployment(2, "app:1")).await;
        let diagnosis = world.diagnose();
        assert_eq!((diagnosis.state, diagnosis.cause), (State::Complete, None));
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
        let world = World::new(READY);
        world.roll_out(deployment(4, "app:1")).await;
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
fn crash_loop_reports_the_termination_message() {
    simulate(async {
        let world = silent().await;
        world.report(&json!({
            "phase": "Running",
            "containerStatuses": [{
                "name": "app", "image": "app:2", "imageID": "", "ready": false, "restartCount": 3,
                "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                "lastState": { "terminated": { "exitCode": 137, "reason": "OOMKilled", "message": "no memory" } },
            }],
        }));
        stuck(&world, Cause::CrashLoop, "exit code 137 (OOMKilled); last message: no memory. 3 restarts.");
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
        let world = World::new(READY);
        world.roll_out(deployment(4, "app:1")).await;
        for node in world.list(Resource::NODES) {
            let name = node["metadata"]["name"].as_str().unwrap();
            world.patch(Resource::NODES, "", name, None, json!({ "spec": { "unschedulable": true } }));
        }
        world.change(template("app:2", &json!({})));
        world.advance(30).await;
        stuck(&world, Cause::Unschedulable, "0/2 nodes are available: 2 node(s) were unschedulable.");
    });
}

#[test]
fn scheduling_gated() {
    simulate(async {
        let world = World::new(READY);
        world.roll_out(deployment(4, "app:1")).await;
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
        let world = World::new(READY);
        world.roll_out(deployment(1, "app:1")).await;
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
        let diagnosis = kcm_rollouts::diagnose(&snapshot, &world.deployment(), world.now()).unwrap();
        assert_eq!((diagnosis.state, diagnosis.cause), (State::Stuck, Some(Cause::SchedulerNotRunning)));
    });
}

#[test]
fn node_lost() {
    simulate(async {
        let world = silent().await;
        for node in world.list(Resource::NODES) {
            let name = node["metadata"]["name"].as_str().unwrap();
            let status = json!({ "status": { "conditions": [{
                "type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status.",
            }] } });
            world.patch(Resource::NODES, "", name, Some(kcm_apiserver::Subresource::Status), status);
        }
        world.advance(5).await;
        stuck(&world, Cause::NodeLost, "Kubelet stopped posting node status.");
    });
}

#[test]
fn container_config() {
    simulate(async {
        let world = silent().await;
        world.report(&waiting("CreateContainerConfigError", "configmap \"settings\" not found"));
        stuck(&world, Cause::ContainerConfig, "configmap \"settings\" not found");
    });
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
        let world = World::new(READY);
        world.roll_out(deployment(4, "app:1")).await;
        let mut change = template("app:2", &json!({ "kube-sandbox/ready-delay": SILENT }));
        change["spec"]["template"]["spec"]["initContainers"] =
            json!([{ "name": "migrate", "image": "app:2" }]);
        world.change(change);
        world.advance(5).await;
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
        let world = World::new(READY);
        world.roll_out(deployment(4, "app:1")).await;
        let mut change = template("app:2", &json!({ "kube-sandbox/ready-delay": SILENT }));
        change["spec"]["template"]["spec"]["readinessGates"] = json!([{ "conditionType": "example.com/lb" }]);
        world.change(change);
        world.advance(5).await;
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
        let world = World::new(READY);
        world.roll_out(deployment(4, "app:1")).await;
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
        let world = World::new(READY);
        world.roll_out(deployment(4, "app:1")).await;
        let quota = json!({ "metadata": { "name": "small" }, "spec": { "hard": { "pods": "4" } } });
        world.create(Resource::RESOURCE_QUOTAS, quota);
        world.change(json!({ "spec": { "strategy": { "rollingUpdate": { "maxUnavailable": 0 } } } }));
        world.change(template("app:2", &json!({})));
        world.advance(30).await;
        stuck(&world, Cause::QuotaExceeded, "Quota small refuses new pods: requested: pods=1, used: pods=4");
    });
}

struct Refusal {
    message: &'static str,
    cause: Cause,
    part: &'static str,
}

#[test]
fn creates_refused() {
    let cases = [
        Refusal {
            message: "admission webhook \"images.example.com\" denied the request: unsigned image",
            cause: Cause::AdmissionWebhook,
            part: "images.example.com denies new pods: unsigned image",
        },
        Refusal {
            message: "pods \"web-1\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true",
            cause: Cause::PodSecurity,
            part: "runAsNonRoot",
        },
        Refusal {
            message: "pods \"web-1\" is forbidden: maximum cpu usage per Container is 100m, but limit is 2",
            cause: Cause::LimitRange,
            part: "maximum cpu usage per Container is 100m",
        },
        Refusal {
            message: "pods \"web-1\" is forbidden: error looking up service account shop/web: not found",
            cause: Cause::CreateRefused,
            part: "service account shop/web",
        },
    ];
    for case in cases {
        simulate(async {
            let world = World::new(READY);
            world.roll_out(deployment(4, "app:1")).await;
            world.refuse_pods(case.message);
            world.change(json!({ "spec": { "strategy": { "rollingUpdate": { "maxUnavailable": 0 } } } }));
            world.change(template("app:2", &json!({})));
            world.advance(30).await;
            stuck(&world, case.cause, case.part);
        });
    }
}

#[test]
fn paused() {
    simulate(async {
        let world = World::new(READY);
        world.roll_out(deployment(4, "app:1")).await;
        world.change(json!({ "spec": { "paused": true } }));
        world.advance(5).await;
        assert_eq!(world.diagnose().state, State::Complete);
        world.change(template("app:2", &json!({})));
        world.advance(5).await;
        let diagnosis =
            check(&world, &Expected { state: State::Paused, cause: Cause::Paused, message: "spec.paused" });
        assert!(diagnosis.commands[0].command.ends_with("rollout resume deployment/web"));
    });
}

#[test]
fn controller_not_running() {
    simulate(async {
        let mut world = World::new(READY);
        world.roll_out(deployment(4, "app:1")).await;
        world.stop_controllers();
        world.change(template("app:2", &json!({})));
        let mut deployment = world.deployment();
        let changed = kcm_api::Time::new(world.now());
        deployment["metadata"]["managedFields"] = json!([{ "manager": "kubectl-set", "time": changed }]);
        world.advance(30).await;
        let diagnose =
            |deployment| kcm_rollouts::diagnose(&world.snapshot(), deployment, world.now()).unwrap();
        assert_eq!(diagnose(&deployment).state, State::Progressing);
        world.advance(60).await;
        let diagnosis = diagnose(&deployment);
        assert_eq!((diagnosis.state, diagnosis.cause), (State::Stuck, Some(Cause::ControllerNotRunning)));
        assert!(diagnosis.findings[0].message.contains("has observed generation 1 of 2"));
    });
}

#[test]
fn controller_stopped_during_the_rollout() {
    simulate(async {
        let mut world = changed(&json!({})).await;
        world.advance(2).await;
        world.stop_controllers();
        world.advance(120).await;
        let diagnosis = world.diagnose();
        assert_eq!(diagnosis.state, State::Stuck, "{diagnosis:#?}");
        let causes = [Cause::ControllerNotRunning, Cause::ReplicaSetControllerNotRunning];
        assert!(causes.contains(&diagnosis.cause.unwrap()), "{diagnosis:#?}");
    });
}

#[test]
fn deadline_exceeded() {
    simulate(async {
        let world = World::new(READY);
        world.roll_out(deployment(4, "app:1")).await;
        world.change(template("app:broken", &json!({})));
        world.advance(300).await;
        let diagnosis = stuck(&world, Cause::ImagePull, "app:broken");
        assert!(diagnosis.summary.contains("will fail its deadline in 5m"), "{}", diagnosis.summary);
        world.advance(400).await;
        let expected =
            Expected { state: State::DeadlineExceeded, cause: Cause::ImagePull, message: "app:broken" };
        check(&world, &expected);
    });
}

#[test]
fn desired_replicas_annotation() {
    simulate(async {
        let mut world = World::new(READY);
        world.roll_out(deployment(4, "app:1")).await;
        world.stop_controllers();
        let mut snapshot = world.snapshot();
        let mut sets = world.list(Resource::REPLICA_SETS);
        sets[0]["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"] = json!("9");
        snapshot.replica_sets = Known::Read(sets);
        let mut deployment = world.deployment();
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
        deployment["status"]["updatedReplicas"] = json!(0);
        let diagnosis = kcm_rollouts::diagnose(&snapshot, &deployment, world.now()).unwrap();
        let found = (diagnosis.state, diagnosis.cause);
        assert_eq!(found, (State::Stuck, Some(Cause::DesiredReplicasAnnotation)), "{diagnosis:#?}");
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

#[test]
fn replica_set_create_failed() {
    simulate(async {
        let mut world = World::new(READY);
        world.roll_out(deployment(1, "app:1")).await;
        world.stop_controllers();
        let mut deployment = world.deployment();
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
        deployment["status"]["conditions"] = json!([{
            "type": "Progressing", "status": "False", "reason": "ReplicaSetCreateError",
            "message": "Failed to create new replica set \"web-1\": exceeded quota",
        }]);
        let diagnosis = kcm_rollouts::diagnose(&world.snapshot(), &deployment, world.now()).unwrap();
        assert_eq!((diagnosis.state, diagnosis.cause), (State::Stuck, Some(Cause::ReplicaSetCreateFailed)));
    });
}

#[test]
fn empty_selector() {
    simulate(async {
        let world = World::new(READY);
        world.roll_out(deployment(1, "app:1")).await;
        // The API server rejects an empty selector; other versions of the API have stored some.
        let mut deployment = world.deployment();
        deployment["spec"]["selector"] = json!({});
        let diagnosis = kcm_rollouts::diagnose(&world.snapshot(), &deployment, world.now()).unwrap();
        assert_eq!((diagnosis.state, diagnosis.cause), (State::Stuck, Some(Cause::EmptySelector)));
    });
}

#[test]
fn selector_overlap_and_autoscaler_are_notes() {
    simulate(async {
        let world = World::new(READY);
        world.roll_out(deployment(2, "app:1")).await;
        let mut other = deployment(1, "app:3");
        other["metadata"]["name"] = json!("other");
        world.create(Resource::DEPLOYMENTS, other);
        world.advance(60).await;
        let mut snapshot = world.snapshot();
        snapshot.autoscalers = Known::Read(vec![json!({
            "metadata": { "name": "web-hpa", "namespace": NAMESPACE },
            "spec": { "scaleTargetRef": { "kind": "Deployment", "name": NAME }, "minReplicas": 2, "maxReplicas": 9 },
        })]);
        let diagnosis = kcm_rollouts::diagnose(&snapshot, &world.deployment(), world.now()).unwrap();
        let notes: Vec<&str> = diagnosis.findings.iter().map(|finding| &*finding.message).collect();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("Deployment other"), "{notes:?}");
        assert!(notes[1].contains("web-hpa writes spec.replicas (2 to 9)"), "{notes:?}");
    });
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
fn writer_of_replicas_from_managed_fields() {
    simulate(async {
        let world = World::new(READY);
        world.roll_out(deployment(2, "app:1")).await;
        let note = |manager: &str, subresource: &str| {
            let mut object = world.deployment();
            // As kube-apiserver records a write of the scale.
            object["metadata"]["managedFields"] = json!([{
                "manager": manager, "operation": "Update", "subresource": subresource, "apiVersion": "apps/v1",
                "time": "2026-01-15T00:00:30Z", "fieldsType": "FieldsV1",
                "fieldsV1": { "f:spec": { "f:replicas": {} } },
            }]);
            let diagnosis = kcm_rollouts::diagnose(&world.snapshot(), &object, world.now()).unwrap();
            diagnosis.findings.into_iter().find(|finding| finding.cause == Cause::ReplicasOverwritten)
        };
        assert_eq!(note("kubectl-scale", "scale"), None, "a person scales");
        assert_eq!(note("argocd-controller", ""), None, "a person changes the manifest");
        let note = note("keda-operator", "scale").unwrap();
        assert_eq!((note.effect, note.object.as_deref()), (Effect::Note, Some("keda-operator")));
        assert_eq!(note.message, "keda-operator writes spec.replicas through the scale subresource.");
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
            kcm_rollouts::diagnose(&snapshot, &world.deployment(), world.now()).unwrap()
        };
        let diagnosis = diagnose();
        assert_eq!((diagnosis.state, diagnosis.cause), (State::Unknown, Some(Cause::Unknown)));
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

#[test]
fn disruption_budget_is_a_note_until_the_rollout_is_complete() {
    simulate(async {
        let world = World::new(READY);
        world.roll_out(deployment(4, "app:1")).await;
        let budget = json!({
            "metadata": { "name": "web" },
            "spec": { "minAvailable": 3, "selector": { "matchLabels": { "app": "web" } } },
        });
        world.create(Resource::POD_DISRUPTION_BUDGETS, budget);
        world.advance(5).await;
        let note = || {
            let findings = world.diagnose().findings;
            findings.into_iter().find(|finding| finding.cause == Cause::DisruptionBudget)
        };
        assert_eq!(note(), None, "one eviction is allowed");
        world.change(template("app:broken", &json!({})));
        world.advance(60).await;
        let diagnosis = stuck(&world, Cause::ImagePull, "cannot be pulled");
        assert!(
            diagnosis.commands.iter().any(|one| one.command.contains("describe poddisruptionbudget web"))
        );
        let note = note().unwrap();
        assert_eq!(
            (note.effect, &*note.message),
            (
                Effect::Note,
                "PodDisruptionBudget web refuses evictions, such as those of kubectl drain: 3 healthy, 3 required."
            )
        );
    });
}
