//! The manager: from a command line to running controllers.
//!
//! *Upstream counterpart:* `cmd/kube-controller-manager/app`.
//!
//! | step | file |
//! |---|---|
//! | flags as typed: their table, and pflag's rules for writing them | `flags.rs`, `go_duration.rs` |
//! | the configuration that they add up to, checked | `config.rs` |
//! | which controllers there are, and which of them are wanted | `descriptor.rs` |
//! | what they share: clients, informers, events | `context.rs` |
//! | starting, watching over and stopping them | `controllers.rs` |
//! | all of it in order, as the binary does | `run.rs` |
//! | log lines as klog writes them | `logging.rs` |
//!
//! Everything below the command line can be embedded: [`Controllers::start`] needs no flags, no files and no real
//! time, only clients. That is how the sandbox runs the controllers in its own process.
//!
//! *What must not live here:* what a controller does, HTTP, signals and exit codes (the binary's).

mod command;
mod config;
mod context;
mod controllers;
mod descriptor;
mod flags;
mod go_duration;
pub mod logging;
mod run;
mod tasks;
mod version;

pub use command::{Command, CommandError, Invocation};
pub use config::{ConfigError, LeaderElectionSettings, ManagerConfig};
pub use controllers::{ControllerError, Controllers};
pub use descriptor::{CONTROLLERS, Descriptor, Selection, UnknownControllers};
pub use flags::{FLAGS, Flag, FlagError, FlagKind, Flags};
pub use run::{RunError, connect, run};
pub use version::{BEHAVES_AS, VERSION, user_agent};
