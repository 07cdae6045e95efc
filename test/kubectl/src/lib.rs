//! kubectl acceptance checks: 112 checks of a cluster with stock `kubectl`.
//!
//! A check runs commands in its own namespace and verifies their output, exit code and requests, and the stored objects.
//! By default, the checks run on a sandbox for each installed `kubectl` version, with that version advertised. If
//! `KUBECONFIG_REAL` is set, they run on the cluster of that kubeconfig; checks that require nodes or their own server are
//! skipped if these are not available. The user's home directory is not accessed: `HOME` and the discovery cache are in a
//! temporary directory.
//!
//! Expected output is given as patterns, because ages, hashes, UIDs and resource versions vary, see `pattern`.

mod checks;
mod cluster;
mod document;
mod failure;
mod http_client;
mod kubectl;
mod manifests;
mod objects;
mod pattern;
mod report;
mod runner;
mod task;
mod test_env;

pub use self::{
    checks::{Check, Requires, all},
    document::{DocumentError, update},
    failure::Failure,
    kubectl::Version,
    report::{CheckReport, CheckStatus, Report, Run},
    runner::{Options, RunError, run},
    task::{Task, TaskError},
};
