//! Errors for workloads and namespaces that do not exist.

use serde_json::Value;

use crate::{
    name::similar,
    reader::{Reader, escape, path},
};

/// Describes a workload of the plural `resource` that does not exist: its namespace, or similar names.
pub(super) async fn workload(reader: &Reader<'_>, resource: &str, namespace: &str, name: &str) -> String {
    if let Some(error) = self::namespace(reader, namespace).await {
        return error;
    }
    let error = format!("{resource}.apps {name:?} not found in namespace {namespace:?}");
    // Without permission to list the resource, no name is known.
    let Ok(objects) = reader.list(&path("apps/v1", Some(&escape(namespace)), resource)).await else {
        return error;
    };
    if objects.is_empty() {
        return format!("{error}, which has no {resource}: write another namespace with -n");
    }
    match &*suggestions(name, &objects) {
        "" => format!("{error}: write one of its {resource}, or another namespace with -n"),
        names => format!("{error}: write a similar name ({names}), or another namespace with -n"),
    }
}

/// Describes a namespace that does not exist. `None` if it exists, or could not be read.
pub(super) async fn namespace(reader: &Reader<'_>, name: &str) -> Option<String> {
    let error = reader.get(&format!("/api/v1/namespaces/{}", escape(name))).await.err()?;
    if !error.is_not_found() {
        return None;
    }
    let namespaces = reader.list("/api/v1/namespaces").await.unwrap_or_default();
    Some(match &*suggestions(name, &namespaces) {
        "" => format!("namespace {name:?} does not exist: write another one with -n"),
        names => format!("namespace {name:?} does not exist: write a similar name with -n ({names})"),
    })
}

/// Similar names of objects.
fn suggestions(name: &str, objects: &[Value]) -> String {
    let names = objects.iter().filter_map(|object| object["metadata"]["name"].as_str());
    similar(name, names).join(", ")
}
