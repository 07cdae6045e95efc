//! Differences between two statuses of a Deployment.

use std::fmt;

use kcm_api::DeploymentStatus;

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
    pub(super) fn between(before: &DeploymentStatus, after: &DeploymentStatus) -> Vec<Self> {
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
