//! Representations of objects in responses.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    media::Representation,
    program::{Table, Tables},
    query::Query,
    response::json_bytes,
    route::Target,
};
use crate::{ApiStatus, Object, ObjectList, json::write_json};

/// Part of an object that a table row contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

/// Representation of the objects of a request.
#[derive(Clone)]
pub(super) struct View {
    pub(super) target: Target,
    pub(super) representation: Representation,
    /// Set if the representation is a table.
    table: Option<Arc<dyn Table>>,
    pub(super) include: IncludeObject,
    pub(super) now: Timestamp,
}

impl View {
    pub(super) fn new(
        target: &Target,
        representation: Representation,
        tables: Option<Tables>,
        query: &Query,
        now: Timestamp,
    ) -> Result<Self, ApiStatus> {
        let include = match query.get("includeObject") {
            None | Some("Metadata") => IncludeObject::Metadata,
            Some("None") => IncludeObject::None,
            Some("Object") => IncludeObject::Object,
            Some(other) => {
                return Err(ApiStatus::bad_request(format!("unrecognized includeObject value: {other:?}")));
            }
        };
        let is_table = matches!(representation, Representation::Table(_));
        let custom = target.kind.custom.as_ref().map(|custom| &custom.printer_columns);
        let table = tables.filter(|_| is_table).map(|tables| tables(target.kind.name(), custom));
        Ok(Self { target: target.clone(), representation, table, include, now })
    }

    /// Serializes an object in the requested representation and version.
    pub(super) fn object(&self, object: &Object) -> Bytes {
        match (self.representation, self.target.served_version) {
            (Representation::Plain, None) if self.target.kind.is_stored_form(object) => object.json().clone(),
            (Representation::Plain, None) => json_bytes(&self.target.kind.shown(object)),
            (Representation::Plain, Some(served_version)) => {
                json_bytes(&served_version.convert_from_storage(object.value()))
            }
            (Representation::Metadata(version), _) => json_bytes(&metadata_only(object, version)),
            (Representation::Table(version), _) => json_bytes(&self.table(object, version, true)),
        }
    }

    /// Serializes an object of a watch event. `first` includes the column definitions of a table.
    pub(super) fn event_object(&self, object: &Object, first: bool) -> Bytes {
        match self.representation {
            Representation::Table(version) => json_bytes(&self.table(object, version, first)),
            _ => self.object(object),
        }
    }

    /// Serializes the beginning of a list, up to its first item.
    pub(super) fn list_start(&self, list: &ObjectList, text: &mut Vec<u8>) {
        let mut metadata = json!({"resourceVersion": list.revision.to_string()});
        if let Some(token) = &list.continue_token {
            metadata["continue"] = json!(token);
        }
        if let Some(remaining) = list.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        let (kind, api_version) = match self.representation {
            Representation::Table(version) => ("Table".to_owned(), version),
            Representation::Metadata(version) => ("PartialObjectMetadataList".to_owned(), version),
            Representation::Plain => (self.target.kind.list_name(), self.target.api_version()),
        };
        text.extend_from_slice(
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":").as_bytes(),
        );
        write_json(text, &metadata);
        if let Representation::Table(_) = self.representation {
            text.extend_from_slice(b",\"columnDefinitions\":");
            write_json(text, &self.columns());
            text.extend_from_slice(b",\"rows\":[");
        } else {
            text.extend_from_slice(b",\"items\":[");
        }
    }

    /// Serializes an item of a list.
    pub(super) fn list_item(&self, object: &Object, text: &mut Vec<u8>) {
        match (self.representation, self.target.served_version) {
            (Representation::Table(version), _) => write_json(text, &self.row(object, version)),
            (Representation::Metadata(version), _) => write_json(text, &metadata_only(object, version)),
            (Representation::Plain, Some(served_version)) => {
                write_json(text, &served_version.convert_from_storage(object.value()));
            }
            (Representation::Plain, None) if self.target.kind.is_stored_form(object) => {
                object.write_item(text);
            }
            (Representation::Plain, None) => write_json(text, &*self.target.kind.shown(object)),
        }
    }

    /// Returns the object of a bookmark, which contains only the revision.
    pub(super) fn bookmark(&self, revision: u64, initial_end: bool) -> Value {
        let (kind, api_version) = match self.representation {
            Representation::Plain => (self.target.kind.name(), self.target.api_version()),
            Representation::Table(version) => ("Table", version),
            Representation::Metadata(version) => ("PartialObjectMetadata", version),
        };
        let mut bookmark = json!({"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": revision.to_string()}});
        if initial_end {
            bookmark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        if let Representation::Table(_) = self.representation {
            bookmark["columnDefinitions"] = json!([]);
            bookmark["rows"] = json!([]);
        }
        bookmark
    }

    /// Returns a table with one object.
    fn table(&self, object: &Object, version: &str, columns: bool) -> Value {
        json!({
            "kind": "Table",
            "apiVersion": version,
            "metadata": {"resourceVersion": object.revision().to_string()},
            "columnDefinitions": if columns { self.columns() } else { json!([]) },
            "rows": [self.row(object, version)],
        })
    }

    fn columns(&self) -> Value {
        self.table.as_ref().map_or_else(|| json!([]), |table| table.columns())
    }

    fn row(&self, object: &Object, version: &str) -> Value {
        let kind = &self.target.kind;
        let cells = self.table.as_ref().map(|table| table.row(&kind.shown(object), self.now));
        let mut row = json!({"cells": cells});
        match self.include {
            IncludeObject::None => {}
            IncludeObject::Metadata => row["object"] = metadata_only(object, version),
            IncludeObject::Object => {
                row["object"] = match self.target.served_version {
                    Some(served_version) => served_version.convert_from_storage(object.value()),
                    None => kind.shown(object).into_owned(),
                };
            }
        }
        row
    }
}

fn metadata_only(object: &Object, version: &str) -> Value {
    let metadata = object.value().get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata})
}
