//! Programs of the project that are measured.

use std::{
    env, io,
    path::{Path, PathBuf},
    process::{self, Stdio},
    sync::Arc,
};

use kcm_client::{ClientConfigError, ClientFactory, ClientOptions, Server, UserAgent};
use kcm_clock::Clock;
use thiserror::Error;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

/// Error of a program.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// A file or program cannot be used.
    #[error("{what}: {source}")]
    Io {
        /// File, program or operation.
        what: String,
        /// Cause.
        source: io::Error,
    },
    /// A program cannot be built.
    #[error("failed to build {0}")]
    Build(&'static str),
    /// The sandbox exited before it printed its address.
    #[error("the sandbox printed no address")]
    NoAddress,
    /// The client cannot be configured.
    #[error(transparent)]
    Config(#[from] ClientConfigError),
}

pub(crate) fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> ProgramError {
    move |source| ProgramError::Io { what: what.into(), source }
}

/// Returns a runtime for measurements.
pub fn runtime() -> Result<tokio::runtime::Runtime, ProgramError> {
    if cfg!(debug_assertions) {
        eprintln!("warning: debug build; use cargo run --release -p xtask for meaningful results");
    }
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(failed("async runtime"))
}

/// Returns `given`, or the release build of `package`, which is built unless it is current.
pub fn release(package: &'static str, given: Option<&Path>) -> Result<PathBuf, ProgramError> {
    if let Some(program) = given {
        return Ok(program.to_owned());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    // Also if a program exists: it may have another allocator.
    let built = process::Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "-p", package, "--features", "jemalloc"])
        .current_dir(&root)
        .status()
        .map_err(failed("cargo"))?;
    if built.success() { Ok(target.join("release").join(package)) } else { Err(ProgramError::Build(package)) }
}

/// Starts a sandbox without controllers. Returns the process, which is killed on drop, and its address.
pub(crate) async fn sandbox(
    program: &Path,
    folder: &Path,
    arguments: &[&str],
) -> Result<(Child, String), ProgramError> {
    let what = program.display().to_string();
    let mut child = Command::new(program)
        .args(["--without-controllers", "--listen=127.0.0.1:0"])
        .args(arguments)
        .arg("--kubeconfig")
        .arg(folder.join("sandbox.kubeconfig"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed(what.clone()))?;
    let mut lines = BufReader::new(child.stdout.take().ok_or(ProgramError::NoAddress)?).lines();
    while let Some(line) = lines.next_line().await.map_err(failed(what.clone()))? {
        if let Some(address) = line.strip_prefix("Serving on ").map(str::to_owned) {
            // Drains the output, because a closed pipe would fail writes of the sandbox.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok((child, address));
        }
    }
    Err(ProgramError::NoAddress)
}

/// Returns clients of `server`.
pub(crate) async fn connect(server: Server, clock: &Arc<dyn Clock>) -> Result<ClientFactory, ProgramError> {
    let options = ClientOptions::new(UserAgent::new("xtask", "v0", ""), Arc::clone(clock));
    Ok(ClientFactory::connect(server, options).await?)
}
