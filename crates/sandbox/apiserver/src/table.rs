//! Table representation of objects for `kubectl get`.
//!
//! kubectl requests a `Table` and prints its cells. Without this module it would print only names and ages.
//!
//! Upstream counterpart: `pkg/printers/internalversion`. The HTTP layer builds the `Table` from the rows.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

mod age;
mod plain;
mod pod;
mod policy;
#[cfg(test)]
mod tests;
mod workload;

pub(crate) use age::since;

/// Column definition of a Table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Name. kubectl prints it in upper case.
    pub name: &'static str,
    /// `string`, `integer` or `date`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `name` for the column with the object's name, otherwise empty.
    pub format: &'static str,
    /// Description.
    pub description: &'static str,
    /// 0 for columns that are always printed, 1 for columns printed with `-o wide`.
    pub priority: i32,
}

impl Column {
    const fn text(name: &'static str, description: &'static str) -> Self {
        Self { name, kind: "string", format: "", description, priority: 0 }
    }

    const fn count(name: &'static str, description: &'static str) -> Self {
        Self { name, kind: "integer", format: "", description, priority: 0 }
    }

    const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }
}

const NAME: Column =
    Column { format: "name", ..Column::text("Name", "Name of the object, unique within its namespace.") };
const AGE: Column = Column::text("Age", "Time since the creation of the object.");

/// Columns and rows of a kind.
struct Printer {
    columns: &'static [Column],
    row: fn(&Value, Timestamp) -> Vec<Value>,
}

/// Returns the columns of `kind`.
pub fn columns(kind: &str) -> &'static [Column] {
    printer(kind).columns
}

/// Returns the cells of `object`, one per [column](columns). Ages are relative to `now`.
///
/// ```
/// # use {kcm_apiserver::table, serde_json::json};
/// let lease = json!({"metadata": {"name": "lock", "creationTimestamp": "2026-01-01T00:00:00Z"},
///     "spec": {"holderIdentity": "me"}});
/// let row = table::row("Lease", &lease, "2026-01-01T00:05:30Z".parse()?);
/// assert_eq!(row, [json!("lock"), json!("me"), json!("5m30s")]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn row(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    (printer(kind).row)(object, now)
}

fn printer(kind: &str) -> &'static Printer {
    match kind {
        "Deployment" => &workload::DEPLOYMENT,
        "ReplicaSet" => &workload::REPLICA_SET,
        "ReplicationController" => &workload::REPLICATION_CONTROLLER,
        "Pod" => &pod::POD,
        "PodDisruptionBudget" => &policy::POD_DISRUPTION_BUDGET,
        "CustomResourceDefinition" => &policy::CUSTOM_RESOURCE_DEFINITION,
        "ResourceQuota" => &policy::RESOURCE_QUOTA,
        "PriorityClass" => &policy::PRIORITY_CLASS,
        "HorizontalPodAutoscaler" => &policy::HORIZONTAL_POD_AUTOSCALER,
        "Event" => &plain::EVENT,
        "Namespace" => &plain::NAMESPACE,
        "Node" => &plain::NODE,
        "Lease" => &plain::LEASE,
        "ConfigMap" => &plain::CONFIG_MAP,
        "Secret" => &plain::SECRET,
        "Service" => &plain::SERVICE,
        _ => &plain::OTHER,
    }
}

/// Returns the string, or `<none>` if it is empty.
fn or_none(text: &str) -> Value {
    Value::from(if text.is_empty() { "<none>" } else { text })
}
