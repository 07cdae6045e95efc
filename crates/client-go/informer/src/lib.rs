//! Informers: caches of the objects of one type that follow an API server and report changes to handlers.
//!
//! *Upstream counterpart:* `k8s.io/client-go/tools/cache`.
//!
//! | Module | Task | Upstream |
//! |---|---|---|
//! | [`source`] | lists and watches objects; implemented by a transport | `ListerWatcher` |
//! | `reflector` | lists, watches, and relists after failures; `reflector::state` decides which request is next | `Reflector` |
//! | `handler_fanout` | changes the store and calls the handlers under one lock | `sharedProcessor` |
//! | [`store`] | objects by key and by index; one writer, many readers | `Indexer` |
//! | `factory` | one informer for all controllers that need the same objects | `SharedInformerFactory` |
//!
//! [`SharedInformer`] combines them; [`EventHandler`] receives the changes.
//!
//! Objects can be of any type that implements [`Object`]. With the feature `kube`, these are all types of kube-rs, custom
//! resources included. `examples/watch_config.rs` shows an informer of a type that implements the trait by hand.
//!
//! *Not part of this crate:* API types, HTTP and decoding, work queues. Cached objects are never modified.

#![warn(missing_debug_implementations)]

// Model tests replace the locks with shuttle's.
#[cfg(feature = "shuttle")]
extern crate shuttle_parking_lot as parking_lot;

mod error;
mod factory;
mod handler;
mod handler_fanout;
mod index;
mod informer;
mod metrics;
mod reflector;
mod relist;
pub mod source;
pub mod store;
mod table;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

#[cfg(test)]
mod test_object;
pub mod testing;
mod transform;

pub use error::{ListWatchError, ListWatchErrorKind};
pub use factory::{AnyInformer, InformerOptions, SharedInformerFactory};
pub use handler::{Deleted, EventHandler};
pub use handler_fanout::HandlerRegistration;
pub use index::{IndexName, Indexers};
pub use informer::{InformerConfig, SharedInformer, Sources, Transform};
pub use kcm_meta::{ControllerRef, Object, ObjectKey, compare_versions, is_newer};
pub use metrics::{InformerMetrics, NoInformerMetrics};
pub use source::{
    List, ListOptions, ListSink, ListWatch, Undecodable, WatchEvent, WatchOptions, WatchStream,
};
pub use store::{Replaced, Snapshot, Store, StoreReadGuard, StoreWriter};
#[cfg(feature = "kube")]
pub use transform::drop_managed_fields;
pub use transform::shrink_to_fit;
