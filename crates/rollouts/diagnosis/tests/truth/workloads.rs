//! StatefulSets and DaemonSets, whose objects are given: the embedded cluster does not run their controllers.

use kcm_clock::Timestamp;
use kcm_rollouts::{
    Cause, Diagnosis, Known, Snapshot, State, Workload, diagnose_workload,
    render::{Style, text},
};
use serde_json::{Value, json};

fn now() -> Timestamp {
    "2026-01-15T01:00:00Z".parse().unwrap()
}

fn pod(name: &str, revision: &str, is_ready: bool) -> Value {
    let ready = if is_ready { "True" } else { "False" };
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": name, "creationTimestamp": "2026-01-15T00:50:00Z",
            "labels": { "controller-revision-hash": revision },
            "ownerReferences": [{ "uid": "u-1", "controller": true, "name": "db" }],
        },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "db", "image": "db:2" }] },
        "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": ready, "lastTransitionTime": "2026-01-15T00:50:10Z" }],
            "containerStatuses": [if is_ready {
                json!({ "name": "db", "ready": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-15T00:50:05Z" } } })
            } else {
                json!({ "name": "db", "ready": false, "restartCount": 6, "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                        "lastState": { "terminated": { "exitCode": 1, "reason": "Error" } } })
            }],
        },
    })
}

/// Two of three pods of a StatefulSet are to be updated.
fn stateful_set(strategy: &Value) -> Value {
    json!({
        "metadata": { "name": "db", "namespace": "shop", "uid": "u-1", "generation": 2, "creationTimestamp": "2026-01-15T00:00:00Z" },
        "spec": { "replicas": 3, "updateStrategy": strategy },
        "status": {
            "observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "availableReplicas": 2, "readyReplicas": 2,
            "currentRevision": "db-1", "updateRevision": "db-2",
        },
    })
}

fn snapshot(pods: Vec<Value>) -> Snapshot {
    Snapshot {
        pods: Known::Read(pods),
        events: Known::Read(Vec::new()),
        nodes: Known::not_requested("nodes"),
        ..Snapshot::default()
    }
}

fn explain(workload: Workload, object: &Value, pods: Vec<Value>) -> Diagnosis {
    diagnose_workload(&snapshot(pods), workload, object, now())
}

fn note(diagnosis: &Diagnosis, cause: Cause) -> &str {
    let finding = diagnosis.findings.iter().find(|finding| finding.cause == cause);
    assert!(finding.is_some(), "no {cause}: {diagnosis:#?}");
    &finding.unwrap().message
}

#[test]
fn pod_that_crashes_holds_the_pods_before_it() {
    let pods = vec![pod("db-0", "db-1", true), pod("db-1", "db-1", true), pod("db-2", "db-2", false)];
    let diagnosis = explain(Workload::StatefulSet, &stateful_set(&json!({ "type": "RollingUpdate" })), pods);
    assert_eq!((diagnosis.state, diagnosis.cause), (State::Stuck, Some(Cause::CrashLoop)));
    let order = note(&diagnosis, Cause::OrdinalOrder);
    assert_eq!(order, "Pods are replaced one after the other, the last one first: 2 wait for db-2.");
    let shown = text(&diagnosis, now(), Style::Plain);
    assert!(
        shown.starts_with("statefulset shop/db\nStuck because 1 pod crashes: 1 of 3 pods updated"),
        "{shown}"
    );
    assert!(shown.contains("kubectl -n shop logs db-2 -c db --previous"), "{shown}");
}

#[test]
fn missing_pods_wait_for_the_one_before_them() {
    let mut set = stateful_set(&json!({ "type": "RollingUpdate" }));
    set["status"]["currentRevision"] = json!("db-2");
    let diagnosis = explain(Workload::StatefulSet, &set, vec![pod("db-0", "db-2", false)]);
    let order = note(&diagnosis, Cause::OrdinalOrder);
    assert_eq!(order, "Pods are created in their order: 2 more wait until db-0 is available.");
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    let diagnosis = explain(Workload::StatefulSet, &set, vec![pod("db-0", "db-2", false)]);
    assert!(diagnosis.findings.iter().all(|finding| finding.cause != Cause::OrdinalOrder), "{diagnosis:#?}");
}

#[test]
fn partition_ends_the_rollout_early() {
    let mut set = stateful_set(&json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 2 } }));
    set["status"]["availableReplicas"] = json!(3);
    let pods = vec![pod("db-0", "db-1", true), pod("db-1", "db-1", true), pod("db-2", "db-2", true)];
    let diagnosis = explain(Workload::StatefulSet, &set, pods);
    assert_eq!(diagnosis.state, State::Complete, "{diagnosis:#?}");
    assert!(note(&diagnosis, Cause::Partition).contains("ordinals below 2"));
}

#[test]
fn on_delete_waits_for_a_person() {
    let mut set = stateful_set(&json!({ "type": "OnDelete" }));
    set["status"]["availableReplicas"] = json!(3);
    let pods = vec![pod("db-0", "db-1", true), pod("db-1", "db-1", true), pod("db-2", "db-2", true)];
    let diagnosis = explain(Workload::StatefulSet, &set, pods);
    assert_eq!((diagnosis.state, diagnosis.cause), (State::Paused, Some(Cause::OnDelete)));
    assert_eq!(diagnosis.findings[0].pods, ["db-0", "db-1"]);
    assert!(diagnosis.commands[0].command.ends_with("delete pod db-0"), "{:?}", diagnosis.commands);
}

#[test]
fn daemon_set_with_a_refused_pod() {
    let set = json!({
        "metadata": { "name": "agent", "namespace": "shop", "uid": "u-1", "generation": 1, "creationTimestamp": "2026-01-15T00:00:00Z" },
        "spec": { "updateStrategy": { "type": "RollingUpdate" } },
        "status": { "observedGeneration": 1, "desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 1, "currentNumberScheduled": 1 },
    });
    let mut snapshot = snapshot(vec![pod("agent-x", "1", true)]);
    snapshot.events = Known::Read(vec![json!({
        "type": "Warning", "reason": "FailedCreate", "lastTimestamp": "2026-01-15T00:59:00Z", "involvedObject": { "uid": "u-1" },
        "message": "Error creating: pods \"agent-\" is forbidden: violates PodSecurity \"restricted:latest\": hostPath volumes",
    })]);
    let diagnosis = diagnose_workload(&snapshot, Workload::DaemonSet, &set, now());
    assert_eq!(
        (diagnosis.state, diagnosis.cause),
        (State::Stuck, Some(Cause::PodSecurity)),
        "{diagnosis:#?}"
    );
}

#[test]
fn without_the_pods_nothing_is_complete() {
    let mut set = stateful_set(&json!({ "type": "RollingUpdate" }));
    set["status"]["updatedReplicas"] = json!(3);
    set["status"]["availableReplicas"] = json!(3);
    let diagnosis = diagnose_workload(&Snapshot::default(), Workload::StatefulSet, &set, now());
    assert_eq!((diagnosis.state, diagnosis.cause), (State::Unknown, Some(Cause::Unknown)));
}
