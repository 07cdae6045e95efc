//! The manager of an operator: shared informers, clients, event recorders, metrics, health checks, a secure port and leader
//! election, started in the order that is safe and stopped with a drain.
//!
//! *Upstream counterparts:* `cmd/kube-controller-manager/app`, and `manager.Manager` of controller-runtime.
//!
//! | Step | File |
//! |---|---|
//! | settings | `settings.rs` |
//! | clients, recorders and metrics that controllers are constructed with | `context.rs` |
//! | informers of all types, and the refresh of their caches | `informers.rs` |
//! | start, supervision and shutdown of controllers | `controllers.rs` |
//! | leader election | `election.rs` |
//! | lifecycle: standby, leader, shutdown | `manager.rs` |
//! | threads | `placement.rs` |
//! | metrics of queues, informers, clients, syncs and elections | `metrics/` |
//! | readiness check, and health check of the controllers' thread | `readiness.rs`, `liveness.rs` |
//! | secure port | `port.rs` |
//! | log lines in klog's format | `logging.rs` |
//! | a program: environment, connection, signals | `program.rs`, `signals.rs` |
//!
//! Not part of this crate: the logic of controllers, flags, HTTP.

#![warn(missing_debug_implementations)]

mod context;
mod controllers;
mod election;
mod error;
mod informers;
mod liveness;
pub mod logging;
mod manager;
mod metrics;
mod placement;
mod port;
mod program;
mod readiness;
mod settings;
#[cfg(unix)]
mod signals;
mod tasks;

pub use context::{Context, Dependencies, SyncMetricsByName};
pub use controllers::{ControllerError, Controllers, Runner, Standby};
pub use error::RunError;
pub use manager::Manager;
pub use metrics::Metrics;
pub use placement::Placement;
pub use port::Port;
pub use program::ProgramOptions;
pub use readiness::InformerSync;
pub use settings::{LeaderElectionSettings, Settings};
#[cfg(unix)]
pub use signals::shutdown_signal;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
