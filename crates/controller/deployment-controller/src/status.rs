//! Status of a Deployment, computed from its ReplicaSets (US-4.11).

use std::{fmt, num::Wrapping};

use kcm_api::{
    Deployment, DeploymentStatus,
    condition_status::{FALSE, TRUE},
    condition_type::AVAILABLE,
};
use kcm_clock::Timestamp;
use kcm_deployment_util::{
    conditions::{self, reason},
    fenceposts::availability_threshold,
    replica_sets::{
        ReplicaSetSplit, actual_replica_count, available_replica_count, ready_replica_count, replica_count,
        terminating_replica_count,
    },
};

/// Returns the status of `deployment` without changes of the condition `Progressing`.
///
/// Other conditions and unknown fields are kept. If `terminating_replicas` is `false`, the status does not contain that
/// field.
///
/// Upstream counterpart: `calculateStatus`.
pub(crate) fn calculate_status(
    deployment: &Deployment,
    replica_sets: &ReplicaSetSplit,
    terminating_replicas: bool,
    now: Timestamp,
) -> DeploymentStatus {
    let current = &deployment.status;
    let available_replicas = available_replica_count(replica_sets.all());
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: actual_replica_count(replica_sets.all()),
        updated_replicas: actual_replica_count(&replica_sets.new),
        ready_replicas: ready_replica_count(replica_sets.all()),
        available_replicas,
        // Of `spec.replicas`, not of the actual pods (US-9.13).
        unavailable_replicas: (Wrapping(replica_count(replica_sets.all())) - Wrapping(available_replicas))
            .0
            .max(0),
        terminating_replicas: if terminating_replicas {
            terminating_replica_count(replica_sets.all())
        } else {
            None
        },
        conditions: current.conditions.clone(),
        collision_count: current.collision_count,
        extra: current.extra.clone(),
    };
    let (condition_status, reason, message) = if available_replicas >= availability_threshold(deployment) {
        (TRUE, reason::MINIMUM_REPLICAS_AVAILABLE, "Deployment has minimum availability.")
    } else {
        (FALSE, reason::MINIMUM_REPLICAS_UNAVAILABLE, "Deployment does not have minimum availability.")
    };
    let condition = conditions::new(AVAILABLE, condition_status, reason, message, now.into());
    conditions::set(&mut status, condition);
    status
}

/// Difference between two statuses of a Deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatusChange {
    /// A number has changed.
    Number {
        /// Name of the field in the API.
        field: &'static str,
        /// Previous value. `None` if the field was missing.
        from: Option<i64>,
        /// New value. `None` if the field is missing.
        to: Option<i64>,
    },
    /// A condition was added or changed.
    Condition {
        /// Type.
        type_: String,
        /// New status.
        status: String,
        /// New reason.
        reason: String,
    },
    /// A condition was removed.
    ConditionRemoved {
        /// Type.
        type_: String,
    },
    /// Only the order of the conditions has changed.
    ConditionOrder,
}

impl StatusChange {
    /// Returns the differences between two different statuses.
    pub(crate) fn between(before: &DeploymentStatus, after: &DeploymentStatus) -> Vec<Self> {
        let mut changes = Vec::new();
        let mut number = |field, from: Option<i64>, to: Option<i64>| {
            if from != to {
                changes.push(Self::Number { field, from, to });
            }
        };
        number("observedGeneration", Some(before.observed_generation), Some(after.observed_generation));
        let mut count = |field, from: i32, to: i32| number(field, Some(i64::from(from)), Some(i64::from(to)));
        count("replicas", before.replicas, after.replicas);
        count("updatedReplicas", before.updated_replicas, after.updated_replicas);
        count("readyReplicas", before.ready_replicas, after.ready_replicas);
        count("availableReplicas", before.available_replicas, after.available_replicas);
        count("unavailableReplicas", before.unavailable_replicas, after.unavailable_replicas);
        let terminating = |status: &DeploymentStatus| status.terminating_replicas.map(i64::from);
        number("terminatingReplicas", terminating(before), terminating(after));
        for condition in &after.conditions {
            if !before.conditions.contains(condition) {
                changes.push(Self::Condition {
                    type_: condition.type_.clone(),
                    status: condition.status.clone(),
                    reason: condition.reason.clone(),
                });
            }
        }
        for condition in &before.conditions {
            if after.condition(&condition.type_).is_none() {
                changes.push(Self::ConditionRemoved { type_: condition.type_.clone() });
            }
        }
        if changes.is_empty() {
            changes.push(Self::ConditionOrder);
        }
        changes
    }
}

impl fmt::Display for StatusChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: &Option<i64>| value.map_or("unset".to_owned(), |value| value.to_string());
        match self {
            Self::Number { field, from, to } => write!(f, "{field} {}→{}", number(from), number(to)),
            Self::Condition { type_, status, reason } => write!(f, "{type_}={status} ({reason})"),
            Self::ConditionRemoved { type_ } => write!(f, "{type_} removed"),
            Self::ConditionOrder => f.write_str("order of conditions"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    mod changes {
        use super::*;

        #[test]
        fn include_conditions() {
            let condition = |type_: &str, status: &str| {
                conditions::new(type_, status, "Because", "", kcm_api::Time::from_unix(0))
            };
            let status = |conditions: Vec<_>| DeploymentStatus { conditions, ..DeploymentStatus::default() };
            let before = status(vec![condition("A", TRUE), condition("B", TRUE)]);
            let after = status(vec![condition("A", FALSE)]);
            let changes: Vec<_> =
                StatusChange::between(&before, &after).iter().map(ToString::to_string).collect();
            assert_eq!(changes, ["A=False (Because)", "B removed"]);
            let reordered = status(vec![condition("B", TRUE), condition("A", TRUE)]);
            assert_eq!(StatusChange::between(&before, &reordered), [StatusChange::ConditionOrder]);
        }
    }
}
