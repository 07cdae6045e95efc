//! State of a rollout: complete, progressing or timed out.

use std::num::Wrapping;

use jiff::{SignedDuration, Timestamp};
use kcm_api::{Deployment, DeploymentStatus, condition_type::PROGRESSING};

use crate::conditions::{reason, time_since_update};

/// Value of a limit that API clients set for "unlimited".
const UNLIMITED: i32 = i32::MAX;

/// Returns the progress deadline in seconds. `None` if there is none.
///
/// Upstream counterpart: `HasProgressDeadline`.
pub fn progress_deadline(deployment: &Deployment) -> Option<i32> {
    deployment.spec.progress_deadline_seconds.filter(|seconds| *seconds != UNLIMITED)
}

/// Returns the number of old ReplicaSets to keep. `None` if all are kept.
///
/// Upstream counterpart: `HasRevisionHistoryLimit`.
pub fn revision_history_limit(deployment: &Deployment) -> Option<i32> {
    deployment.spec.revision_history_limit.filter(|limit| *limit != UNLIMITED)
}

/// Returns `true` if all desired pods are updated and available, no other pods exist, and `status` is of the current
/// generation.
///
/// Upstream counterpart: `DeploymentComplete`.
///
/// ```
/// use kcm_api::{Deployment, DeploymentStatus};
/// use kcm_deployment_util::rollout::is_complete;
///
/// let mut deployment = Deployment::default();
/// deployment.spec.replicas = Some(3);
/// let status = DeploymentStatus { replicas: 3, updated_replicas: 3, available_replicas: 3, ..Default::default() };
/// assert!(is_complete(&deployment, &status));
/// ```
pub fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let desired = deployment.replicas();
    status.updated_replicas == desired
        && status.replicas == desired
        && status.available_replicas == desired
        && status.observed_generation >= deployment.metadata.generation
}

/// Returns `true` if `new_status` is ahead of the Deployment's status: more updated, ready or available pods, or fewer
/// old ones.
///
/// Upstream counterpart: `DeploymentProgressing`.
pub fn is_progressing(deployment: &Deployment, new_status: &DeploymentStatus) -> bool {
    let status = &deployment.status;
    let old_replicas =
        |status: &DeploymentStatus| Wrapping(status.replicas) - Wrapping(status.updated_replicas);
    new_status.updated_replicas > status.updated_replicas
        || old_replicas(new_status) < old_replicas(status)
        || new_status.ready_replicas > status.ready_replicas
        || new_status.available_replicas > status.available_replicas
}

/// Returns `true` if the condition `Progressing` was last updated longer ago than the progress deadline.
///
/// The elapsed time must exceed the deadline; `now` is not truncated to seconds. A complete rollout does not time out. A
/// rollout that has timed out remains so until it progresses.
///
/// Upstream counterpart: `DeploymentTimedOut`.
pub fn has_timed_out(deployment: &Deployment, new_status: &DeploymentStatus, now: Timestamp) -> bool {
    let Some(deadline) = progress_deadline(deployment) else { return false };
    let Some(condition) = new_status.condition(PROGRESSING) else { return false };
    match condition.reason.as_str() {
        reason::NEW_REPLICA_SET_AVAILABLE => false,
        reason::TIMED_OUT => true,
        _ => time_since_update(condition, now) > SignedDuration::from_secs(deadline.into()),
    }
}

#[cfg(test)]
mod tests {
    use kcm_api::{
        Time,
        condition_status::{FALSE, TRUE},
    };

    use super::*;
    use crate::{
        conditions,
        fixtures::{count, deployment, rolling},
    };

    /// `TestDeploymentComplete`.
    #[test]
    fn is_complete_upstream_cases() {
        struct Case {
            name: &'static str,
            desired: i32,
            replicas: i32,
            updated: i32,
            available: i32,
            max_unavailable: i32,
            max_surge: i32,
            complete: bool,
        }
        let cases = [
            Case {
                name: "not complete: min but not all pods become available",
                desired: 5,
                replicas: 5,
                updated: 5,
                available: 4,
                max_unavailable: 1,
                max_surge: 0,
                complete: false,
            },
            Case {
                name: "not complete: min availability is not honored",
                desired: 5,
                replicas: 5,
                updated: 5,
                available: 3,
                max_unavailable: 1,
                max_surge: 0,
                complete: false,
            },
            Case {
                name: "complete",
                desired: 5,
                replicas: 5,
                updated: 5,
                available: 5,
                max_unavailable: 0,
                max_surge: 0,
                complete: true,
            },
            Case {
                name: "not complete: all pods are available but not updated",
                desired: 5,
                replicas: 5,
                updated: 4,
                available: 5,
                max_unavailable: 0,
                max_surge: 0,
                complete: false,
            },
            Case {
                name: "not complete: still running old pods",
                desired: 1,
                replicas: 2,
                updated: 1,
                available: 1,
                max_unavailable: 0,
                max_surge: 1,
                complete: false,
            },
            Case {
                name: "not complete: one replica deployment never comes up",
                desired: 1,
                replicas: 1,
                updated: 1,
                available: 0,
                max_unavailable: 1,
                max_surge: 1,
                complete: false,
            },
        ];
        for case in cases {
            let d = rolling(case.desired, count(case.max_surge), count(case.max_unavailable));
            let status = DeploymentStatus {
                replicas: case.replicas,
                updated_replicas: case.updated,
                available_replicas: case.available,
                ..DeploymentStatus::default()
            };
            assert_eq!(is_complete(&d, &status), case.complete, "{}", case.name);
        }
    }

