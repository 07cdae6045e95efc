use std::{fmt, sync::OnceLock};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Resource,
    json::{at, i64_at, list_at, str_at},
};

/// Immutable version of an object.
///
/// The JSON text is produced on first use and cached, so that one serialization serves all watchers.
pub struct Object {
    resource: Resource,
    revision: u64,
    written: Timestamp,
    size: usize,
    value: Value,
    json: OnceLock<Json>,
}

struct Json {
    text: Bytes,
    /// Length of the leading `apiVersion` and `kind`, which list items of built-in kinds do not have.
    header: usize,
}

/// Owner reference of an object.
///
/// Upstream counterpart: `metav1.OwnerReference`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerReference<'a> {
    /// Group and version of the owner.
    pub api_version: &'a str,
    /// The owner's kind.
    pub kind: &'a str,
    /// The owner's name. The owner is in the same namespace or cluster-scoped.
    pub name: &'a str,
    /// The owner's UID, which alone identifies the owner.
    pub uid: &'a str,
    /// `true` if the owner is the managing controller.
    pub controller: bool,
    /// `true` if foreground deletion of the owner waits for this object.
    pub block_owner_deletion: bool,
}

impl Object {
    pub(crate) fn new(
        resource: Resource,
        value: Value,
        revision: u64,
        written: Timestamp,
        size: usize,
    ) -> Self {
        Self { resource, revision, written, size, value, json: OnceLock::new() }
    }

    /// Resource of the object.
    pub fn resource(&self) -> Resource {
        self.resource
    }

    /// `apiVersion`. A custom resource is stored in the version that was the storage version when it was written.
    pub fn api_version(&self) -> &str {
        str_at(&self.value, &["apiVersion"])
    }

    /// The whole object, with `apiVersion` and `kind`.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Revision of the write that created this version; the numeric `resourceVersion`.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Time of the write.
    pub(crate) fn written(&self) -> Timestamp {
        self.written
    }

    /// Approximate size of the JSON text in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        str_at(&self.value, &["metadata", "name"])
    }

    /// `metadata.namespace`, empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        str_at(&self.value, &["metadata", "namespace"])
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        str_at(&self.value, &["metadata", "uid"])
    }

    /// `metadata.generation`, 0 for kinds that have none.
    pub fn generation(&self) -> i64 {
        i64_at(&self.value, &["metadata", "generation"]).unwrap_or_default()
    }

    /// Value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        at(&self.value, &["metadata", "labels", key]).and_then(Value::as_str)
    }

    /// Value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        at(&self.value, &["metadata", "annotations", key]).and_then(Value::as_str)
    }

    /// `metadata.deletionTimestamp`. For a pod, the time at which its grace period ends.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        at(&self.value, &["metadata", "deletionTimestamp"]).and_then(Value::as_str)
    }

    /// `true` if the object has a deletion timestamp.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp().is_some()
    }

    /// `metadata.finalizers`.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        list_at(&self.value, &["metadata", "finalizers"]).iter().filter_map(Value::as_str)
    }

    /// `true` if the object has this finalizer.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers().any(|finalizer| finalizer == name)
    }

    /// `metadata.ownerReferences`.
    pub fn owner_references(&self) -> impl Iterator<Item = OwnerReference<'_>> {
        list_at(&self.value, &["metadata", "ownerReferences"]).iter().map(|owner| OwnerReference {
            api_version: str_at(owner, &["apiVersion"]),
            kind: str_at(owner, &["kind"]),
            name: str_at(owner, &["name"]),
            uid: str_at(owner, &["uid"]),
            controller: crate::json::bool_at(owner, &["controller"]),
            block_owner_deletion: crate::json::bool_at(owner, &["blockOwnerDeletion"]),
        })
    }

    /// JSON text of the object.
    pub fn json(&self) -> &Bytes {
        &self.serialised().text
    }

    /// Appends the object to `list` as a list item: without `apiVersion` and `kind` if the kind is built in.
    pub(crate) fn write_item(&self, list: &mut Vec<u8>) {
        let Json { text, header } = self.serialised();
        if self.resource.is_custom() {
            list.extend_from_slice(text);
            return;
        }
        list.push(b'{');
        // The byte after the header is the comma before the next member.
        list.extend_from_slice(text.get(header + 1..).unwrap_or(b"}"));
    }

    fn serialised(&self) -> &Json {
        self.json.get_or_init(|| {
            let mut text = Vec::with_capacity(self.size + self.size / 8);
            if self.resource.is_custom() {
                text.extend_from_slice(b"{\"apiVersion\":");
                write_json(&mut text, self.api_version());
                text.extend_from_slice(b",\"kind\":");
                write_json(&mut text, self.resource.kind());
            } else {
                text.extend_from_slice(self.resource.type_header().as_bytes());
            }
            let header = text.len();
            let members = self.value.as_object().into_iter().flatten();
            for (key, member) in members.filter(|(key, _)| *key != "apiVersion" && *key != "kind") {
                text.push(b',');
                write_json(&mut text, key);
                text.push(b':');
                write_json(&mut text, member);
            }
            text.push(b'}');
            Json { text: text.into(), header }
        })
    }
}

/// Appends `value` as JSON text.
pub(crate) fn write_json<T: serde::Serialize + ?Sized>(text: &mut Vec<u8>, value: &T) {
    // Writing strings and values with string keys to memory does not fail.
    if let Err(error) = serde_json::to_writer(&mut *text, value) {
        tracing::error!(%error, "Failed to serialize JSON value");
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{} @{}", self.resource, self.namespace(), self.name(), self.revision)
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.resource == other.resource && self.revision == other.revision && self.value == other.value
    }
}
