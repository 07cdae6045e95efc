use std::{collections::BTreeSet, sync::Arc};

use kcm_api::{ReplicaSet, Time};

use super::*;
use crate::{
    Requeue, View,
    testing::{START, deployment},
};

fn condition(holds: &str, reason: &str, at: i64) -> DeploymentCondition {
    conditions::new(PROGRESSING, holds, reason, "", Time::from_unix(at))
}

/// `TestRequeueStuckDeployment`, all eleven: a deadline of 60 s, last moved at second 0.
#[test]
fn requeue_stuck_deployment_all_cases_as_upstream() {
    const SECOND: i64 = 1_000_000_000;
    let status = |replicas, updated, available| DeploymentStatus {
        replicas,
        updated_replicas: updated,
        available_replicas: available,
        ..Default::default()
    };
    let moved = Some(condition(TRUE, reason::REPLICA_SET_UPDATED, START));
    let failed = Some(condition(FALSE, reason::TIMED_OUT, START));
    // A second more than upstream's test says: that is added where it is put in the queue.
    let soon = |seconds: u64| Requeue::After(Duration::from_secs(seconds + 1));
    let (of_four, of_three, stuck) = ((4, status(3, 3, 2)), (3, status(3, 3, 3)), (3, status(3, 3, 1)));
    let cases = [
        ("nil progressDeadlineSeconds specified", None, &moved, &of_four, 0, Requeue::Never),
        ("infinite progressDeadlineSeconds specified", Some(i32::MAX), &moved, &of_four, 0, Requeue::Never),
        ("no progressing condition found", Some(60), &None, &of_four, 0, Requeue::Never),
        ("complete deployment does not need to be requeued", Some(60), &moved, &of_three, 0, Requeue::Never),
        (
            "already failed deployment does not need to be requeued",
            Some(60),
            &failed,
            &stuck,
            0,
            Requeue::Never,
        ),
        ("stuck deployment - 30s", Some(60), &moved, &stuck, 30 * SECOND, soon(30)),
        ("stuck deployment - 1s", Some(60), &moved, &stuck, 59 * SECOND, soon(1)),
        (
            "failed deployment - less than a second => now",
            Some(60),
            &moved,
            &stuck,
            59 * SECOND + 1,
            Requeue::RateLimited,
        ),
        ("failed deployment - now", Some(60), &moved, &stuck, 60 * SECOND, Requeue::RateLimited),
        (
            "failed deployment - 1s after deadline",
            Some(60),
            &moved,
            &stuck,
            61 * SECOND,
            Requeue::RateLimited,
        ),
        (
            "failed deployment - 60s after deadline",
            Some(60),
            &moved,
            &stuck,
            120 * SECOND,
            Requeue::RateLimited,
        ),
    ];
    for (name, deadline, current, (wanted, status), nanoseconds, expected) in cases {
        let mut d = deployment(*wanted);
        d.metadata.generation = 0;
        d.spec.progress_deadline_seconds = deadline;
        d.status = status.clone();
        d.status.conditions.extend(current.clone());
        let now = Time::from_unix(START).timestamp() + SignedDuration::from_nanos(nanoseconds);
        let progress_check = next_progress_check(&d, status, now);
        let outcome = Outcome { progress_check, ..Outcome::waiting(WaitsFor::ReplicaSets) };
        assert_eq!(outcome.requeue(), expected, "{name}");
    }
}

#[test]
fn requeue_stuck_deployment_that_was_complete_waits_for_an_event_and_upstream_does_not() {
    let complete = Some(condition(TRUE, reason::NEW_REPLICA_SET_AVAILABLE, START));
    let mut d = deployment(3);
    d.spec.progress_deadline_seconds = Some(60);
    d.status.conditions.extend(complete);
    let status =
        DeploymentStatus { replicas: 3, updated_replicas: 3, available_replicas: 1, ..Default::default() };
    for (seconds, upstream) in [(0, Some(61)), (59, Some(2)), (60, None), (100_000, None)] {
        let now = Time::from_unix(START + seconds).timestamp();
        let expected = ProgressCheck { after: upstream.map(Duration::from_secs), can_time_out: false };
        let progress_check = next_progress_check(&d, &status, now);
        assert_eq!(progress_check, Some(expected), "after {seconds} s");
        let outcome = Outcome { progress_check, ..Outcome::waiting(WaitsFor::ReplicaSets) };
        assert_eq!(outcome.requeue(), Requeue::Never, "after {seconds} s");
    }
}

/// One rollout of `TestSyncRolloutStatus`, whose sets are called as upstream calls them.
#[derive(Clone, Copy)]
struct Rollout {
    wanted: i32,
    /// Replicas, updated, available: what the status says so far.
    told: (i32, i32, i32),
    /// Pods there are and that are available, of the ReplicaSet `bar`.
    old: Option<(i32, i32)>,
    /// The same of the new one, `foo`.
    new: Option<(i32, i32)>,
}

