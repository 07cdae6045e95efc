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
        let of = |desired, status: DeploymentStatus, unavailable, surge| {
            is_complete(&rolling(desired, count(surge), count(unavailable)), &status)
        };
        assert!(!of(5, status(5, 4, 5, 5, 0), 1, 0), "not complete: min but not all pods become available");
        assert!(!of(5, status(5, 5, 5, 4, 0), 1, 0), "not complete: all replicas updated, one not available");
        assert!(of(5, status(5, 5, 5, 5, 0), 1, 0), "complete");
        assert!(!of(5, status(6, 5, 6, 5, 0), 0, 0), "not complete: an old pod is left");
        assert!(!of(1, status(2, 1, 2, 1, 0), 0, 1), "not complete: one pod too many");
        assert!(!of(1, status(1, 0, 1, 1, 0), 0, 0), "not complete: nothing updated");
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
        let of = |before: DeploymentStatus, after: DeploymentStatus| {
            let mut d = deployment(10);
            d.status = before;
            is_progressing(&d, &after)
        };
        assert!(of(status(10, 4, 0, 0, 0), status(10, 6, 0, 0, 0)), "updated pods increase");
        assert!(!of(status(10, 4, 0, 0, 0), status(10, 4, 0, 0, 0)), "nothing");
        assert!(of(status(10, 4, 0, 0, 0), status(8, 4, 0, 0, 0)), "old pods removed");
        assert!(!of(status(10, 7, 0, 0, 0), status(10, 6, 0, 0, 0)), "fewer new pods");
        assert!(of(status(10, 4, 0, 0, 0), status(8, 8, 0, 0, 0)), "fewer overall but more new");
        assert!(of(status(10, 10, 8, 0, 0), status(10, 10, 9, 0, 0)), "more ready");
        assert!(of(status(10, 10, 10, 8, 0), status(10, 10, 10, 9, 0)), "more available");
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
        assert!(!timed_out_after(None, 1, ""), "no deadline");
        assert!(!timed_out_after(Some(i32::MAX), 1, ""), "infinite deadline");
        assert!(timed_out_after(Some(10), 11, ""), "more than the deadline");
        assert!(!timed_out_after(Some(10), 9, ""), "less than the deadline");
        assert!(!timed_out_after(Some(1), 5, reason::NEW_REPLICA_SET_AVAILABLE), "complete before");
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
