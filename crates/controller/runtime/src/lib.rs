//! Control loop of a controller: informers fill a queue of keys, and workers reconcile the keys.
//!
//! *Upstream counterparts:* the loop that each controller of `pkg/controller` repeats (`Run`, `worker`,
//! `processNextWorkItem`, `handleErr`), and the builder of controller-runtime.
//!
//! A controller implements [`Reconciler`]. A [`ControllerBuilder`] connects it to informers:
//!
//! ```
//! # use std::{convert::Infallible, sync::Arc};
//! # use kcm_clock::{Clock, RealClock};
//! # use kcm_informer::{Object, SharedInformer};
//! use kcm_runtime::{Controller, ObjectKey, Reconciler, Requeue};
//!
//! struct Websites;
//!
//! impl Reconciler for Websites {
//!     type Error = Infallible;
//!
//!     async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Infallible> {
//!         println!("reconciling {key}");
//!         Ok(Requeue::Done)
//!     }
//! }
//!
//! fn controller<W: Object, D: Object>(
//!     websites: &SharedInformer<W>,
//!     deployments: &SharedInformer<D>,
//!     clock: Arc<dyn Clock>,
//! ) -> Controller<Websites> {
//!     Controller::builder("websites", clock)
//!         .reconciles(websites)
//!         .owns(deployments)
//!         .workers(2)
//!         .build(Websites)
//! }
//! ```
//!
//! | Item | Purpose |
//! |---|---|
//! | [`ControllerBuilder`] | watched types and options |
//! | [`Watch`], [`predicate`] | changes that enqueue a key |
//! | [`owner_of`] | the primary object that controls an object |
//! | [`ControllerBuilder::own_writes`] | expectations and other records of own writes, which watches update |
//! | [`Controller::run`] | workers, until a token is cancelled; queued keys are processed before it returns |
//! | [`Controller::step`], [`Controller::drain`] | the same for tests: one key, or all that are queued, without waiting |
//! | [`Controller::health`] | checks for `/readyz` and `/healthz` |
//! | [`SyncMetrics`] | hooks for metrics |
//! | [`ControllerState`] | caches, queue and own writes, for debugging and simulation |
//!
//! *Not part of this crate:* API types, HTTP, and the election; [`ControllerBuilder::leader_gate`] takes its result.

#![warn(missing_debug_implementations)]

mod builder;
mod controller;
mod handlers;
mod health;
mod options;
mod owner;
pub mod predicate;
mod reconciler;
mod requeue;
mod state;
mod sync_log;
mod sync_metrics;
mod watch;
mod worker;

pub use builder::{ControllerBuilder, NoPrimary, WithPrimary};
pub use controller::{Controller, Step};
#[doc(hidden)]
pub use handlers::{mapped_handler, owned_handler, primary_handler};
pub use health::{ControllerHealth, Unhealthy};
pub use kcm_expectations::{DeletedObject, GroupResource, NotReady, OwnWrites};
pub use kcm_meta::ObjectKey;
pub use options::KeyQueue;
pub use owner::owner_of;
pub use reconciler::Reconciler;
pub use requeue::{ErrorClass, Requeue};
pub use state::ControllerState;
pub use sync_log::{KeyState, SyncRecord};
pub use sync_metrics::{NoSyncMetrics, SyncMetrics, SyncResult};
pub use watch::{Change, Watch};
pub use worker::RunOutcome;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
