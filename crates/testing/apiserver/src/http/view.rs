//! Representations of objects in responses.

use std::borrow::Cow;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{media::Representation, query::Query, response::json_bytes, route::Target};
use crate::{ApiStatus, Object, ObjectList, object::write_json, table};

/// Part of an object that a table row contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

/// Representation of the objects of a request.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) target: Target,
    pub(super) representation: Representation,
    pub(super) include: IncludeObject,
    pub(super) now: Timestamp,
}

impl View {
    pub(super) fn new(
        target: &Target,
        representation: Representation,
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
        Ok(Self { target: target.clone(), representation, include, now })
    }

    /// Serializes an object in the requested representation and version.
    pub(super) fn object(&self, object: &Object) -> Bytes {
        match (self.representation, self.target.served_version) {
            (Representation::Plain, None) => match self.target.kind.shown(object) {
                Cow::Borrowed(_) => object.json().clone(),
                Cow::Owned(value) => json_bytes(&value),
            },
            (Representation::Plain, Some(served_version)) => {
                json_bytes(&served_version.convert_from_storage(object.value()))
            }
            (Representation::Metadata(version), _) => json_bytes(&metadata_only(object, version)),
            (Representation::Table(version), _) => {
                json_bytes(&self.table([object], version, object.revision(), true))
            }
        }
    }

    /// Serializes an object of a watch event. `first` includes the column definitions of a table.
    pub(super) fn event_object(&self, object: &Object, first: bool) -> Bytes {
        match self.representation {
            Representation::Table(version) => {
                json_bytes(&self.table([object], version, object.revision(), first))
            }
            _ => self.object(object),
        }
    }

    /// Serializes a list.
    pub(super) fn list(&self, list: &ObjectList) -> Bytes {
        let mut metadata = json!({"resourceVersion": list.revision.to_string()});
        if let Some(token) = &list.continue_token {
            metadata["continue"] = json!(token);
        }
        if let Some(remaining) = list.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        let items = list.items.iter().map(AsRef::as_ref);
        let (kind, api_version) = match self.representation {
            Representation::Table(version) => {
                let mut table = self.table(items, version, list.revision, true);
                table["metadata"] = metadata;
                return json_bytes(&table);
            }
            Representation::Metadata(version) => ("PartialObjectMetadataList".to_owned(), version),
            Representation::Plain => (self.target.kind.list_name(), self.target.api_version()),
        };
        let size: usize = list.items.iter().map(|object| object.size()).sum();
        let mut text = Vec::with_capacity(size + size / 8 + 128);
        text.extend_from_slice(
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":").as_bytes(),
        );
        write_json(&mut text, &metadata);
        text.extend_from_slice(b",\"items\":[");
        for (index, object) in items.enumerate() {
            if index > 0 {
                text.push(b',');
            }
            match (self.representation, self.target.served_version) {
                (Representation::Metadata(version), _) => {
                    write_json(&mut text, &metadata_only(object, version));
                }
                (_, Some(served_version)) => {
                    write_json(&mut text, &served_version.convert_from_storage(object.value()));
                }
                (_, None) => match self.target.kind.shown(object) {
                    Cow::Borrowed(_) => object.write_item(&mut text),
                    Cow::Owned(value) => write_json(&mut text, &value),
                },
            }
        }
        text.extend_from_slice(b"]}\n");
        text.into()
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

    fn table<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Object>,
        version: &str,
        revision: u64,
        columns: bool,
    ) -> Value {
        let (kind, custom) = (self.target.kind.name(), &self.target.kind.custom);
        let cells = |object: &Object| match custom {
            Some(custom) => custom.columns.row(&custom.shown(object), self.now),
            None => table::row(kind, object.value(), self.now),
        };
        let rows: Vec<Value> = objects
            .into_iter()
            .map(|object| {
                let mut row = json!({"cells": cells(object)});
                match self.include {
                    IncludeObject::None => {}
                    IncludeObject::Metadata => row["object"] = metadata_only(object, version),
                    IncludeObject::Object => {
                        row["object"] = match self.target.served_version {
                            Some(served_version) => served_version.convert_from_storage(object.value()),
                            None => self.target.kind.shown(object).into_owned(),
                        };
                    }
                }
                row
            })
            .collect();
        let definitions = match custom {
            _ if !columns => json!([]),
            Some(custom) => custom.columns.definitions(),
            None => json!(table::columns(kind)),
        };
        json!({
            "kind": "Table",
            "apiVersion": version,
            "metadata": {"resourceVersion": revision.to_string()},
            "columnDefinitions": definitions,
            "rows": rows,
        })
    }
}

fn metadata_only(object: &Object, version: &str) -> Value {
    let metadata = object.value().get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata})
}
