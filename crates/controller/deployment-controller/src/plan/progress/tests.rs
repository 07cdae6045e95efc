use std::sync::Arc;

use kcm_api::{ReplicaSet, Time};
use kcm_runtime::Requeue;

use super::*;
use crate::testing::{START, deployment, view_of};

/// Returns the condition `Progressing`, updated at `seconds`.
fn condition(status: &str, reason: &str, seconds: i64) -> DeploymentCondition {
    conditions::new(PROGRESSING, status, reason, "", Time::from_unix(seconds))
}

mod next_check {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// A rollout whose condition `Progressing` was updated `elapsed` nanoseconds ago.
    #[derive(Clone, Copy)]
    struct Case {
        name: &'static str,
        deadline: Option<i32>,
        /// Status and reason of the condition.
        condition: Option<(&'static str, &'static str)>,
        desired: i32,
        replicas: i32,
        updated: i32,
        available: i32,
        elapsed: i64,
        expected: Requeue,
    }

    const PROGRESSED: (&str, &str) = (TRUE, reason::REPLICA_SET_UPDATED);

    /// A rollout with a deadline of 60 s and one available pod of three.
    const STUCK: Case = Case {
        name: "",
        deadline: Some(60),
        condition: Some(PROGRESSED),
        desired: 3,
        replicas: 3,
        updated: 3,
        available: 1,
        elapsed: 0,
        expected: Requeue::Done,
    };

    fn progress_check(case: &Case) -> Option<ProgressCheck> {
        let mut d = deployment(case.desired);
        d.metadata.generation = 0;
        d.spec.progress_deadline_seconds = case.deadline;
        d.status = DeploymentStatus {
            replicas: case.replicas,
            updated_replicas: case.updated,
            available_replicas: case.available,
            ..DeploymentStatus::default()
        };
        d.status.conditions.extend(case.condition.map(|(status, reason)| condition(status, reason, START)));
        let now = Time::from_unix(START).timestamp() + SignedDuration::from_nanos(case.elapsed);
        next_progress_check(&d, &d.status, now)
    }

    fn check(case: &Case) {
        let progress_check = progress_check(case);
        let outcome = SyncOutcome { progress_check, ..SyncOutcome::blocked_on(BlockedOn::ReplicaSetStatus) };
        assert_eq!(outcome.requeue(), case.expected, "{}", case.name);
    }

    /// `TestRequeueStuckDeployment`. Upstream adds the second where it adds the key to the queue.
    #[test]
    fn requeue_stuck_deployment_upstream_cases() {
        let after = |seconds: u64| Requeue::After(Duration::from_secs(seconds + 1));
        let of_four = Case { desired: 4, available: 2, ..STUCK };
        let cases = [
            Case { name: "nil progressDeadlineSeconds specified", deadline: None, ..of_four },
            Case { name: "infinite progressDeadlineSeconds specified", deadline: Some(i32::MAX), ..of_four },
            Case { name: "no progressing condition found", condition: None, ..of_four },
            Case { name: "complete deployment does not need to be requeued", available: 3, ..STUCK },
            Case {
                name: "already failed deployment does not need to be requeued",
                condition: Some((FALSE, reason::TIMED_OUT)),
                ..STUCK
            },
            Case { name: "stuck deployment - 30s", elapsed: 30 * SECOND, expected: after(30), ..STUCK },
            Case { name: "stuck deployment - 1s", elapsed: 59 * SECOND, expected: after(1), ..STUCK },
            Case {
                name: "failed deployment - less than a second => now",
                elapsed: 59 * SECOND + 1,
                expected: Requeue::RateLimited,
                ..STUCK
            },
            Case {
                name: "failed deployment - now",
                elapsed: 60 * SECOND,
                expected: Requeue::RateLimited,
                ..STUCK
            },
            Case {
                name: "failed deployment - 1s after deadline",
                elapsed: 61 * SECOND,
                expected: Requeue::RateLimited,
                ..STUCK
            },
            Case {
                name: "failed deployment - 60s after deadline",
                elapsed: 120 * SECOND,
                expected: Requeue::RateLimited,
                ..STUCK
            },
        ];
        cases.iter().for_each(check);
    }

