//! Progress deadline.

use jiff::SignedDuration;

use super::*;

/// A Deployment with a deadline of 60 s and this condition `Progressing`, updated at a time of the test.
fn progressing(reason: &str, status: &str, updated: i64) -> Value {
    let time = START.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(updated);
    let condition = json!({"type": "Progressing", "status": status, "reason": reason, "lastUpdateTime": time.to_string()});
    with(
        deployment(),
        &[
            ("/spec/progressDeadlineSeconds", json!(60)),
            ("/status", json!({"observedGeneration": 1, "conditions": [condition]})),
        ],
    )
}

#[test]
fn rollout_times_out_only_after_its_deadline() {
    let late = progressing("ProgressDeadlineExceeded", "False", 60);
    let updated = progressing("ReplicaSetUpdated", "True", 10);
    let complete = progressing("NewReplicaSetAvailable", "True", 0);
    let unlimited = with(updated.clone(), &[("/spec/progressDeadlineSeconds", json!(i32::MAX))]);
    for (before, after, expected) in [
        (&updated, 70, Some(Invariant::EarlyTimeout)),
        (&updated, 71, None),
        (&progressing("ReplicaSetCreateError", "False", 10), 71, None),
        (&late, 1, None),
        (&complete, 71, Some(Invariant::Conditions)),
        (&unlimited, 71, Some(Invariant::Conditions)),
        (&deployment(), 71, Some(Invariant::Conditions)),
    ] {
        let mut test = InvariantTest::new();
        test.observe(before);
        test.advance(after);
        test.check_write("update", &late);
        assert_eq!(test.violated(), Vec::from_iter(expected), "{before} after {after} s");
    }
}

#[test]
fn rollout_without_progress_times_out_after_its_deadline() {
    let updated = progressing("ReplicaSetUpdated", "True", 10);
    let paused = with(updated.clone(), &[("/spec/paused", json!(true))]);
    let deleted = with(updated.clone(), &[("/metadata/deletionTimestamp", json!(START))]);
    for (before, after, is_missed) in [
        (&updated, 100, false),
        (&updated, 101, true),
        (&progressing("DeploymentResumed", "Unknown", 10), 101, true),
        (&paused, 101, false),
        (&deleted, 101, false),
        (&progressing("ReplicaSetCreateError", "False", 10), 101, false),
        (&progressing("NewReplicaSetAvailable", "True", 10), 101, false),
    ] {
        let mut test = InvariantTest::new();
        test.observe(before);
        test.advance(after);
        test.observe(&with(before.clone(), &[("/spec/replicas", json!(1))]));
        let expected: &[Invariant] = if is_missed { &[Invariant::MissedTimeout] } else { &[] };
        assert_eq!(test.violated(), expected, "{before} after {after} s");
    }
    let mut test = InvariantTest::new();
    test.observe(&paused);
    test.advance(90);
    test.observe(&with(updated.clone(), &[("/metadata/generation", json!(2))]));
    test.advance(30);
    test.observe(&paused);
    assert_eq!(test.violated(), [], "it was paused until 30 s ago");
}

#[test]
fn rollout_is_not_checked_while_it_is_scaled() {
    let updated = progressing("ReplicaSetUpdated", "True", 10);
    let mut test = InvariantTest::new();
    test.observe(&updated);
    test.observe(&noted(set("a", 1, 0), "77", "13"));
    test.advance(200);
    test.observe(&with(updated.clone(), &[("/status/replicas", json!(1))]));
    test.advance(200);
    test.observe(&set("a", 1, 0));
    test.advance(30);
    test.invariants.end(test.now);
    assert_eq!(test.violated(), [], "it was scaled until 30 s ago");
    test.advance(1);
    test.invariants.end(test.now);
    assert_eq!(test.violated(), [Invariant::MissedTimeout]);
}
