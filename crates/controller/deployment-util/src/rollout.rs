//! Whether a rollout is complete, moves, or is stuck.

use kcm_api::{Deployment, DeploymentStatus, Time};

use crate::conditions::{condition_type::PROGRESSING, reason};

/// What upstream's clients send for "no limit".
const UNLIMITED: i32 = i32::MAX;

/// How long the rollout may stand still, in seconds; `None` when nobody minds.
///
/// Upstream counterpart: `HasProgressDeadline`.
pub fn progress_deadline(deployment: &Deployment) -> Option<i32> {
    deployment.spec.progress_deadline_seconds.filter(|seconds| *seconds != UNLIMITED)
}

/// How many old ReplicaSets to keep; `None` for all.
///
/// Upstream counterpart: `HasRevisionHistoryLimit`.
pub fn revision_history_limit(deployment: &Deployment) -> Option<i32> {
    deployment.spec.revision_history_limit.filter(|limit| *limit != UNLIMITED)
}

/// Whether all pods there are, are new and available, and `status` is about the present spec.
///
/// Upstream counterpart: `DeploymentComplete`.
pub fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let desired = deployment.replicas();
    status.updated_replicas == desired
        && status.replicas == desired
        && status.available_replicas == desired
        && status.observed_generation >= deployment.metadata.generation
}

/// Whether `new` is a step ahead of the Deployment's own status: more new pods, fewer old ones, more ready or
/// more available.
///
/// Upstream counterpart: `DeploymentProgressing`.
pub fn is_progressing(deployment: &Deployment, new: &DeploymentStatus) -> bool {
    let before = &deployment.status;
    let old_pods = |status: &DeploymentStatus| status.replicas.wrapping_sub(status.updated_replicas);
    new.updated_replicas > before.updated_replicas
        || old_pods(new) < old_pods(before)
        || new.ready_replicas > before.ready_replicas
        || new.available_replicas > before.available_replicas
}

/// Whether nothing has moved for longer than the deadline allows.
///
/// Upstream counterpart: `DeploymentTimedOut`. A rollout that is done cannot time out any more, one that has
/// timed out stays so until something moves.
///
/// `now` is not cut to seconds: the deadline must lie strictly before it.
pub fn has_timed_out(deployment: &Deployment, new: &DeploymentStatus, now: jiff::Timestamp) -> bool {
    let Some(deadline) = progress_deadline(deployment) else { return false };
    let Some(condition) = new.condition(PROGRESSING) else { return false };
    match condition.reason.as_str() {
        reason::NEW_REPLICA_SET_AVAILABLE => false,
        reason::TIMED_OUT => true,
        _ => {
            standing_since(condition.last_update_time, now) > jiff::SignedDuration::from_secs(deadline.into())
        }
    }
}

/// How long it is since a condition was last written; very long if it does not say when.
fn standing_since(updated: Option<Time>, now: jiff::Timestamp) -> jiff::SignedDuration {
    updated.map_or(jiff::SignedDuration::MAX, |time| time.age(now))
}

#[cfg(test)]
mod tests {
    use kcm_api::condition_status::{FALSE, TRUE};

    use super::*;
    use crate::{
        conditions,
        fixtures::{count, deployment, rolling},
    };

    fn status(
        replicas: i32,
        updated: i32,
        ready: i32,
        available: i32,
        observed_generation: i64,
    ) -> DeploymentStatus {
        DeploymentStatus {
            observed_generation,
            replicas,
            updated_replicas: updated,
            ready_replicas: ready,
            available_replicas: available,
            ..DeploymentStatus::default()
        }
    }

    /// `TestDeploymentComplete`, all six.
    #[test]
    fn deployment_complete_all_cases_as_upstream() {
        let cases = [
            ("not complete: min but not all pods become available", (5, 5, 5, 4), (1, 0), false),
            ("not complete: min availability is not honored", (5, 5, 5, 3), (1, 0), false),
            ("complete", (5, 5, 5, 5), (0, 0), true),
            ("not complete: all pods are available but not updated", (5, 5, 4, 5), (0, 0), false),
            ("not complete: still running old pods", (1, 2, 1, 1), (0, 1), false),
            ("not complete: one replica deployment never comes up", (1, 1, 1, 0), (1, 1), false),
        ];
        for (name, (desired, current, updated, available), (unavailable, surge), complete) in cases {
            let d = rolling(desired, count(surge), count(unavailable));
            assert_eq!(is_complete(&d, &status(current, updated, 0, available, 0)), complete, "{name}");
        }
    }