    #[test]
    fn documented_example() {
        check(&Case {
            name: "example",
            deadline: Some(600),
            elapsed: 20 * SECOND,
            expected: Requeue::After(Duration::from_secs(581)),
            ..STUCK
        });
    }

    /// DEVIATION: upstream checks a rollout that was complete.
    #[test]
    fn complete_rollout_that_lost_pods_is_not_requeued() {
        for (seconds, upstream) in [(0, Some(61)), (59, Some(2)), (60, None), (100_000, None)] {
            let case = Case {
                name: "lost pods",
                condition: Some((TRUE, reason::NEW_REPLICA_SET_AVAILABLE)),
                elapsed: seconds * SECOND,
                ..STUCK
            };
            let expected = ProgressCheck { after: upstream.map(Duration::from_secs), can_time_out: false };
            assert_eq!(progress_check(&case), Some(expected), "after {seconds} s");
            check(&case);
        }
    }
}

mod progressing_condition {
    use super::*;

    /// A rollout with the ReplicaSets `foo` (new) and `bar` (old), each with its pods and available pods.
    #[derive(Clone, Copy)]
    struct Rollout {
        desired: i32,
        /// Replicas, updated and available replicas in the status of the Deployment.
        status: (i32, i32, i32),
        old: Option<(i32, i32)>,
        new: Option<(i32, i32)>,
    }

    const MOVING: Rollout = Rollout { desired: 3, status: (2, 2, 2), old: Some((1, 1)), new: Some((2, 2)) };
    const STUCK: Rollout = Rollout { old: None, ..MOVING };
    const COMPLETE: Rollout = Rollout { desired: 3, status: (3, 3, 3), old: None, new: Some((3, 3)) };
    const ONLY_OLD: Rollout = Rollout { desired: 3, status: (3, 3, 3), old: Some((3, 3)), new: None };
    const EMPTY: Rollout = Rollout { desired: 0, status: (3, 3, 3), old: Some((0, 0)), new: None };

    const NOW: i64 = START + 100;

    /// Returns the condition that replaces `before`.
    fn next(
        rollout: Rollout,
        deadline: Option<i32>,
        before: Option<DeploymentCondition>,
    ) -> Option<DeploymentCondition> {
        let mut d = deployment(rollout.desired);
        d.spec.progress_deadline_seconds = deadline;
        (d.status.replicas, d.status.updated_replicas, d.status.available_replicas) = rollout.status;
        d.status.conditions.extend(before);
        let set = |name: &str, (replicas, available)| {
            let mut set = ReplicaSet::default();
            set.metadata.name = name.into();
            (set.status.replicas, set.status.available_replicas) = (replicas, available);
            Arc::new(set)
        };
        let replica_sets = ReplicaSetSplit {
            new: rollout.new.map(|counts| set("foo", counts)),
            old: rollout.old.map(|counts| set("bar", counts)).into_iter().collect(),
        };
        let now = Time::from_unix(NOW).timestamp();
        let view = view_of(d.clone());
        let mut status = PlanBuilder::new(&view, &[], now).calculate_status(&replica_sets);
        set_progressing_condition(&d, &replica_sets, &mut status, now);
        status.condition(PROGRESSING).cloned()
    }

    struct Case {
        name: &'static str,
        rollout: Rollout,
        deadline: Option<i32>,
        /// Status and reason of the condition, which was set at [`START`].
        before: Option<(&'static str, &'static str)>,
        after: Option<After>,
    }

    /// Expected condition.
    struct After {
        status: &'static str,
        reason: &'static str,
        message: &'static str,
        updated: i64,
        transitioned: i64,
    }

    fn check(case: Case) {
        let before = case.before.map(|(status, reason)| condition(status, reason, START));
        let after = case.after.map(|after| {
            let updated = Time::from_unix(after.updated);
            let mut condition =
                conditions::new(PROGRESSING, after.status, after.reason, after.message, updated);
            condition.last_transition_time = Some(Time::from_unix(after.transitioned));
            condition
        });
        assert_eq!(next(case.rollout, case.deadline, before), after, "{}", case.name);
    }

