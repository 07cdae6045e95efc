//! ComponentStatuses, which are not stored.
//!
//! Upstream counterpart: `pkg/registry/core/componentstatus`, which probes the components.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    media::Representation,
    program::Program,
    protobuf,
    query::Query,
    response::{self, ApiResponse},
};
use crate::{
    ApiServer, ApiStatus, FieldSelector, LabelSelector, Resource, SelectorError, StatusReason,
    status::StatusDetails,
};

pub(super) const KIND: &str = "ComponentStatus";
pub(super) const PLURAL: &str = "componentstatuses";
pub(super) const SINGULAR: &str = "componentstatus";
pub(super) const SHORT_NAME: &str = "cs";

const WARNING: &str = "v1 ComponentStatus is deprecated in v1.19+";

/// Responds to a request for all components, or for the component `name`.
pub(super) fn serve(
    server: &ApiServer,
    method: &Method,
    name: Option<&str>,
    query: &Query,
    accept: &str,
    program: &Program,
) -> Result<ApiResponse, ApiStatus> {
    if method != Method::GET {
        return Err(ApiStatus::method_not_allowed());
    }
    if query.flag("watch") == Some(true) {
        let message = format!("watch is not supported on resources of kind \"{PLURAL}\"");
        return Err(ApiStatus::new(StatusReason::MethodNotAllowed, message));
    }
    let representation = Representation::negotiate(&protobuf::as_json(accept), program.tables.is_some())?;
    let mut components = components();
    match name {
        Some(name) => components.retain(|component| component["metadata"]["name"] == name),
        None => select(&mut components, query)?,
    }
    if let (Some(name), true) = (name, components.is_empty()) {
        return Err(not_found(name));
    }
    let shown = match (representation, program.tables) {
        (Representation::Table(version), Some(tables)) => {
            let table = tables(KIND, None);
            let row = |component: &Value| {
                let cells = table.row(component, server.clock().now());
                json!({"cells": cells, "object": metadata_only(component, version)})
            };
            let rows: Vec<Value> = components.iter().map(row).collect();
            let columns = table.columns();
            json!({"kind": "Table", "apiVersion": version, "metadata": {}, "columnDefinitions": columns, "rows": rows})
        }
        (Representation::Metadata(version), _) => {
            let items = components.iter().map(|component| metadata_only(component, version)).collect();
            object_or_list(name, "PartialObjectMetadata", version, items)
        }
        _ => object_or_list(name, KIND, "v1", components),
    };
    let mut response = response::json(StatusCode::OK, &shown);
    response::warn(&mut response, &[WARNING.to_owned()]);
    Ok(response)
}

/// Components that upstream probes. The storage is part of this server; the others may run in any process.
fn components() -> Vec<Value> {
    [
        ("controller-manager", "Unknown", "not probed"),
        ("etcd-0", "True", "ok"),
        ("scheduler", "Unknown", "not probed"),
    ]
    .into_iter()
    .map(|(name, status, message)| {
        let condition = json!({"type": "Healthy", "status": status, "message": message});
        json!({"metadata": {"name": name}, "conditions": [condition]})
    })
    .collect()
}

fn select(components: &mut Vec<Value>, query: &Query) -> Result<(), ApiStatus> {
    let bad = |error: SelectorError| ApiStatus::bad_request(error.to_string());
    let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default()).map_err(bad)?;
    // PriorityClasses have the same fields: name and namespace.
    let fields = query.get("fieldSelector").unwrap_or_default();
    let fields = FieldSelector::parse(fields, Resource::PRIORITY_CLASSES).map_err(bad)?;
    components.retain(|component| labels.matches(component) && fields.matches(component));
    Ok(())
}

fn not_found(name: &str) -> ApiStatus {
    let details =
        StatusDetails { name: name.to_owned(), kind: SINGULAR.to_owned(), ..StatusDetails::default() };
    let message = format!("{SINGULAR} \"{name}\" not found");
    ApiStatus { details: Some(Box::new(details)), ..ApiStatus::new(StatusReason::NotFound, message) }
}

fn metadata_only(component: &Value, version: &str) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": component["metadata"]})
}

fn object_or_list(name: Option<&str>, kind: &str, api_version: &str, mut items: Vec<Value>) -> Value {
    if name.is_some()
        && let Some(mut object) = items.pop()
    {
        object["kind"] = json!(kind);
        object["apiVersion"] = json!(api_version);
        return object;
    }
    json!({"kind": format!("{kind}List"), "apiVersion": api_version, "metadata": {}, "items": items})
}