    #[test]
    fn deployment_with_a_spec_nobody_has_looked_at_is_not_complete() {
        let mut d = deployment(1);
        d.metadata.generation = 2;
        assert!(!is_complete(&d, &status(1, 1, 1, 1, 1)));
        assert!(is_complete(&d, &status(1, 1, 1, 1, 2)));
    }

    /// `TestDeploymentProgressing`, all seven.
    #[test]
    fn deployment_progressing_all_cases_as_upstream() {
        // All there are, updated, ready, available; before and after.
        let cases = [
            ("progressing: updated pods", [10, 4, 4, 4], [10, 6, 4, 4], true),
            ("not progressing", [10, 4, 4, 4], [10, 4, 4, 4], false),
            ("progressing: old pods removed", [10, 4, 6, 6], [8, 4, 6, 6], true),
            ("not progressing: less new pods", [10, 7, 3, 3], [10, 6, 3, 3], false),
            ("progressing: less overall but more new pods", [10, 4, 7, 7], [8, 8, 5, 5], true),
            ("progressing: more ready pods", [10, 10, 9, 8], [10, 10, 10, 8], true),
            ("progressing: more available pods", [10, 10, 10, 9], [10, 10, 10, 10], true),
        ];
        let told = |[all, updated, ready, available]: [i32; 4]| status(all, updated, ready, available, 0);
        for (name, before, after, progressing) in cases {
            let mut d = deployment(10);
            d.status = told(before);
            assert_eq!(is_progressing(&d, &told(after)), progressing, "{name}");
        }
    }

    fn timed_out_after(deadline: Option<i32>, seconds: i64, reason: &str) -> bool {
        let start = Time::from_unix(1_000_000);
        let mut d = deployment(1);
        d.spec.progress_deadline_seconds = deadline;
        let mut status = DeploymentStatus::default();
        conditions::set(&mut status, conditions::new(PROGRESSING, TRUE, reason, "", start));
        has_timed_out(&d, &status, Time::from_unix(1_000_000 + seconds).timestamp())
    }

    /// `TestDeploymentTimedOut`, all five.
    #[test]
    fn deployment_timed_out_all_cases_as_upstream() {
        let cases = [
            ("nil progressDeadlineSeconds specified - no timeout", None, 11, "", false),
            ("infinite progressDeadlineSeconds specified - no timeout", Some(i32::MAX), 11, "", false),
            (
                "progressDeadlineSeconds: 10s, now - started => 00:01:20 - 00:01:09 => 11s",
                Some(10),
                11,
                "",
                true,
            ),
            (
                "progressDeadlineSeconds: 10s, now - started => 00:01:20 - 00:01:11 => 9s",
                Some(10),
                9,
                "",
                false,
            ),
            ("previous status was a complete deployment", None, 11, reason::NEW_REPLICA_SET_AVAILABLE, false),
        ];
        for (name, deadline, seconds, reason, timed_out) in cases {
            assert_eq!(timed_out_after(deadline, seconds, reason), timed_out, "{name}");
        }
        assert!(!timed_out_after(Some(1), 5, reason::NEW_REPLICA_SET_AVAILABLE), "complete, with a deadline");
    }

    #[test]
    fn deployment_at_its_deadline_has_not_timed_out_and_stays_so_once_it_has() {
        assert!(!timed_out_after(Some(10), 10, ""));
        assert!(timed_out_after(Some(10), 0, reason::TIMED_OUT));
        assert!(timed_out_after(Some(-1), 0, ""), "a deadline before the start");
    }

    #[test]
    fn deployment_timed_out_needs_a_condition_and_takes_one_without_time_as_ancient() {
        let mut d = deployment(1);
        d.spec.progress_deadline_seconds = Some(i32::MAX - 1);
        let mut status = DeploymentStatus::default();
        let now = Time::from_unix(1_700_000_000).timestamp();
        assert!(!has_timed_out(&d, &status, now));
        let mut condition = conditions::new(PROGRESSING, FALSE, "", "", Time::from_unix(0));
        condition.last_update_time = None;
        conditions::set(&mut status, condition);
        assert!(has_timed_out(&d, &status, now));
    }
}
