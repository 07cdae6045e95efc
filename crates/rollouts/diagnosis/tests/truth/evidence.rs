//! Evidence that changes an explanation: later events, known times, repetition, and the last revision.

use jiff::SignedDuration;
use kcm_apiserver::Resource;
use kcm_rollouts::{Cause, Effect, Known, Snapshot, State};
use serde_json::{Value, json};

use crate::{
    changed, outcome, progressing, rolled_out,
    rules::{commands, failing, found, message, read},
    silent, stuck, template, waiting,
    world::{World, simulate},
};

fn ago(world: &World, seconds: i64) -> Value {
    json!(kcm_api::Time::new(world.now().saturating_sub(SignedDuration::from_secs(seconds)).unwrap()))
}

/// ReplicaSet of a pod with this image.
fn set_of(world: &World, image: &str) -> Value {
    let sets = world.list(Resource::REPLICA_SETS);
    let has_image = |set: &Value| set["spec"]["template"]["spec"]["containers"][0]["image"] == *image;
    sets.into_iter().find(has_image).unwrap()
}

fn set_in<'a>(snapshot: &'a mut Snapshot, set: &Value) -> &'a mut Value {
    let mut sets = read(&mut snapshot.replica_sets).iter_mut();
    sets.find(|one| one["metadata"]["uid"] == set["metadata"]["uid"]).unwrap()
}

#[test]
fn newer_event_replaces_the_message_of_the_condition() {
    simulate(async {
        let world = changed(&json!({ "kube-sandbox/ready": "never" })).await;
        world.advance(5).await;
        let quota = "pods \"web-1\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=4, limited: pods=4";
        let webhook = "admission webhook \"images.example.com\" denied the request: unsigned image";
        let mut snapshot = failing(&world, "FailedCreate", quota);
        let set = set_of(&world, "app:2");
        let event = |text: &str, seconds: i64| {
            json!({
                "type": "Warning", "reason": "FailedCreate", "message": format!("Error creating: {text}"),
                "involvedObject": { "uid": set["metadata"]["uid"] }, "lastTimestamp": ago(&world, seconds),
            })
        };
        *read(&mut snapshot.quotas) = vec![json!({
            "metadata": { "name": "small" }, "status": { "hard": { "pods": "4" }, "used": { "pods": "4" } },
        })];
        *read(&mut snapshot.events) = vec![event(quota, 41), event(quota, 40)];
        let before = found(&world, &snapshot);
        message(&before, Cause::QuotaExceeded);
        assert!(before.findings.iter().all(|one| one.cause != Cause::WarningEvent), "{before:#?}");
        read(&mut snapshot.events).push(event(webhook, 10));
        let diagnosis = found(&world, &snapshot);
        let text = message(&diagnosis, Cause::AdmissionWebhook);
        assert_eq!(text, "Admission webhook images.example.com denies new pods: unsigned image.");
        assert!(diagnosis.findings.iter().all(|one| one.cause != Cause::QuotaExceeded), "{diagnosis:#?}");
        // The event of the other cause is not hidden.
        let notes = diagnosis.findings.iter().filter(|one| one.cause == Cause::WarningEvent);
        assert_eq!(notes.clone().count(), 1, "{diagnosis:#?}");
        assert!(message(&diagnosis, Cause::WarningEvent).contains("exceeded quota"), "{diagnosis:#?}");
    });
}

