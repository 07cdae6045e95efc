//! The controller manager: flags, configuration, leader election and the lifecycle of the controllers.
//!
//! Upstream counterpart: `cmd/kube-controller-manager/app`.
//!
//! | Step | File |
//! |---|---|
//! | parse flags | `flags.rs`, `go_syntax.rs` |
//! | feature gates | `feature_gates.rs` |
//! | selection of controllers (`--controllers`) | `selection.rs`, `controller_names.rs` |
//! | validated configuration, and `/configz` | `config.rs`, `configz.rs` |
//! | list of controllers | `descriptor.rs` |
//! | adapters between clients and controllers | `adapters/` |
//! | shared clients, event recorders and informers | `context.rs`, `manager_informers.rs`, `informers.rs` |
//! | start and stop controllers | `controllers.rs` |
//! | leader election | `election.rs` |
//! | lifecycle of a manager | `manager.rs` |
//! | threads of a manager | `placement.rs` |
//! | metrics of queues, informers, clients and controllers | `metrics/` |
//! | readiness check, and health check of the controllers' thread | `readiness.rs`, `liveness.rs` |
//! | routes of the secure port | `serving.rs` |
//! | startup of the process | `run.rs` |
//! | log lines in klog's format | `logging.rs` |
//!
//! Programs can embed the controllers without flags and files: [`Controllers::start`] requires clients,
//! [`Controllers::in_process`] an API server in the same process, and [`Manager`] adds leader election.
//!
//! Not part of this crate: the logic of controllers, HTTP, signals and exit codes.

#![warn(missing_debug_implementations)]

pub mod adapters;
mod aggregate;
mod command;
mod config;
mod configz;
mod context;
mod controller_names;
mod controllers;
mod debug;
mod descriptor;
mod election;
mod error;
mod feature_gates;
mod flags;
mod go_syntax;
mod informers;
mod liveness;
pub mod logging;
mod manager;
mod manager_informers;
mod metrics;
mod placement;
mod readiness;
mod run;
mod selection;
mod serving;
mod tasks;
mod version;

pub use command::{Command, CommandError, Options};
pub use config::{LeaderElectionSettings, ManagerConfig, OptionsError};
pub use configz::{CONFIGZ_NAME, configz};
pub use context::Dependencies;
pub use controllers::{ControllerError, Controllers, Standby};
pub use debug::DebugControllers;
pub use descriptor::{CONTROLLERS, ControllerDescriptor};
pub use error::RunError;
pub use feature_gates::{ControllerFeatures, FeatureGates};
pub use flags::{FLAGS, Flag, FlagError, FlagKind, Flags};
pub use manager::Manager;
pub use metrics::{CacheSize, Metrics};
pub use placement::Placement;
pub use readiness::InformerSync;
pub use run::{Runtime, run};
pub use selection::{ControllerSelection, UnknownControllers};
pub use version::{KUBERNETES_VERSION, VERSION, user_agent};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
