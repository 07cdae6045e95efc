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
//! | shared informers | `manager_informers.rs` |
//! | a manager with the controllers | `controllers.rs`, `dependencies.rs` |
//! | metrics of the controllers | `metrics/` |
//! | routes of the secure port | `serving.rs` |
//! | startup of the process | `run.rs` |
//!
//! The lifecycle of the process, with leader election, is that of any [`kcm_manager::Manager`].
//!
//! Programs can embed the controllers without flags and files: [`start`] requires clients, [`start_in_process`] an API
//! server in the same process, and [`manager`] adds leader election.
//!
//! Not part of this crate: the logic of controllers, HTTP, signals and exit codes.

#![warn(missing_debug_implementations)]

pub mod adapters;
mod aggregate;
mod command;
mod config;
mod configz;
mod controller_names;
mod controllers;
mod debug;
mod dependencies;
mod descriptor;
mod feature_gates;
mod flags;
mod go_syntax;
mod manager_informers;
mod metrics;
mod run;
mod selection;
mod serving;
mod version;

pub use command::{Command, CommandError, Options};
pub use config::{ManagerConfig, OptionsError};
pub use configz::{CONFIGZ_NAME, configz};
pub use controllers::{manager, start, start_in_process};
pub use debug::DebugControllers;
pub use dependencies::Dependencies;
pub use descriptor::{CONTROLLERS, ControllerDescriptor};
pub use feature_gates::{ControllerFeatures, FeatureGates};
pub use flags::{FLAGS, Flag, FlagError, FlagKind, Flags};
/// Parts of every manager.
pub use kcm_manager::{
    ControllerError, Controllers, InformerSync, LeaderElectionSettings, Placement, RunError, logging,
};
pub use metrics::{CacheSize, Metrics};
pub use run::{Runtime, StartError, run};
pub use selection::{ControllerSelection, UnknownControllers};
pub use version::{KUBERNETES_VERSION, VERSION, user_agent};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
