use std::sync::Arc;

use crate::ObjectKey;

/// An object that a cache can hold.
///
/// Upstream counterpart: `metav1.Object`.
pub trait Object: Send + Sync + 'static {
    /// Returns the namespace and name.
    fn key(&self) -> ObjectKey;

    /// Returns the UID. An object that is deleted and created again has the same key and another UID.
    fn uid(&self) -> &Arc<str>;

    /// Returns the resource version.
    fn resource_version(&self) -> &str;
}

/// An object whose resource version can be set. API servers set it when they store an object.
///
/// Fake API servers in tests require it; caches do not.
pub trait SetResourceVersion: Object {
    /// Sets the resource version.
    fn set_resource_version(&mut self, version: &str);
}
