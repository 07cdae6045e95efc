//! The manager: from a command line to running controllers.
//!
//! *Upstream counterpart:* `cmd/kube-controller-manager/app`.
//!
//! | step | file |
//! |---|---|
//! | flags as typed: their table, and pflag's rules for writing them | `flags.rs`, `go_duration.rs` |
//! | the configuration that they add up to, checked | `config.rs` |
//! | which controllers there are, and which of them are wanted | `descriptor.rs` |
//! | what they share: clients, informers, events | `context.rs`, `informers.rs` |
//! | standing by, starting, watching over and stopping them | `controllers.rs` |
//! | standing for election | `election.rs` |
//! | from standing by to the end, with an election or without | `manager.rs` |
//! | all of it in order, as the binary does | `run.rs` |
//! | log lines as klog writes them | `logging.rs` |
//!
//! Everything below the command line can be embedded, with no flags, no files and no real time: [`Controllers::start`]
//! needs clients, [`Controllers::in_process`] an API server in the same process, which is how the sandbox runs them,
//! and [`Manager`] stands for election around them.
//!
//! *What must not live here:* what a controller does, HTTP, signals and exit codes (the binary's).

mod command;
mod config;
mod context;
mod controllers;
mod descriptor;
mod election;
mod flags;
mod go_duration;
mod informers;
pub mod logging;
mod manager;
mod run;
mod tasks;
mod version;

pub use command::{Command, CommandError, Invocation};
pub use config::{ConfigError, LeaderElectionSettings, ManagerConfig};
pub use context::Environment;
pub use controllers::{ControllerError, Controllers, Standby};
pub use descriptor::{CONTROLLERS, Descriptor, Selection, UnknownControllers};
pub use flags::{FLAGS, Flag, FlagError, FlagKind, Flags};
pub use manager::Manager;
pub use run::{Process, RunError, connect, run};
pub use version::{BEHAVES_AS, VERSION, user_agent};
