//! Conditions of a Deployment: their reasons, and how a condition is set.

use jiff::{SignedDuration, Timestamp};
use kcm_api::{DeploymentCondition, DeploymentStatus, ReplicaSetCondition, Time};

/// Reasons of a Deployment's conditions.
pub mod reason {
    /// At least the minimum number of replicas is available.
    pub const MINIMUM_REPLICAS_AVAILABLE: &str = "MinimumReplicasAvailable";
    /// Fewer than the minimum number of replicas are available.
    pub const MINIMUM_REPLICAS_UNAVAILABLE: &str = "MinimumReplicasUnavailable";
    /// A pod was created, deleted, or became ready or available.
    pub const REPLICA_SET_UPDATED: &str = "ReplicaSetUpdated";
    /// The new ReplicaSet could not be created. Also the reason of an event.
    pub const FAILED_REPLICA_SET_CREATE: &str = "ReplicaSetCreateError";
    /// The new ReplicaSet was created.
    pub const NEW_REPLICA_SET: &str = "NewReplicaSetCreated";
    /// The new ReplicaSet existed already.
    pub const FOUND_NEW_REPLICA_SET: &str = "FoundNewReplicaSet";
    /// The rollout is complete.
    pub const NEW_REPLICA_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
    /// The rollout exceeded its progress deadline.
    pub const TIMED_OUT: &str = "ProgressDeadlineExceeded";
    /// The rollout is paused.
    pub const PAUSED: &str = "DeploymentPaused";
    /// The rollout is resumed.
    pub const RESUMED: &str = "DeploymentResumed";
}

/// Returns a condition whose times are both `now`.
///
/// Upstream counterpart: `NewDeploymentCondition`.
pub fn new(
    type_: &str,
    status: &str,
    reason: &str,
    message: impl Into<String>,
    now: Time,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        last_update_time: Some(now),
        last_transition_time: Some(now),
        reason: reason.to_owned(),
        message: message.into(),
        ..DeploymentCondition::default()
    }
}

/// Sets `condition` in `status`, in place of the condition of its type.
///
/// | Status and reason | Effect |
/// |---|---|
/// | both equal | none: times and message are kept |
/// | equal status, other reason | replaced; the last transition time is kept |
/// | other status | replaced |
///
/// A replaced condition moves to the end of the list (US-4.11).
///
/// Upstream counterpart: `SetDeploymentCondition`.
///
/// ```
/// use kcm_api::{DeploymentStatus, Time};
/// use kcm_deployment_util::conditions;
///
/// let now = Time::from_unix(1_800_000_000);
/// let mut status = DeploymentStatus::default();
/// let paused = conditions::new("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused", now);
/// conditions::set(&mut status, paused);
/// assert_eq!(status.conditions[0].reason, "DeploymentPaused");
/// ```
pub fn set(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    if let Some(current) = status.condition(&condition.type_)
        && current.status == condition.status
    {
        if current.reason == condition.reason {
            return;
        }
        condition.last_transition_time = current.last_transition_time;
    }
    remove(status, &condition.type_);
    status.conditions.push(condition);
}

/// Removes the conditions of type `type_` from `status`.
///
/// Upstream counterpart: `RemoveDeploymentCondition`.
pub fn remove(status: &mut DeploymentStatus, type_: &str) {
    status.conditions.retain(|condition| condition.type_ != type_);
}

/// Returns the time since the last update of `condition`, or the maximum if the condition has no such time.
///
/// `now` is not truncated to seconds.
pub fn time_since_update(condition: &DeploymentCondition, now: Timestamp) -> SignedDuration {
    condition.last_update_time.map_or(SignedDuration::MAX, |time| time.age(now))
}

/// Returns the Deployment's counterpart of a ReplicaSet's condition.
///
/// Both times are the transition time of the ReplicaSet's condition, so that an unchanged failure does not change the
/// status of the Deployment.
///
/// Upstream counterpart: `ReplicaSetToDeploymentCondition`.
pub fn from_replica_set(condition: &ReplicaSetCondition) -> DeploymentCondition {
    DeploymentCondition {
        type_: condition.type_.clone(),
        status: condition.status.clone(),
        last_update_time: condition.last_transition_time,
        last_transition_time: condition.last_transition_time,
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        ..DeploymentCondition::default()
    }
}

