//! Metadata that caches, queues and controllers need of an object of any type: its key, its UID, its resource version,
//! its labels and its controller.
//!
//! *Upstream counterparts:* `metav1.Object`, as far as caches and controllers use it, and `cache.ObjectName`.
//!
//! Crates that work with objects of any type require [`Object`] and nothing else:
//!
//! * With the feature `kube`, all types of kube-rs implement it: those of `k8s-openapi`, those that derive
//!   `CustomResource`, `DynamicObject` and `PartialObjectMeta`. The program must enable a version feature of
//!   `k8s-openapi`, as for kube-rs.
//! * The types of `kcm-api` implement it there.
//! * Any other type can implement it.
//!
//! *Not part of this crate:* types of objects, decoding.

#![warn(missing_debug_implementations)]

mod kind;
#[cfg(feature = "kube")]
mod kube;
mod object;
mod object_key;
mod resource_version;

#[cfg(feature = "kube")]
pub use self::kube::StaticScope;
pub use jiff::Timestamp;
pub use kind::{ApiResource, JsonDecoder, Kind, StrategicMerge};
pub use object::{ControllerRef, Object, SetResourceVersion};
pub use object_key::ObjectKey;
pub use resource_version::{compare_versions, is_comparable, is_newer};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
