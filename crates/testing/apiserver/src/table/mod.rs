//! Objects as rows of a table, for `kubectl get`.
//!
//! kubectl does not know how to print a Deployment; it asks for a `Table` and prints what it gets. Without
//! this it would show names and ages only.
//!
//! Upstream counterpart: `pkg/printers/internalversion`. Wrapping rows into a `Table`, and the objects that go
//! with them, is the business of whoever answers the request.

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

/// A column's definition, in the form a Table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Column {
    /// What stands above it; kubectl writes it in capitals.
    pub name: &'static str,
    /// `string`, `integer` or `date`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `name` for the column with the object's name, else empty.
    pub format: &'static str,
    /// What it holds.
    pub description: &'static str,
    /// 0 is always shown, 1 only with `-o wide`.
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
    Column { format: "name", ..Column::text("Name", "What the object is called; unique in its namespace.") };
const AGE: Column = Column::text("Age", "How long ago the object was created.");

/// How objects of a kind are printed.
struct Printer {
    columns: &'static [Column],
    row: fn(&Value, Timestamp) -> Vec<Value>,
}

/// The columns for objects of `kind`.
pub fn columns(kind: &str) -> &'static [Column] {
    printer(kind).columns
}

/// The cells of `object`, one for each of [`columns`]. Ages are as of `now`.
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
        "DaemonSet" => &workload::DAEMON_SET,
        "StatefulSet" => &workload::STATEFUL_SET,
        "ControllerRevision" => &workload::CONTROLLER_REVISION,
        "Pod" => &pod::POD,
        "PodDisruptionBudget" => &policy::POD_DISRUPTION_BUDGET,
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

/// A text, or `<none>`.
fn or_none(text: &str) -> Value {
    Value::from(if text.is_empty() { "<none>" } else { text })
}
