//! Table representation of objects for `kubectl get`.
//!
//! kubectl requests a `Table` and prints its cells. Without this module it would print only names and ages.
//!
//! Upstream counterpart: `pkg/printers/internalversion`. The HTTP layer builds the `Table` from the rows.

use std::sync::Arc;

use jiff::Timestamp;
use kcm_apiserver::Table;
use serde::Serialize;
use serde_json::{Value, json};

mod age;
mod custom;
mod plain;
mod pod;
mod policy;
mod stored;
#[cfg(test)]
mod tests;
mod workload;

/// Column definition of a Table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Column {
    /// Name. kubectl prints it in upper case.
    name: &'static str,
    /// `string`, `integer` or `date`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// `name` for the column with the object's name, otherwise empty.
    format: &'static str,
    /// Description.
    description: &'static str,
    /// 0 for columns that are always printed, 1 for columns printed with `-o wide`.
    priority: i32,
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

impl Table for &'static Printer {
    fn columns(&self) -> Value {
        json!(self.columns)
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        (self.row)(object, now)
    }
}

/// Returns the table of a kind, or with the columns of a custom resource.
pub(crate) fn of(kind: &str, custom: Option<&Value>) -> Arc<dyn Table> {
    match custom {
        Some(columns) => Arc::new(custom::Columns::parse(columns)),
        None => match stored::columns(kind) {
            Some(columns) => Arc::new(columns),
            None => Arc::new(printer(kind)),
        },
    }
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
