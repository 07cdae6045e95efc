use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Resource,
    encoded::{Encoded, Index, SharedTexts},
    json::{at, i64_at, list_at, str_at},
};

/// Immutable version of an object.
///
/// The server stores objects as compact JSON text. The [value](Self::value) and the contiguous [text](Self::json) are
/// produced on first use and cached until this `Object` is dropped, so that one decoding and one serialization serve
/// all watchers. Names, UIDs, labels and revision are available without decoding.
pub struct Object {
    version: Arc<Version>,
    cached: OnceLock<Box<Cached>>,
}

/// Forms of an object that are produced on demand.
#[derive(Default)]
struct Cached {
    value: OnceLock<Value>,
    json: OnceLock<Bytes>,
}

/// Stored form of a version of an object.
#[derive(Clone)]
pub(crate) struct Version {
    resource: Resource,
    revision: u64,
    written: Timestamp,
    /// `namespace/name`, or `name` for cluster-scoped objects.
    key: Arc<str>,
    index: Index,
    encoded: Encoded,
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

impl Version {
    /// Encodes `object`. Its resource version is that of the version, not that in `object`. Key and UID are shared with
    /// `old`, the version before.
    pub(crate) fn new(
        resource: Resource,
        key: &Arc<str>,
        object: &Value,
        old: Option<&Self>,
        written: Timestamp,
        texts: &SharedTexts,
    ) -> Self {
        Self {
            resource,
            revision: 0,
            written,
            key: Arc::clone(old.map_or(key, |old| &old.key)),
            index: Index::new(object, old.map(|old| &old.index), texts),
            encoded: Encoded::new(resource, object, texts),
        }
    }

    /// The same object under another revision.
    pub(crate) fn with_revision(self, revision: u64) -> Self {
        Self { revision, ..self }
    }

    pub(crate) fn resource(&self) -> Resource {
        self.resource
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Time of the write.
    pub(crate) fn written(&self) -> Timestamp {
        self.written
    }

    pub(crate) fn key(&self) -> &Arc<str> {
        &self.key
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// `metadata.name`.
    pub(crate) fn name(&self) -> &str {
        self.key.split_once('/').map_or(&*self.key, |(_, name)| name)
    }

    /// `metadata.namespace`, empty for cluster-scoped objects.
    pub(crate) fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// JSON text of the object.
    pub(crate) fn text(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.encoded.len());
        self.encoded.write(self.revision, &mut text);
        text
    }

    /// Approximate memory in bytes that is used if the version is kept beside `successor`.
    pub(crate) fn memory(&self, successor: Option<&Self>) -> usize {
        size_of::<Self>() + self.encoded.memory(successor.map(|successor| &successor.encoded))
    }
}

impl Object {
    pub(crate) fn new(version: Arc<Version>) -> Self {
        Self { version, cached: OnceLock::new() }
    }

    /// Creates an object whose value is already decoded.
    pub(crate) fn with_value(version: Arc<Version>, value: Value) -> Self {
        let cached = Cached { value: OnceLock::from(value), json: OnceLock::new() };
        Self { version, cached: OnceLock::from(Box::new(cached)) }
    }

    /// Returns the same version of the object with other content, as a conversion webhook shows it.
    pub(crate) fn with_content(&self, value: Value) -> Self {
        let Version { resource, revision, written, ref key, .. } = *self.version;
        let version = Version::new(resource, key, &value, None, written, &SharedTexts::default());
        Self::with_value(Arc::new(version.with_revision(revision)), value)
    }

    /// Returns the same version without the cached value and text, for callers that keep many objects.
    pub fn compact(&self) -> Arc<Self> {
        Arc::new(Self::new(Arc::clone(&self.version)))
    }

    pub(crate) fn version(&self) -> &Arc<Version> {
        &self.version
    }

    /// Resource of the object.
    pub fn resource(&self) -> Resource {
        self.version.resource
    }

    /// `apiVersion`. A custom resource is stored in the version that was the storage version when it was written.
    pub fn api_version(&self) -> &str {
        match self.resource() {
            custom if custom.is_custom() => self.version.encoded.api_version(),
            built_in => built_in.api_version(),
        }
    }

    /// `true` if the value or the text is cached.
    #[cfg(test)]
    pub(crate) fn is_decoded(&self) -> bool {
        self.cached.get().is_some()
    }

    fn cached(&self) -> &Cached {
        self.cached.get_or_init(Box::default)
    }

    /// The whole object, with `apiVersion` and `kind`.
    pub fn value(&self) -> &Value {
        self.cached().value.get_or_init(|| {
            // The text was written by `Encoded`.
            serde_json::from_slice(&self.version.text()).unwrap_or_else(|error| {
                tracing::error!(%error, object = ?self, "Failed to decode stored object");
                Value::Null
            })
        })
    }

    /// Revision of the write that created this version; the numeric `resourceVersion`.
    pub fn revision(&self) -> u64 {
        self.version.revision
    }

    /// Time of the write.
    pub(crate) fn written(&self) -> Timestamp {
        self.version.written
    }

    /// Approximate size of the JSON text in bytes.
    pub(crate) fn size(&self) -> usize {
        self.version.encoded.len()
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        self.version.name()
    }

    /// `metadata.namespace`, empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.version.namespace()
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        &self.version.index.uid
    }

    /// `metadata.generation`, 0 for kinds that have none.
    pub fn generation(&self) -> i64 {
        i64_at(self.value(), &["metadata", "generation"]).unwrap_or_default()
    }

    /// Value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.version.index.label(key)
    }

    /// Value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        at(self.value(), &["metadata", "annotations", key]).and_then(Value::as_str)
    }

    /// `metadata.deletionTimestamp`. For a pod, the time at which its grace period ends.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        at(self.value(), &["metadata", "deletionTimestamp"]).and_then(Value::as_str)
    }

    /// `true` if the object has a deletion timestamp.
    pub fn is_deleting(&self) -> bool {
        self.version.index.is_deleting
    }

    /// `metadata.finalizers`.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        list_at(self.value(), &["metadata", "finalizers"]).iter().filter_map(Value::as_str)
    }

    /// `true` if the object has this finalizer.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers().any(|finalizer| finalizer == name)
    }

    /// UIDs of the owners, and `blockOwnerDeletion` of each reference.
    pub fn owners(&self) -> impl Iterator<Item = (&str, bool)> {
        self.version.index.owners()
    }

    /// `metadata.ownerReferences`.
    pub fn owner_references(&self) -> impl Iterator<Item = OwnerReference<'_>> {
        list_at(self.value(), &["metadata", "ownerReferences"]).iter().map(|owner| OwnerReference {
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
        self.cached().json.get_or_init(|| self.version.text().into())
    }

    /// Appends the object to `list` as a list item: without `apiVersion` and `kind` if the kind is built in.
    pub(crate) fn write_item(&self, list: &mut Vec<u8>) {
        let Version { resource, revision, encoded, .. } = &*self.version;
        if resource.is_custom() {
            encoded.write(*revision, list);
        } else {
            encoded.write_without_header(*revision, list);
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{} @{}", self.resource(), self.namespace(), self.name(), self.revision())
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.version, &other.version)
            || (self.resource() == other.resource()
                && self.revision() == other.revision()
                && self.version.text() == other.version.text())
    }
}
