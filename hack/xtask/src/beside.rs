//! `cargo xtask beside-upstream`: starts the suite of `test/beside-upstream`.

use std::{env, io, path::Path};

use beside_upstream::{HostileClient, Programs, SuiteError, Task};
use load_tests::measure::{ProgramError, program};
use thiserror::Error;

/// Error of the task.
#[derive(Debug, Error)]
pub(crate) enum TaskError {
    /// A program cannot be built.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A run cannot be made.
    #[error(transparent)]
    Suite(#[from] SuiteError),
}

/// Runs the suite. Returns `None` if the arguments are invalid.
pub(crate) fn run(words: &[&str]) -> Result<Option<()>, TaskError> {
    let Some(task) = Task::parse(words) else { return Ok(None) };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (folder, page) = (root.join("target/beside-upstream"), root.join("docs/beside-upstream.md"));
    let path = |variable: &str| env::var_os(variable).map(Into::into);
    let ours = match (task.manager(), task.is_page_only()) {
        (None, true) => "kube-controller-manager".into(),
        (given, _) => program::release("kube-controller-manager", given)?,
    };
    let programs =
        Programs { ours, upstream: path("KUBE_CONTROLLER_MANAGER"), assets: path("KUBEBUILDER_ASSETS") };
    program::runtime()?.block_on(task.run(programs, &folder, &page))?;
    Ok(Some(()))
}

/// Runs a hostile client of a secure port. Returns `None` if the arguments are invalid.
pub(crate) fn run_client(words: &[&str]) -> Result<Option<()>, TaskError> {
    let Some(client) = HostileClient::parse(words) else { return Ok(None) };
    program::runtime()?.block_on(client.run(io::stdout()))?;
    Ok(Some(()))
}
