//! Upstream's replica_set_utils_test.go.

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
        hold: None,
        burst_replicas: 500,
        related: Vec::new(),
    }
}

/// replicas, fully labelled, ready, available.
fn counts(min_ready_seconds: i32, pods: Vec<Pod>) -> (i32, i32, i32, i32) {
    let view = view(subject(min_ready_seconds, &json!({})), pods);
    let status = next_status(&view, &Outcome::default(), now());
    assert_eq!(status.observed_generation, 3);
    (status.replicas, status.fully_labeled_replicas, status.ready_replicas, status.available_replicas)
}

#[test]
fn test_calculate_status() {
    let since = |seconds| ready(pod("p"), ago(seconds));
    let full = || fully_labelled(since(0));
    let not_ready = || fully_labelled(pod("p"));
    // Fully labelled or not, one and two, and mixed.
    assert_eq!(counts(0, vec![full()]), (1, 1, 1, 1));
    assert_eq!(counts(0, vec![since(0)]), (1, 0, 1, 1));
    assert_eq!(counts(0, vec![full(), full()]), (2, 2, 2, 2));
    assert_eq!(counts(0, vec![since(0), since(0)]), (2, 0, 2, 2));
    assert_eq!(counts(0, vec![full(), since(0)]), (2, 1, 2, 2));
    // Not ready.
    assert_eq!(counts(0, vec![not_ready()]), (1, 1, 0, 0));
    // Ready, but not for long enough.
    assert_eq!(counts(3600, vec![full()]), (1, 1, 1, 0));
    // The last second counts.
    assert_eq!(counts(3600, vec![since(3599), since(3600)]), (2, 0, 2, 1));
    assert_eq!(counts(3600, vec![since(3600), since(3600)]), (2, 0, 2, 2));
    // Ready, and nobody knows since when.
    assert_eq!(counts(3600, vec![ready(pod("p"), None)]), (1, 0, 1, 0));
}

#[test]
fn terminating_replicas_are_told_where_the_kind_tells_them_and_cleared_where_not() {
    let terminating = |terminating| {
        let mut view = view(subject(0, &json!({"terminatingReplicas": 7})), vec![going(pod("p"))]);
        view.terminating = terminating;
        next_status(&view, &Outcome::default(), now()).terminating_replicas
    };
    assert_eq!(terminating(None), None);
    assert_eq!(terminating(Some(0)), Some(0));
    assert_eq!(terminating(Some(2)), Some(2));
}

/// The conditions after a sync that ended with `error`, where one pod is wanted and `pods` are there.
fn conditions(pods: usize, known: &serde_json::Value, error: Option<&str>) -> Vec<ReplicaSetCondition> {
    let pods = (0..pods).map(|_| pod("p")).collect();
    let view = view(subject(0, &json!({"conditions": known})), pods);
    let error = error.map(|message| ManageError::Create(refusal(message)));
    next_status(&view, &Outcome { error }, now()).conditions
}

#[test]
fn test_calculate_status_conditions() {
    let none = json!([]);
    let of = |pods, error| {
        let conditions = conditions(pods, &none, error);
        serde_json::to_value(conditions).unwrap()
    };
    let failure = |reason: &str| {
        let mut condition = json!({
            "type": "ReplicaFailure", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z",
            "message": "fake error",
        });
        if !reason.is_empty() {
            condition["reason"] = json!(reason);
        }
        json!([condition])
    };
    assert_eq!(of(0, Some("fake error")), failure("FailedCreate"));
    assert_eq!(of(2, Some("fake error")), failure("FailedDelete"));
    assert_eq!(of(1, Some("fake error")), failure(""));
    assert_eq!(of(1, None), json!([]));

    let known = json!([
        {"type": "Other", "status": "True"},
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedDelete", "message": "an old one"},
    ]);
    // An existing failure goes with the error, and nothing else goes with it.
    let types: Vec<_> = conditions(2, &known, None).into_iter().map(|condition| condition.type_).collect();
    assert_eq!(types, ["Other"]);
    // It is not replaced by a new one.
    let kept = conditions(0, &known, Some("a new one"));
    assert_eq!(
        (kept.len(), kept[1].reason.as_str(), kept[1].message.as_str()),
        (2, "FailedDelete", "an old one")
    );
}

/// Upstream: TestSetCondition.
#[test]
fn test_set_condition() {
    let known: ReplicaSetStatus = serde_json::from_value(json!({"conditions": [
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "old"},
        {"type": "Other", "status": "True"},
    ]}))
    .unwrap();
    let set = |reason: &str| {
        let mut status = known.clone();
        set_condition(&mut status, failure(reason, "new".to_owned(), now()));
        status
            .conditions
            .into_iter()
            .map(|condition| (condition.type_, condition.message))
            .collect::<Vec<_>>()
    };
    let pair = |type_: &str, message: &str| (type_.to_owned(), message.to_owned());
    assert_eq!(set("FailedCreate"), [pair("ReplicaFailure", "old"), pair("Other", "")]);
    assert_eq!(set("FailedDelete"), [pair("Other", ""), pair("ReplicaFailure", "new")]);
}

#[test]
fn fields_of_the_status_that_are_not_known_stay() {
    let view = view(subject(0, &json!({"futureField": {"a": 1}})), vec![]);
    let status = next_status(&view, &Outcome::default(), now());
    assert_eq!(status.extra.get("futureField"), Some(&json!({"a": 1})));
}