    /// `TestSyncRolloutStatus`. Upstream does not compare the messages.
    #[test]
    fn sync_rollout_status_upstream_cases() {
        const WAS_PROGRESSING: Option<(&str, &str)> = Some((TRUE, reason::REPLICA_SET_UPDATED));
        const WAS_TIMED_OUT: Option<(&str, &str)> = Some((FALSE, reason::TIMED_OUT));
        const WAS_COMPLETE: Option<(&str, &str)> = Some((TRUE, reason::NEW_REPLICA_SET_AVAILABLE));
        let unchanged = |(status, reason): (&'static str, &'static str)| {
            Some(After { status, reason, message: "", updated: START, transitioned: START })
        };
        let progressing = |transitioned| {
            let message = "ReplicaSet \"foo\" is progressing.";
            let reason = reason::REPLICA_SET_UPDATED;
            Some(After { status: TRUE, reason, message, updated: NOW, transitioned })
        };
        let complete = |message, transitioned| {
            let reason = reason::NEW_REPLICA_SET_AVAILABLE;
            Some(After { status: TRUE, reason, message, updated: NOW, transitioned })
        };
        let foo_complete =
            |transitioned| complete("ReplicaSet \"foo\" has successfully progressed.", transitioned);
        let timed_out = || {
            let message = "ReplicaSet \"foo\" has timed out progressing.";
            let reason = reason::TIMED_OUT;
            Some(After { status: FALSE, reason, message, updated: NOW, transitioned: NOW })
        };
        let cases = [
            Case {
                name: "General: remove Progressing condition and do not estimate progress if deployment has no Progress Deadline",
                rollout: MOVING,
                deadline: None,
                before: WAS_PROGRESSING,
                after: None,
            },
            Case {
                name: "General: do not estimate progress of deployment with only one active ReplicaSet",
                rollout: ONLY_OLD,
                deadline: Some(60),
                before: WAS_COMPLETE,
                after: WAS_COMPLETE.and_then(unchanged),
            },
            Case {
                name: "DeploymentProgressing: dont update lastTransitionTime if deployment already has Progressing=True",
                rollout: MOVING,
                deadline: Some(60),
                before: WAS_PROGRESSING,
                after: progressing(START),
            },
            Case {
                name: "DeploymentProgressing: update everything if deployment has Progressing=False",
                rollout: MOVING,
                deadline: Some(60),
                before: WAS_TIMED_OUT,
                after: progressing(NOW),
            },
            Case {
                name: "DeploymentProgressing: create Progressing condition if it does not exist",
                rollout: MOVING,
                deadline: Some(60),
                before: None,
                after: progressing(NOW),
            },
            Case {
                name: "DeploymentComplete: dont update lastTransitionTime if deployment already has Progressing=True",
                rollout: COMPLETE,
                deadline: Some(60),
                before: WAS_PROGRESSING,
                after: foo_complete(START),
            },
            Case {
                name: "DeploymentComplete: update everything if deployment has Progressing=False",
                rollout: COMPLETE,
                deadline: Some(60),
                before: WAS_TIMED_OUT,
                after: foo_complete(NOW),
            },
            Case {
                name: "DeploymentComplete: create Progressing condition if it does not exist",
                rollout: COMPLETE,
                deadline: Some(60),
                before: None,
                after: foo_complete(NOW),
            },
            Case {
                name: "DeploymentComplete: defend against NPE when newRS=nil",
                rollout: EMPTY,
                deadline: Some(60),
                before: WAS_PROGRESSING,
                after: complete("Deployment \"web\" has successfully progressed.", START),
            },
            Case {
                name: "DeploymentTimedOut: update status if rollout exceeds Progress Deadline",
                rollout: STUCK,
                deadline: Some(60),
                before: WAS_PROGRESSING,
                after: timed_out(),
            },
            Case {
                name: "DeploymentTimedOut: do not update status if deployment has existing timedOut condition",
                rollout: STUCK,
                deadline: Some(60),
                before: WAS_TIMED_OUT,
                after: WAS_TIMED_OUT.and_then(unchanged),
            },
        ];
        cases.into_iter().for_each(check);
    }

    #[test]
    fn names_the_deployment_without_new_replica_set() {
        let rollout = Rollout { desired: 3, status: (0, 0, 0), old: Some((3, 2)), new: None };
        let message = next(rollout, Some(600), None).unwrap().message;
        assert_eq!(message, "Deployment \"web\" is progressing.");
    }
}

#[test]
fn replica_failure_prefers_the_new_set() {
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
