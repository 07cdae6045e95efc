//! Upstream's `replica_set_utils_test.go`.

use std::sync::Arc;

use kcm_api::{Labels, Pod, ReplicaSet, ReplicaSetCondition};
use serde_json::json;

use super::*;
use crate::{
    ManageError,
    testing::{ago, changed_replica_set, going, now, owned_by, pod, ready, refusal},
};

/// Template labels `app` and `tier`; selected is `app` alone.
fn subject(min_ready_seconds: i32, status: &serde_json::Value) -> ReplicaSet {
    let change = json!({
        "metadata": {"generation": 3},
        "spec": {
            "minReadySeconds": min_ready_seconds,
            "template": {"metadata": {"labels": {"app": "web", "tier": "front"}}},
        },
        "status": status,
    });
    changed_replica_set("web", 1, &change)
}

fn fully_labelled(pod: Pod) -> Pod {
    let labels = [("app", "web"), ("tier", "front"), ("more", "x")];
    let labels: Labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    Pod { labels: Arc::new(labels), ..pod }
}

fn view(replica_set: ReplicaSet, pods: Vec<Pod>) -> View {
    let active = pods.into_iter().map(|pod| Arc::new(owned_by(&replica_set, pod))).collect();
    View {
        replica_set: Arc::new(replica_set),
        active,
        terminating: Some(0),
        block: None,
        burst_replicas: 500,
        pod_deletion_cost: true,
        related: Vec::new(),
    }
}

/// replicas, fully labelled, ready, available.
fn counts(min_ready_seconds: i32, pods: Vec<Pod>) -> (i32, i32, i32, i32) {
    let view = view(subject(min_ready_seconds, &json!({})), pods);
    let status = calculate_status(&view, None, now());
    assert_eq!(status.observed_generation, 3);
    (status.replicas, status.fully_labeled_replicas, status.ready_replicas, status.available_replicas)
}

/// Upstream: TestCalculateStatus, its thirteen cases apart from those with the gate for terminating replicas off.
#[test]
fn test_calculate_status() {
    let since = |seconds| ready(pod("p"), ago(seconds));
    let (full, part) = (|| fully_labelled(since(0)), || since(0));
    let long_ago = |seconds| fully_labelled(since(seconds));
    let cases = [
        ("1 fully labelled pod", 0, vec![full()], (1, 1, 1, 1)),
        ("1 not fully labelled pod", 0, vec![part()], (1, 0, 1, 1)),
        ("2 fully labelled pods", 0, vec![full(), full()], (2, 2, 2, 2)),
        ("2 not fully labelled pods", 0, vec![part(), part()], (2, 0, 2, 2)),
        ("1 fully labelled pod, 1 not fully labelled pod", 0, vec![full(), part()], (2, 1, 2, 2)),
        ("1 non-ready pod", 0, vec![fully_labelled(pod("p"))], (1, 1, 0, 0)),
        ("1 ready but non-available pod", 3600, vec![full()], (1, 1, 1, 0)),
        ("1 available pod with minReadySeconds", 3600, vec![long_ago(3600)], (1, 1, 1, 1)),
        ("1 available pod for a long time with minReadySeconds", 3600, vec![long_ago(7200)], (1, 1, 1, 1)),
        // Not upstream's.
        ("a second too early", 3600, vec![since(3599), since(3600)], (2, 0, 2, 1)),
        ("ready without a time", 3600, vec![ready(pod("p"), None)], (1, 0, 1, 0)),
    ];
    for (name, min_ready_seconds, pods, expected) in cases {
        assert_eq!(counts(min_ready_seconds, pods), expected, "{name}");
    }
}

/// Upstream: TestCalculateStatus, the cases about terminating replicas.
#[test]
fn test_calculate_status_terminating_replicas() {
    let cases = [
        ("1 fully labelled pod, none terminating", Some(0), Some(0)),
        (
            "1 fully labelled pods and 2 terminating with DeploymentReplicaSetTerminatingReplicas",
            Some(2),
            Some(2),
        ),
        ("1 fully labelled pods and 2 terminating with the gate (ReplicationController)", None, None),
        (
            "1 fully labelled pod and 1 terminating without DeploymentReplicaSetTerminatingReplicas",
            None,
            None,
        ),
    ];
    for (name, terminating, expected) in cases {
        let mut view = view(subject(0, &json!({"terminatingReplicas": 7})), vec![going(pod("p"))]);
        view.terminating = terminating;
        let status = calculate_status(&view, None, now());
        assert_eq!(status.terminating_replicas, expected, "{name}");
    }
}

/// Returns the conditions after a sync with one replica, `pods` active pods and `error`.
fn conditions(pods: usize, known: &serde_json::Value, error: Option<&str>) -> Vec<ReplicaSetCondition> {
    let pods = (0..pods).map(|_| pod("p")).collect();
    let view = view(subject(0, &json!({"conditions": known})), pods);
    let error = error.map(|message| ManageError::Create(refusal(message)));
    calculate_status(&view, error.as_ref(), now()).conditions
}

