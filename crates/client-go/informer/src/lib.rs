//! A local copy of the objects of one type that follows an API server, and tells what changes.
//!
//! *Upstream counterpart:* `k8s.io/client-go/tools/cache`.
//!
//! How an object travels, one file a stage:
//!
//! * [`source`]: a [`ListWatch`] yields lists and watch events. A transport implements it; tests script one
//!   ([`testing::FakeSource`]).
//! * `reflector`: lists, watches, and when it must, lists again. What it asks next is decided by a pure state
//!   machine, `reflector::course`.
//! * `delivery`: changes the store and tells the handlers, as one.
//! * [`store`]: objects by key and by index, read by many through [`Store`], written by one.
//! * [`EventHandler`]s: told of every change, old and new, in order, without a gap.
//!
//! [`SharedInformer`] puts these together; `examples/watch_config.rs` shows it with a type of one's own.
//!
//! *What must not live here:* HTTP and decoding (a transport's), work queues, anything that knows what a pod is
//! for. Objects are never changed here.

// In model tests, shuttle chooses the thread that takes a lock.
#[cfg(feature = "shuttle")]
extern crate shuttle_parking_lot as parking_lot;

mod backoff;
mod delivery;
mod handler;
mod index;
mod informer;
mod metrics;
mod object;
mod reflector;
mod relist;
pub mod source;
pub mod store;
mod table;
pub mod testing;
#[cfg(test)]
mod thing;

pub use delivery::HandlerRegistration;
pub use handler::{Deleted, EventHandler};
pub use index::{IndexName, Indexers};
pub use informer::{InformerConfig, SharedInformer};
pub use metrics::{InformerMetrics, NoInformerMetrics};
pub use object::Object;
pub use source::{List, ListOptions, ListWatch, Undecodable, WatchEvent, WatchOptions, WatchStream};
pub use store::{Replaced, Snapshot, Store, StoreReadGuard, StoreWriter};
