//! The manager: from a command line to running controllers.
//!
//! *Upstream counterpart:* `cmd/kube-controller-manager/app`.
//!
//! | step | file |
//! |---|---|
//! | flags as typed: their table, and pflag's rules for writing them | `flags.rs`, `go_syntax.rs`, `go_duration.rs` |
//! | which features are on | `feature_gates.rs` |
//! | which controllers upstream has, and which of them are wanted | `selection.rs` |
//! | the configuration that all this adds up to, checked; and as others see it | `config.rs`, `configz.rs` |
//! | which controllers there are | `descriptor.rs` |
//! | what they share: clients, events; informers | `context.rs`; `informer_factory.rs`, `informers.rs` |
//! | standing by, starting, watching over and stopping them | `controllers.rs` |
//! | standing for election | `election.rs` |
//! | from standing by to the end, with an election or without | `manager.rs` |
//! | readiness: the caches have synced | `readiness.rs` |
//! | what is to be seen at the secure port | `serving.rs` |
//! | all of it in order, as the binary does | `run.rs` |
//! | log lines as klog writes them | `logging.rs` |
//!
//! Everything below the command line can be embedded, with no flags, no files and no real time: [`Controllers::start`]
//! needs clients, [`Controllers::in_process`] an API server in the same process, which is how the sandbox runs them,
//! and [`Manager`] stands for election around them.
//!
//! *What must not live here:* what a controller does, HTTP, signals and exit codes (the binary's).

pub mod adapters;
mod command;
mod config;
mod configz;
mod context;
mod controllers;
mod descriptor;
mod election;
mod feature_gates;
mod flags;
mod go_duration;
mod go_syntax;
mod informer_factory;
mod informers;
pub mod logging;
mod manager;
mod readiness;
mod run;
mod selection;
mod serving;
mod tasks;
mod version;

pub use command::{Command, CommandError, Options};
pub use config::{LeaderElectionSettings, ManagerConfig, OptionsError};
pub use configz::{CONFIGZ_NAME, configz};
pub use context::{Dependencies, SyncMetricsFactory};
pub use controllers::{ControllerError, Controllers, Standby};
pub use descriptor::{CONTROLLERS, ControllerDescriptor};
pub use feature_gates::{ControllerFeatures, FeatureGates};
pub use flags::{FLAGS, Flag, FlagError, FlagKind, Flags};
pub use manager::Manager;
pub use readiness::InformerSync;
pub use run::{RunError, Runtime, run};
pub use selection::{Selection, UnknownControllers};
pub use version::{KUBERNETES_VERSION, VERSION, user_agent};
