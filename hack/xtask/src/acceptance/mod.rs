//! The kubectl acceptance lane: what a person with stock `kubectl` expects of a cluster, as 72 checks.
//!
//! A check is a function that runs commands in a namespace of its own and says what they must print, how they must
//! end, what they must ask the server and what must then be stored. By default the cluster is a sandbox that the
//! lane starts, one for each `kubectl` version found, with that version advertised; with `KUBECONFIG_REAL` it is
//! the cluster which that kubeconfig's current context names, and what needs nodes or a server of the lane's own is
//! left out there and says so. Nothing is read from or left in the user's home: `HOME` and the discovery cache are
//! in a temporary folder.
//!
//! Outputs are held against patterns, so that ages, hashes, UIDs and revisions need no scrubbing; see `pattern`.

mod checks;
mod cluster;
mod document;
mod failure;
mod ground;
mod kubectl;
mod manifests;
mod pattern;
mod report;
mod runner;
mod task;
mod wire;

pub use self::{
    checks::{Check, Needs, all},
    document::{DocumentError, update},
    failure::Failure,
    kubectl::Version,
    report::{Outcome, Report, Verdict},
    runner::{LaneError, Options, Run, run},
    task::{Task, TaskError},
};
