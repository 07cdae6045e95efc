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
use crate::{
    ApiStatus, Object, ObjectList,
    json::{remove, write_json},
    schema::{
        Type,
        ordered::{Order, Ordered},
    },
};

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

    /// Serializes the beginning of a list, up to its first item. Returns its end, after the last item.
    pub(super) fn list_start(&self, list: &ObjectList, text: &mut Vec<u8>) -> Vec<u8> {
        let revision = format!("\"resourceVersion\":\"{}\"", list.revision);
        let token = list.continue_token.as_ref().map(|token| format!("\"continue\":{}", json!(token)));
        let remaining = list.remaining.map(|remaining| format!("\"remainingItemCount\":{remaining}"));
        let join = |members: [Option<String>; 3]| members.into_iter().flatten().collect::<Vec<_>>().join(",");
        let (kind, api_version) = match self.representation {
            Representation::Table(version) => ("Table".to_owned(), version),
            Representation::Metadata(version) => ("PartialObjectMetadataList".to_owned(), version),
            Representation::Plain => (self.target.kind.list_name(), self.target.api_version()),
        };
        if self.representation == Representation::Plain && self.target.resource().is_custom() {
            // The members of a list of custom resources are sorted by name, and it always has a token.
            text.extend_from_slice(format!("{{\"apiVersion\":\"{api_version}\",\"items\":[").as_bytes());
            let token = token.unwrap_or_else(|| "\"continue\":\"\"".to_owned());
            let metadata = join([Some(token), remaining, Some(revision)]);
            return format!("],\"kind\":\"{kind}\",\"metadata\":{{{metadata}}}}}\n").into_bytes();
        }
        let metadata = join([Some(revision), token, remaining]);
        text.extend_from_slice(
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{{metadata}}},")
                .as_bytes(),
        );
        if let Representation::Table(_) = self.representation {
            text.extend_from_slice(b"\"columnDefinitions\":");
            let (_, order) = Order::of_kind(api_version, "Table").member("columnDefinitions");
            write_json(text, &Ordered(&self.columns(), order));
            text.extend_from_slice(b",\"rows\":[");
        } else {
            text.extend_from_slice(b"\"items\":[");
        }
        b"]}\n".to_vec()
    }

    /// Serializes an item of a list.
    pub(super) fn list_item(&self, object: &Object, text: &mut Vec<u8>) {
        match (self.representation, self.target.served_version) {
            (Representation::Table(version), _) => {
                write_json(text, &Ordered(&self.row(object, version), Order::Elements(&Type::Any)));
            }
            (Representation::Metadata(version), _) => {
                write_json(text, &Ordered::new(&metadata_only(object, version)));
            }
            (Representation::Plain, Some(served_version)) => {
                let mut item = served_version.convert_from_storage(object.value());
                // As upstream, items of built-in kinds have no type.
                remove(&mut item, &["apiVersion"]);
                remove(&mut item, &["kind"]);
                let order = Order::of_kind(served_version.api_version(), self.target.kind.name());
                write_json(text, &Ordered(&item, order));
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
