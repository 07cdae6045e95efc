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

#[derive(Debug, PartialEq)]
struct Counts {
    replicas: i32,
    fully_labeled: i32,
    ready: i32,
    available: i32,
}

struct Case {
    name: &'static str,
    min_ready_seconds: i32,
    pods: Vec<Pod>,
    expected: Counts,
}

impl Case {
    fn check(self) {
        let view = view(subject(self.min_ready_seconds, &json!({})), self.pods);
        let status = calculate_status(&view, None, now());
        assert_eq!(status.observed_generation, 3);
        let counts = Counts {
            replicas: status.replicas,
            fully_labeled: status.fully_labeled_replicas,
            ready: status.ready_replicas,
            available: status.available_replicas,
        };
        assert_eq!(counts, self.expected, "{}", self.name);
    }
}

/// Upstream: TestCalculateStatus, without its cases for terminating replicas.
#[test]
fn test_calculate_status() {
    let ready_for = |seconds| ready(pod("p"), ago(seconds));
    let (full, part) = (|| fully_labelled(ready_for(0)), || ready_for(0));
    let cases = [
        Case {
            name: "1 fully labelled pod",
            min_ready_seconds: 0,
            pods: vec![full()],
            expected: Counts { replicas: 1, fully_labeled: 1, ready: 1, available: 1 },
        },
        Case {
            name: "1 not fully labelled pod",
            min_ready_seconds: 0,
            pods: vec![part()],
            expected: Counts { replicas: 1, fully_labeled: 0, ready: 1, available: 1 },
        },
        Case {
            name: "2 fully labelled pods",
            min_ready_seconds: 0,
            pods: vec![full(), full()],
            expected: Counts { replicas: 2, fully_labeled: 2, ready: 2, available: 2 },
        },
        Case {
            name: "2 not fully labelled pods",
            min_ready_seconds: 0,
            pods: vec![part(), part()],
            expected: Counts { replicas: 2, fully_labeled: 0, ready: 2, available: 2 },
        },
        Case {
            name: "1 fully labelled pod, 1 not fully labelled pod",
            min_ready_seconds: 0,
            pods: vec![full(), part()],
            expected: Counts { replicas: 2, fully_labeled: 1, ready: 2, available: 2 },
        },
        Case {
            name: "1 non-ready pod",
            min_ready_seconds: 0,
            pods: vec![fully_labelled(pod("p"))],
            expected: Counts { replicas: 1, fully_labeled: 1, ready: 0, available: 0 },
        },
        Case {
            name: "1 ready but non-available pod",
            min_ready_seconds: 3600,
            pods: vec![full()],
            expected: Counts { replicas: 1, fully_labeled: 1, ready: 1, available: 0 },
        },
        Case {
            name: "1 available pod with minReadySeconds",
            min_ready_seconds: 3600,
            pods: vec![fully_labelled(ready_for(3600))],
            expected: Counts { replicas: 1, fully_labeled: 1, ready: 1, available: 1 },
        },
        Case {
            name: "1 available pod for a long time with minReadySeconds",
            min_ready_seconds: 3600,
            pods: vec![fully_labelled(ready_for(7200))],
            expected: Counts { replicas: 1, fully_labeled: 1, ready: 1, available: 1 },
        },
        // Not in upstream's test.
        Case {
            name: "one second before minReadySeconds",
            min_ready_seconds: 3600,
            pods: vec![ready_for(3599), ready_for(3600)],
            expected: Counts { replicas: 2, fully_labeled: 0, ready: 2, available: 1 },
        },
        Case {
            name: "ready without a time",
            min_ready_seconds: 3600,
            pods: vec![ready(pod("p"), None)],
            expected: Counts { replicas: 1, fully_labeled: 0, ready: 1, available: 0 },
        },
    ];
    cases.into_iter().for_each(Case::check);
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
    let error = error.map(|message| ManageError::Create(refusal(message).into()));
    calculate_status(&view, error.as_ref(), now()).conditions
}

/// Upstream: TestCalculateStatusConditions, all five cases.
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
    struct Case<'a> {
        name: &'static str,
        /// Active pods; one is required.
        pods: usize,
        known: &'a serde_json::Value,
        error: Option<&'static str>,
        expected: serde_json::Value,
    }
    let cases = [
        Case {
            name: "manageReplicasErr != nil && failureCond == nil, diff < 0",
            pods: 0,
            known: &nothing_known,
            error,
            expected: failure("FailedCreate"),
        },
        Case {
            name: "manageReplicasErr != nil && failureCond == nil, diff > 0",
            pods: 3,
            known: &nothing_known,
            error,
            expected: failure("FailedDelete"),
        },
        Case {
            name: "manageReplicasErr == nil && failureCond != nil",
            pods: 2,
            known: &failed_before,
            error: None,
            expected: other(),
        },
        Case {
            name: "manageReplicasErr != nil && failureCond != nil",
            pods: 0,
            known: &failed_before,
            error,
            expected: failed_before.clone(),
        },
        Case {
            name: "manageReplicasErr == nil && failureCond == nil",
            pods: 0,
            known: &nothing_known,
            error: None,
            expected: json!([]),
        },
        // Not in upstream's test.
        Case {
            name: "error without missing or surplus pods",
            pods: 1,
            known: &nothing_known,
            error,
            expected: failure(""),
        },
    ];
    for Case { name, pods, known, error, expected } in cases {
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

/// Upstream: TestGetCondition, both cases.
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

/// Upstream: TestSetCondition, all three cases.
#[test]
fn test_set_condition() {
    let failed = |reason| condition(REPLICA_FAILURE, reason);
    let pull = || condition("ImagePullBackOff", "NonExistentImage");
    let old = ReplicaSetCondition { message: "old".to_owned(), ..failed("OtherFailure") };
    let cases = [
        ("set for the first time", vec![], failed("OtherFailure"), vec![failed("OtherFailure")]),
        ("simple set", vec![pull()], failed("OtherFailure"), vec![pull(), failed("OtherFailure")]),
        ("overwrite", vec![failed("OtherFailure")], failed("AnotherFailure"), vec![failed("AnotherFailure")]),
        // Not in upstream's test.
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

/// Upstream: TestRemoveCondition, all three cases. A sync without an error removes the condition.
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
fn unknown_fields_are_kept() {
    let view = view(subject(0, &json!({"futureField": {"a": 1}})), vec![]);
    let status = calculate_status(&view, None, now());
    assert_eq!(status.extra.get("futureField"), Some(&json!({"a": 1})));
}