/// Upstream: TestCalculateStatusConditions, all five.
#[test]
fn test_calculate_status_conditions() {
    let nothing_known = json!([]);
    let failed_before = json!([
        {"type": "Other", "status": "True"},
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedDelete", "message": "an old one"},
    ]);
    let other = || json!([{"type": "Other", "status": "True"}]);
    let failure = |reason: &str| {
        let mut condition = json!({
            "type": "ReplicaFailure", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z",
            "message": "fake manageReplicasErr",
        });
        if !reason.is_empty() {
            condition["reason"] = json!(reason);
        }
        json!([condition])
    };
    let error = Some("fake manageReplicasErr");
    // One pod is wanted.
    let cases = [
        (
            "manageReplicasErr != nil && failureCond == nil, diff < 0",
            0,
            &nothing_known,
            error,
            failure("FailedCreate"),
        ),
        (
            "manageReplicasErr != nil && failureCond == nil, diff > 0",
            3,
            &nothing_known,
            error,
            failure("FailedDelete"),
        ),
        ("manageReplicasErr == nil && failureCond != nil", 2, &failed_before, None, other()),
        ("manageReplicasErr != nil && failureCond != nil", 0, &failed_before, error, failed_before.clone()),
        ("manageReplicasErr == nil && failureCond == nil", 0, &nothing_known, None, json!([])),
        // Not upstream's.
        ("an error with nothing missing or too many", 1, &nothing_known, error, failure("")),
    ];
    for (name, pods, known, error, expected) in cases {
        let conditions = serde_json::to_value(conditions(pods, known, error)).unwrap();
        assert_eq!(conditions, expected, "{name}");
    }
}

fn condition(type_: &str, reason: &str) -> ReplicaSetCondition {
    ReplicaSetCondition { type_: type_.to_owned(), ..failure(reason, String::new(), now()) }
}

fn with(conditions: &[ReplicaSetCondition]) -> ReplicaSetStatus {
    ReplicaSetStatus { conditions: conditions.to_vec(), ..ReplicaSetStatus::default() }
}

/// Upstream: TestGetCondition, both.
#[test]
fn test_get_condition() {
    let mut replica_set = subject(0, &json!({}));
    replica_set.status = with(&[condition(REPLICA_FAILURE, "OtherFailure")]);
    let cases = [
        ("condition exists", REPLICA_FAILURE, true),
        ("condition does not exist", "ImagePullBackOff", false),
    ];
    for (name, type_, exists) in cases {
        assert_eq!(replica_set.condition(type_).is_some(), exists, "{name}");
    }
}

/// Upstream: TestSetCondition, all three, and that one which says the same stays.
#[test]
fn test_set_condition() {
    let failed = |reason| condition(REPLICA_FAILURE, reason);
    let pull = || condition("ImagePullBackOff", "NonExistentImage");
    let old = ReplicaSetCondition { message: "old".to_owned(), ..failed("OtherFailure") };
    let cases = [
        ("set for the first time", vec![], failed("OtherFailure"), vec![failed("OtherFailure")]),
        ("simple set", vec![pull()], failed("OtherFailure"), vec![pull(), failed("OtherFailure")]),
        ("overwrite", vec![failed("OtherFailure")], failed("AnotherFailure"), vec![failed("AnotherFailure")]),
        // Not upstream's.
        ("the same again", vec![old.clone(), pull()], failed("OtherFailure"), vec![old.clone(), pull()]),
        (
            "overwrite the first of two",
            vec![old, pull()],
            failed("AnotherFailure"),
            vec![pull(), failed("AnotherFailure")],
        ),
    ];
    for (name, before, condition, after) in cases {
        let mut status = with(&before);
        set_condition(&mut status, condition);
        assert_eq!(status, with(&after), "{name}");
    }
}

/// Upstream: TestRemoveCondition, all three: conditions are removed by a sync without an error only.
#[test]
fn test_remove_condition() {
    let failed = || condition(REPLICA_FAILURE, "OtherFailure");
    let pull = || condition("ImagePullBackOff", "NonExistentImage");
    let cases = [
        ("remove from empty status", vec![], vec![]),
        ("simple remove", vec![failed()], vec![]),
        ("doesn't remove anything", vec![pull()], vec![pull()]),
    ];
    for (name, before, after) in cases {
        let mut replica_set = subject(0, &json!({}));
        replica_set.status = with(&before);
        let status = calculate_status(&view(replica_set, vec![]), None, now());
        assert_eq!(status.conditions, after, "{name}");
    }
}

#[test]
fn fields_of_the_status_that_are_not_known_stay() {
    let view = view(subject(0, &json!({"futureField": {"a": 1}})), vec![]);
    let status = calculate_status(&view, None, now());
    assert_eq!(status.extra.get("futureField"), Some(&json!({"a": 1})));
}
