use std::sync::Arc;

use kcm_api::ReplicaSet;

use super::*;
use crate::testing::{START, deployment};

fn condition(holds: &str, reason: &str, at: i64) -> DeploymentCondition {
    conditions::new(PROGRESSING, holds, reason, "", Time::from_unix(at))
}

/// `TestRequeueStuckDeployment`, all that it lists: a deadline of 60 s, last moved at second 0.
#[test]
fn requeue_stuck_deployment_all_cases_as_upstream() {
    let status =
        DeploymentStatus { replicas: 3, updated_replicas: 3, available_replicas: 2, ..Default::default() };
    let complete = DeploymentStatus { available_replicas: 3, ..status.clone() };
    let moved = condition(TRUE, reason::REPLICA_SET_UPDATED, START);
    let failed = condition(FALSE, reason::TIMED_OUT, START);
    let after =
        |deadline, current: Option<&DeploymentCondition>, status: &DeploymentStatus, nanoseconds: i64| {
            let mut d = deployment(3);
            d.metadata.generation = 0;
            d.spec.progress_deadline_seconds = deadline;
            d.status = status.clone();
            d.status.conditions.extend(current.cloned());
            let now = Time::from_unix(START).timestamp() + SignedDuration::from_nanos(nanoseconds);
            requeue_stuck_deployment(&d, status, now)
        };
    let second = 1_000_000_000;
    let soon = |seconds: u64| Requeue::After(Duration::from_secs(seconds + 1));
    assert_eq!(after(None, Some(&moved), &status, 0), Requeue::Never, "no deadline");
    assert_eq!(after(Some(i32::MAX), Some(&moved), &status, 0), Requeue::Never, "infinite deadline");
    assert_eq!(after(Some(60), None, &status, 0), Requeue::Never, "no condition");
    assert_eq!(after(Some(60), Some(&moved), &complete, 0), Requeue::Never, "complete");
    assert_eq!(after(Some(60), Some(&failed), &status, 0), Requeue::Never, "failed already");
    assert_eq!(after(Some(60), Some(&moved), &status, 30 * second), soon(30));
    assert_eq!(after(Some(60), Some(&moved), &status, 59 * second), soon(1));
    for late in [59 * second + 1, 60 * second, 61 * second, 120 * second] {
        assert_eq!(after(Some(60), Some(&moved), &status, late), Requeue::RateLimited, "{late}");
    }
}

/// What `TestSyncRolloutStatus` looks at: the condition that comes out, and whether its transition moved.
struct Case {
    deadline: Option<i32>,
    before: Option<DeploymentCondition>,
    /// Updated, available: of the new ReplicaSet, which has all there are of three.
    counts: (i32, i32),
    with_new: bool,
}

impl Case {
    fn outcome(self) -> Option<DeploymentCondition> {
        let mut d = deployment(3);
        d.spec.progress_deadline_seconds = self.deadline;
        d.status.conditions.extend(self.before);
        let (updated, available) = self.counts;
        let mut new = ReplicaSet::default();
        new.metadata.name = "rs".into();
        new.status.replicas = updated;
        new.status.available_replicas = available;
        let roles = if self.with_new {
            Roles { new: Some(Arc::new(new)), old: Vec::new() }
        } else {
            Roles { new: None, old: vec![Arc::new(new)] }
        };
        let now = Time::from_unix(START + 100).timestamp();
        let mut status = calculate_status(&d, &roles, now);
        estimate_progress(&d, &roles, &mut status, now);
        status.condition(PROGRESSING).cloned()
    }
}

/// `TestSyncRolloutStatus`, all eleven.
#[test]
fn sync_rollout_status_all_cases_as_upstream() {
    let now = Some(Time::from_unix(START + 100));
    let then = Some(Time::from_unix(START));
    let of = |deadline, before: Option<DeploymentCondition>, counts, with_new| {
        Case { deadline, before, counts, with_new }.outcome()
    };
    let told = |outcome: Option<DeploymentCondition>| {
        let condition = outcome.unwrap();
        (condition.reason, condition.message, condition.last_transition_time, condition.last_update_time)
    };
    let expected = |reason: &str, message: &str, transition, update| {
        (reason.to_owned(), message.to_owned(), transition, update)
    };
    let progressing = "ReplicaSet \"rs\" is progressing.";
    let done = "ReplicaSet \"rs\" has successfully progressed.";
    let (updated, available) = (reason::REPLICA_SET_UPDATED, reason::NEW_REPLICA_SET_AVAILABLE);

    let was = Some(condition(TRUE, updated, START));
    assert_eq!(of(None, was.clone(), (3, 2), true), None, "no deadline removes the condition");
    let complete = Some(condition(TRUE, available, START));
    assert_eq!(of(Some(600), complete.clone(), (3, 2), true), complete, "complete before: left alone");

    let moved = |transition| expected(updated, progressing, transition, now);
    assert_eq!(told(of(Some(600), was.clone(), (3, 2), true)), moved(then), "progressing: transition kept");
    let was_false = Some(condition(FALSE, reason::TIMED_OUT, START));
    assert_eq!(
        told(of(Some(600), was_false.clone(), (3, 2), true)),
        moved(now),
        "progressing: transition reset"
    );
    assert_eq!(told(of(Some(600), None, (3, 2), true)), moved(now), "progressing: created");

    let finished = |transition| expected(available, done, transition, now);
    assert_eq!(told(of(Some(600), was.clone(), (3, 3), true)), finished(then), "complete: transition kept");
    assert_eq!(
        told(of(Some(600), was_false.clone(), (3, 3), true)),
        finished(now),
        "complete: transition reset"
    );
    assert_eq!(told(of(Some(600), None, (3, 3), true)), finished(now), "complete: created");

    let nobody = told(of(Some(600), None, (3, 2), false));
    assert_eq!(nobody.1, "Deployment \"web\" is progressing.", "no new replica set");

    let stuck = told(of(Some(10), was, (0, 0), true));
    let text = "ReplicaSet \"rs\" has timed out progressing.";
    assert_eq!(stuck, expected(reason::TIMED_OUT, text, now, now), "timed out");
    assert_eq!(of(Some(10), was_false.clone(), (0, 0), true), was_false, "timed out before: left alone");
}

#[test]
fn replica_failure_is_the_new_sets_or_the_first_of_any() {
    let failing = |name: &str, reason: &str| {
        let mut set = ReplicaSet::default();
        set.metadata.name = name.into();
        set.status.conditions.push(kcm_api::ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: TRUE.to_owned(),
            reason: reason.to_owned(),
            ..Default::default()
        });
        Arc::new(set)
    };
    let reason = |new, old| replica_failure(&Roles { new, old }).map(|condition| condition.reason);
    let old = vec![failing("a", "first"), failing("b", "second")];
    assert_eq!(reason(Some(failing("n", "new")), old.clone()).as_deref(), Some("new"));
    assert_eq!(reason(Some(Arc::new(ReplicaSet::default())), old).as_deref(), Some("first"));
    assert_eq!(reason(None, Vec::new()), None);
}