impl Rollout {
    /// The condition that comes out where `before` was there.
    fn outcome(
        self,
        deadline: Option<i32>,
        before: Option<DeploymentCondition>,
    ) -> Option<DeploymentCondition> {
        let mut d = deployment(self.wanted);
        d.spec.progress_deadline_seconds = deadline;
        (d.status.replicas, d.status.updated_replicas, d.status.available_replicas) = self.told;
        d.status.conditions.extend(before);
        let set = |name: &str, (replicas, available)| {
            let mut set = ReplicaSet::default();
            set.metadata.name = name.into();
            (set.status.replicas, set.status.available_replicas) = (replicas, available);
            Arc::new(set)
        };
        let roles = ReplicaSetSplit {
            new: self.new.map(|counts| set("foo", counts)),
            old: self.old.map(|counts| set("bar", counts)).into_iter().collect(),
        };
        let now = Time::from_unix(START + 100).timestamp();
        let view = View {
            deployment: Arc::new(d.clone()),
            replica_sets: Vec::new(),
            running: BTreeSet::new(),
            terminating_replicas: true,
        };
        let mut status = calculate_status(&Pass::new(&view, &[], now), &roles);
        estimate_progress(&d, &roles, &mut status, now);
        status.condition(PROGRESSING).cloned()
    }
}

/// `TestSyncRolloutStatus`, all eleven, with the messages that it does not look at.
#[test]
fn sync_rollout_status_all_cases_as_upstream() {
    let (then, now) = (Time::from_unix(START), Time::from_unix(START + 100));
    let (updated, available) = (reason::REPLICA_SET_UPDATED, reason::NEW_REPLICA_SET_AVAILABLE);
    let was_true = Some(condition(TRUE, updated, START));
    let was_false = Some(condition(FALSE, reason::TIMED_OUT, START));
    let was_complete = Some(condition(TRUE, available, START));
    let becomes = |holds: &str, reason: &str, message: &str, transition| {
        let mut condition = conditions::new(PROGRESSING, holds, reason, message, now);
        condition.last_transition_time = Some(transition);
        Some(condition)
    };
    let progressing = |transition| becomes(TRUE, updated, "ReplicaSet \"foo\" is progressing.", transition);
    let complete =
        |transition| becomes(TRUE, available, "ReplicaSet \"foo\" has successfully progressed.", transition);
    let of_none = becomes(TRUE, available, "Deployment \"web\" has successfully progressed.", then);
    let timed_out = becomes(FALSE, reason::TIMED_OUT, "ReplicaSet \"foo\" has timed out progressing.", now);

    let moves = Rollout { wanted: 3, told: (2, 2, 2), old: Some((1, 1)), new: Some((2, 2)) };
    let stands_still = Rollout { old: None, ..moves };
    let is_done = Rollout { wanted: 3, told: (3, 3, 3), old: None, new: Some((3, 3)) };
    let only_old = Rollout { wanted: 3, told: (3, 3, 3), old: Some((3, 3)), new: None };
    let empty = Rollout { wanted: 0, told: (3, 3, 3), old: Some((0, 0)), new: None };
    let cases = [
        (
            "General: remove Progressing condition and do not estimate progress if deployment has no Progress Deadline",
            moves,
            None,
            &was_true,
            None,
        ),
        (
            "General: do not estimate progress of deployment with only one active ReplicaSet",
            only_old,
            Some(60),
            &was_complete,
            was_complete.clone(),
        ),
        (
            "DeploymentProgressing: dont update lastTransitionTime if deployment already has Progressing=True",
            moves,
            Some(60),
            &was_true,
            progressing(then),
        ),
        (
            "DeploymentProgressing: update everything if deployment has Progressing=False",
            moves,
            Some(60),
            &was_false,
            progressing(now),
        ),
        (
            "DeploymentProgressing: create Progressing condition if it does not exist",
            moves,
            Some(60),
            &None,
            progressing(now),
        ),
        (
            "DeploymentComplete: dont update lastTransitionTime if deployment already has Progressing=True",
            is_done,
            Some(60),
            &was_true,
            complete(then),
        ),
        (
            "DeploymentComplete: update everything if deployment has Progressing=False",
            is_done,
            Some(60),
            &was_false,
            complete(now),
        ),
        (
            "DeploymentComplete: create Progressing condition if it does not exist",
            is_done,
            Some(60),
            &None,
            complete(now),
        ),
        ("DeploymentComplete: defend against NPE when newRS=nil", empty, Some(60), &was_true, of_none),
        (
            "DeploymentTimedOut: update status if rollout exceeds Progress Deadline",
            stands_still,
            Some(60),
            &was_true,
            timed_out,
        ),
        (
            "DeploymentTimedOut: do not update status if deployment has existing timedOut condition",
            stands_still,
            Some(60),
            &was_false,
            was_false.clone(),
        ),
    ];
    for (name, rollout, deadline, before, after) in cases {
        assert_eq!(rollout.outcome(deadline, before.clone()), after, "{name}");
    }
}

#[test]
fn progress_without_a_new_replica_set_is_told_of_the_deployment() {
    let moves = Rollout { wanted: 3, told: (0, 0, 0), old: Some((3, 2)), new: None };
    let message = moves.outcome(Some(600), None).unwrap().message;
    assert_eq!(message, "Deployment \"web\" is progressing.");
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
    let reason = |new, old| replica_failure(&ReplicaSetSplit { new, old }).map(|condition| condition.reason);
    let old = vec![failing("a", "first"), failing("b", "second")];
    assert_eq!(reason(Some(failing("n", "new")), old.clone()).as_deref(), Some("new"));
    assert_eq!(reason(Some(Arc::new(ReplicaSet::default())), old).as_deref(), Some("first"));
    assert_eq!(reason(None, Vec::new()), None);
}