#[cfg(test)]
mod tests {
    use kcm_api::{
        condition_status::{FALSE, TRUE},
        condition_type,
    };

    use super::*;

    fn earlier() -> Time {
        Time::from_unix(0)
    }

    fn later() -> Time {
        Time::from_unix(100)
    }

    fn progressing() -> DeploymentCondition {
        new(condition_type::PROGRESSING, FALSE, "ForSomeReason", "", earlier())
    }

    fn available() -> DeploymentCondition {
        new(condition_type::AVAILABLE, TRUE, "AwesomeController", "", earlier())
    }

    fn status(conditions: &[DeploymentCondition]) -> DeploymentStatus {
        DeploymentStatus { conditions: conditions.to_vec(), ..DeploymentStatus::default() }
    }

    /// `TestGetCondition`.
    #[test]
    fn get_condition_upstream_cases() {
        let status = status(&[progressing(), available()]);
        let cases = [
            ("condition exists", condition_type::AVAILABLE, true),
            ("condition does not exist", condition_type::REPLICA_FAILURE, false),
        ];
        for (name, type_, exists) in cases {
            assert_eq!(status.condition(type_).is_some(), exists, "{name}");
        }
    }

    /// `TestSetCondition`.
    #[test]
    fn set_condition_upstream_cases() {
        let other = || new(condition_type::PROGRESSING, TRUE, "BecauseItIs", "", earlier());
        let cases = [
            ("set for the first time", vec![], available(), vec![available()]),
            ("simple set", vec![progressing()], available(), vec![progressing(), available()]),
            ("overwrite", vec![progressing()], other(), vec![other()]),
        ];
        for (name, before, condition, after) in cases {
            let mut s = status(&before);
            set(&mut s, condition);
            assert_eq!(s, status(&after), "{name}");
        }
    }

    #[test]
    fn set_with_equal_status_and_reason_changes_nothing() {
        let mut s = status(&[progressing(), available()]);
        set(&mut s, new(condition_type::PROGRESSING, FALSE, "ForSomeReason", "another text", later()));
        assert_eq!(s, status(&[progressing(), available()]));
    }

    #[test]
    fn set_with_new_reason_keeps_the_transition_time() {
        let mut s = status(&[progressing(), available()]);
        set(&mut s, new(condition_type::PROGRESSING, FALSE, "Other", "", later()));
        let types: Vec<_> = s.conditions.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(types, [condition_type::AVAILABLE, condition_type::PROGRESSING]);
        let moved = s.condition(condition_type::PROGRESSING).unwrap();
        assert_eq!((moved.last_transition_time, moved.last_update_time), (Some(earlier()), Some(later())));
    }

    #[test]
    fn set_with_new_status_sets_the_transition_time() {
        let mut s = status(&[progressing()]);
        set(&mut s, new(condition_type::PROGRESSING, TRUE, "ForSomeReason", "", later()));
        assert_eq!(s.conditions[0].last_transition_time, Some(later()));
    }

    /// `TestRemoveCondition`.
    #[test]
    fn remove_condition_upstream_cases() {
        let both = || vec![progressing(), available()];
        let cases = [
            ("remove from empty status", vec![], condition_type::PROGRESSING, vec![]),
            ("simple remove", vec![progressing()], condition_type::PROGRESSING, vec![]),
            ("doesn't remove anything", both(), condition_type::REPLICA_FAILURE, both()),
        ];
        for (name, before, type_, after) in cases {
            let mut s = status(&before);
            remove(&mut s, type_);
            assert_eq!(s, status(&after), "{name}");
        }
    }

    #[test]
    fn from_replica_set_uses_the_transition_time() {
        let failure = ReplicaSetCondition {
            type_: condition_type::REPLICA_FAILURE.to_owned(),
            status: TRUE.to_owned(),
            last_transition_time: Some(later()),
            reason: "FailedCreate".to_owned(),
            message: "quota".to_owned(),
            ..ReplicaSetCondition::default()
        };
        let expected = new(condition_type::REPLICA_FAILURE, TRUE, "FailedCreate", "quota", later());
        assert_eq!(from_replica_set(&failure), expected);
    }
}