    #[test]
    fn unobserved_generation_is_not_complete() {
        let mut d = deployment(1);
        d.metadata.generation = 2;
        let mut status = DeploymentStatus {
            observed_generation: 1,
            replicas: 1,
            updated_replicas: 1,
            available_replicas: 1,
            ..DeploymentStatus::default()
        };
        assert!(!is_complete(&d, &status));
        status.observed_generation = 2;
        assert!(is_complete(&d, &status));
    }

    /// `TestDeploymentProgressing`. Numbers of replicas, updated, ready and available pods.
    #[test]
    fn is_progressing_upstream_cases() {
        struct Case {
            name: &'static str,
            before: [i32; 4],
            after: [i32; 4],
            progressing: bool,
        }
        let case = |name, before, after, progressing| Case { name, before, after, progressing };
        let cases = [
            case("progressing: updated pods", [10, 4, 4, 4], [10, 6, 4, 4], true),
            case("not progressing", [10, 4, 4, 4], [10, 4, 4, 4], false),
            case("progressing: old pods removed", [10, 4, 6, 6], [8, 4, 6, 6], true),
            case("not progressing: less new pods", [10, 7, 3, 3], [10, 6, 3, 3], false),
            case("progressing: less overall but more new pods", [10, 4, 7, 7], [8, 8, 5, 5], true),
            case("progressing: more ready pods", [10, 10, 9, 8], [10, 10, 10, 8], true),
            case("progressing: more available pods", [10, 10, 10, 9], [10, 10, 10, 10], true),
        ];
        let status =
            |[replicas, updated_replicas, ready_replicas, available_replicas]: [i32; 4]| DeploymentStatus {
                replicas,
                updated_replicas,
                ready_replicas,
                available_replicas,
                ..DeploymentStatus::default()
            };
        for case in cases {
            let mut d = deployment(10);
            d.status = status(case.before);
            assert_eq!(is_progressing(&d, &status(case.after)), case.progressing, "{}", case.name);
        }
    }

    mod timeout {
        use super::*;

        /// Returns `true` if the rollout has timed out `elapsed` seconds after the last update of its condition.
        fn check(deadline: Option<i32>, elapsed: i64, reason: &str) -> bool {
            const START: i64 = 1_000_000;
            let mut d = deployment(1);
            d.spec.progress_deadline_seconds = deadline;
            let mut status = DeploymentStatus::default();
            let start = Time::from_unix(START);
            conditions::set(&mut status, conditions::new(PROGRESSING, TRUE, reason, "", start));
            has_timed_out(&d, &status, Time::from_unix(START + elapsed).timestamp())
        }

        /// `TestDeploymentTimedOut`.
        #[test]
        fn has_timed_out_upstream_cases() {
            struct Case {
                name: &'static str,
                deadline: Option<i32>,
                elapsed: i64,
                reason: &'static str,
                timed_out: bool,
            }
            let cases = [
                Case {
                    name: "nil progressDeadlineSeconds specified - no timeout",
                    deadline: None,
                    elapsed: 11,
                    reason: "",
                    timed_out: false,
                },
                Case {
                    name: "infinite progressDeadlineSeconds specified - no timeout",
                    deadline: Some(i32::MAX),
                    elapsed: 11,
                    reason: "",
                    timed_out: false,
                },
                Case {
                    name: "progressDeadlineSeconds: 10s, now - started => 00:01:20 - 00:01:09 => 11s",
                    deadline: Some(10),
                    elapsed: 11,
                    reason: "",
                    timed_out: true,
                },
                Case {
                    name: "progressDeadlineSeconds: 10s, now - started => 00:01:20 - 00:01:11 => 9s",
                    deadline: Some(10),
                    elapsed: 9,
                    reason: "",
                    timed_out: false,
                },
                Case {
                    name: "previous status was a complete deployment",
                    deadline: None,
                    elapsed: 11,
                    reason: reason::NEW_REPLICA_SET_AVAILABLE,
                    timed_out: false,
                },
            ];
            for case in cases {
                assert_eq!(check(case.deadline, case.elapsed, case.reason), case.timed_out, "{}", case.name);
            }
        }

        #[test]
        fn is_not_reached_by_a_complete_rollout() {
            assert!(!check(Some(1), 5, reason::NEW_REPLICA_SET_AVAILABLE));
        }

        #[test]
        fn is_not_reached_at_the_deadline() {
            assert!(!check(Some(10), 10, ""));
            assert!(check(Some(-1), 0, ""), "negative deadline");
        }

        #[test]
        fn remains() {
            assert!(check(Some(10), 0, reason::TIMED_OUT));
        }

        #[test]
        fn requires_a_condition() {
            let mut d = deployment(1);
            d.spec.progress_deadline_seconds = Some(1);
            assert!(!has_timed_out(&d, &DeploymentStatus::default(), Time::from_unix(100).timestamp()));
        }

        #[test]
        fn is_reached_by_a_condition_without_time() {
            let mut d = deployment(1);
            d.spec.progress_deadline_seconds = Some(i32::MAX - 1);
            let mut condition = conditions::new(PROGRESSING, FALSE, "", "", Time::from_unix(0));
            condition.last_update_time = None;
            let mut status = DeploymentStatus::default();
            conditions::set(&mut status, condition);
            assert!(has_timed_out(&d, &status, Time::from_unix(1_700_000_000).timestamp()));
        }
    }
}
