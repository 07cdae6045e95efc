//! Metadata that caches and queues need of an object of any type: its key, its UID and its resource version.
//!
//! *Upstream counterparts:* `metav1.Object`, as far as caches use it, and `cache.ObjectName`.
//!
//! The informer works with every type that implements [`Object`], a custom resource included. The types of `kcm-api`
//! implement it there.
//!
//! *Not part of this crate:* types of objects, decoding, anything that needs a dependency.

mod object;
mod object_key;

pub use object::{Object, SetResourceVersion};
pub use object_key::ObjectKey;