#[test]
fn slow_starters_have_twice_their_usual_time() {
    simulate(async {
        let world = changed(&json!({ "kube-sandbox/ready": "never" })).await;
        world.advance(150).await;
        stuck(&world, Cause::ProbeFailing, "for more than 1m");
        let mut snapshot = world.snapshot();
        let after = |usual: i64, snapshot: &mut Snapshot| {
            for pod in read(&mut snapshot.pods) {
                let created: kcm_clock::Timestamp =
                    pod["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
                let ready = created.saturating_add(SignedDuration::from_secs(usual)).unwrap();
                for condition in pod["status"]["conditions"].as_array_mut().unwrap() {
                    if condition["type"] == "Ready" && condition["status"] == "True" {
                        condition["lastTransitionTime"] = json!(kcm_api::Time::new(ready));
                    }
                }
            }
        };
        after(100, &mut snapshot);
        assert_eq!(outcome(&found(&world, &snapshot)), (State::Progressing, Some(Cause::PodStarting)));
        after(60, &mut snapshot);
        assert_eq!(outcome(&found(&world, &snapshot)), (State::Stuck, Some(Cause::ProbeFailing)));
    });
}

#[test]
fn first_failure_of_an_image_can_be_transient() {
    simulate(async {
        let world = silent().await;
        let text = "Failed to pull image \"app:2\": dial tcp: i/o timeout";
        world.report(&waiting("ErrImagePull", text));
        world.event("Failed", text);
        progressing(&world, Cause::ImagePull, "i/o timeout");
        world.advance(30).await;
        stuck(&world, Cause::ImagePull, "i/o timeout");
        let mut snapshot = world.snapshot();
        // A further pod, whose first attempt has failed, is no reason to wait.
        read(&mut snapshot.events)[0]["lastTimestamp"] = ago(&world, 1);
        let diagnosis = found(&world, &snapshot);
        assert_eq!(outcome(&diagnosis), (State::Stuck, Some(Cause::ImagePull)), "{diagnosis:#?}");
        let pulls = diagnosis.findings.iter().filter(|one| one.cause == Cause::ImagePull);
        assert_eq!(pulls.count(), 1, "{diagnosis:#?}");
    });
    simulate(async {
        let world = silent().await;
        let text = "Failed to pull image \"app:2\": docker.io/library/app:2: not found";
        world.report(&waiting("ErrImagePull", text));
        world.event("Failed", text);
        stuck(&world, Cause::ImagePull, "not found");
    });
}

/// Removes the nodes of the new pods. The scheduler has not found one.
fn unscheduled(world: &World, text: &str) -> Snapshot {
    let mut snapshot = world.snapshot();
    let new: Vec<Value> = world.new_pods().iter().map(|pod| pod["metadata"]["uid"].clone()).collect();
    for pod in read(&mut snapshot.pods).iter_mut().filter(|pod| new.contains(&pod["metadata"]["uid"])) {
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        let scheduled = json!({ "type": "PodScheduled", "status": "False", "message": text });
        pod["status"] = json!({ "phase": "Pending", "conditions": [scheduled] });
    }
    snapshot
}

#[test]
fn capacity_is_being_added() {
    const TEXT: &str = "0/2 nodes are available: 2 Insufficient cpu.";
    simulate(async {
        let world = silent().await;
        assert_eq!(found(&world, &unscheduled(&world, TEXT)).state, State::Stuck);
        world.event("TriggeredScaleUp", "pod triggered scale-up: [{pool 2->3 (max: 10)}]");
        let diagnosis = found(&world, &unscheduled(&world, TEXT));
        assert_eq!(outcome(&diagnosis), (State::Progressing, Some(Cause::Unschedulable)), "{diagnosis:#?}");
        let text = message(&diagnosis, Cause::Unschedulable);
        assert!(
            text.ends_with(
                "The cluster autoscaler adds nodes: pod triggered scale-up: [{pool 2->3 (max: 10)}]"
            )
        );
        world.advance(1).await;
        world.event("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached");
        assert_eq!(found(&world, &unscheduled(&world, TEXT)).state, State::Stuck);
    });
    simulate(async {
        let world = silent().await;
        let mut snapshot = unscheduled(&world, TEXT);
        let old = set_of(&world, "app:1")["metadata"]["uid"].clone();
        let mut pods = read(&mut snapshot.pods).iter_mut();
        let pod = pods.find(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == old).unwrap();
        pod["metadata"]["deletionTimestamp"] = ago(&world, -20);
        let diagnosis = found(&world, &snapshot);
        assert_eq!(diagnosis.state, State::Progressing, "{diagnosis:#?}");
        let finding = diagnosis.findings.iter().find(|one| one.cause == Cause::Unschedulable).unwrap();
        assert_eq!(finding.effect, Effect::Delays);
        assert!(finding.message.ends_with("cpu. Terminating pods of the Deployment will free some room."));
    });
}

#[test]
fn undo_is_offered_if_the_last_revision_differs() {
    simulate(async {
        let world = rolled_out(4).await;
        world.change(template("app:broken", &json!({})));
        world.advance(60).await;
        let mut snapshot = world.snapshot();
        assert!(commands(&found(&world, &snapshot)).contains("rollout undo"));
        let old = set_of(&world, "app:1");
        let container = &mut set_in(&mut snapshot, &old)["spec"]["template"]["spec"]["containers"][0];
        (container["image"], container["args"]) = (json!("app:broken"), json!(["old"]));
        let diagnosis = found(&world, &snapshot);
        assert_eq!(outcome(&diagnosis), (State::Stuck, Some(Cause::ImagePull)));
        assert!(!commands(&diagnosis).contains("rollout undo"), "{}", commands(&diagnosis));
    });
    simulate(async {
        let world = silent().await;
        world.report(&waiting("CreateContainerConfigError", "secret \"tls\" not found"));
        let mut snapshot = world.snapshot();
        assert!(commands(&found(&world, &snapshot)).contains("rollout undo"));
        let old = set_of(&world, "app:1");
        let container = &mut set_in(&mut snapshot, &old)["spec"]["template"]["spec"]["containers"][0];
        container["envFrom"] = json!([{ "secretRef": { "name": "tls" } }]);
        let shown = commands(&found(&world, &snapshot));
        assert!(!shown.contains("rollout undo"), "{shown}");
    });
}

#[test]
fn refused_replica_set_is_described() {
    simulate(async {
        let world = changed(&json!({ "kube-sandbox/ready": "never" })).await;
        world.advance(100).await;
        let mut snapshot = world.snapshot();
        let old = set_of(&world, "app:1");
        set_in(&mut snapshot, &old)["status"]["conditions"] = json!([{
            "type": "ReplicaFailure", "status": "True", "reason": "FailedDelete", "message": "pods are protected",
            "lastTransitionTime": ago(&world, 10),
        }]);
        let shown = commands(&found(&world, &snapshot));
        let name = old["metadata"]["name"].as_str().unwrap();
        assert!(shown.contains(&format!("describe replicaset {name}\n")), "{shown}");
    });
}

#[test]
fn probes_are_not_excluded_without_events() {
    simulate(async {
        let world = silent().await;
        let explain = |code: i64, reason: &str| {
            world.report(&json!({ "phase": "Running", "containerStatuses": [{
                "name": "app", "image": "app:2", "imageID": "", "ready": false, "restartCount": 3,
                "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                "lastState": { "terminated": { "exitCode": code, "reason": reason } },
            }] }));
            let mut snapshot = world.snapshot();
            snapshot.events = Known::not_requested("events");
            for pod in read(&mut snapshot.pods) {
                pod["spec"]["containers"][0]["livenessProbe"] = json!({ "httpGet": { "port": 80 } });
            }
            let diagnosis = found(&world, &snapshot);
            let cause = diagnosis.cause.unwrap();
            (cause, message(&diagnosis, cause).to_owned())
        };
        let (cause, text) = explain(143, "Error");
        assert_eq!(cause, Cause::ProbeKill);
        assert_eq!(
            text,
            "Container app is stopped by a signal (exit code 143), probably because of its liveness probe: its events could \
             not be read. 3 restarts."
        );
        let (cause, text) = explain(1, "Error");
        assert_eq!(cause, Cause::CrashLoop);
        assert!(text.contains("It is unknown if its liveness probe killed it"), "{text}");
        let (cause, text) = explain(137, "OOMKilled");
        assert!(cause == Cause::CrashLoop && !text.contains("probe"), "{text}");
    });
}

#[test]
fn a_stuck_rollout_is_worse_than_an_unknown_one() {
    assert!(State::Stuck > State::Unknown && State::Unknown > State::Paused);
}
