//! Programs of the project, started to be measured.

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

/// Why a program cannot be measured.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// A file or a program cannot be used.
    #[error("{what}: {source}")]
    Io {
        /// Which.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// A program could not be built.
    #[error("cargo cannot build {0}")]
    Build(&'static str),
    /// The sandbox ended before it told its address.
    #[error("the sandbox does not tell its address")]
    NoAddress,
    /// A server cannot be reached.
    #[error(transparent)]
    Config(#[from] ClientConfigError),
}

pub(crate) fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> ProgramError {
    move |source| ProgramError::Io { what: what.into(), source }
}

/// The runtime of a task that measures.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, ProgramError> {
    if cfg!(debug_assertions) {
        eprintln!("note: this is a debug build and will be the bottleneck; use cargo run --release -p xtask");
    }
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(failed("the runtime"))
}

/// The program given, or the release build of `package`, made by cargo if it is not there.
pub(crate) fn release(package: &'static str, given: Option<&Path>) -> Result<PathBuf, ProgramError> {
    if let Some(program) = given {
        return Ok(program.to_owned());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let program = target.join("release").join(package);
    if !program.exists() {
        let built = process::Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--release", "-p", package])
            .current_dir(&root)
            .status()
            .map_err(failed("cargo"))?;
        if !built.success() {
            return Err(ProgramError::Build(package));
        }
    }
    Ok(program)
}

/// Starts a sandbox without controllers and gives its address. It ends when dropped.
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
            // What else it says must go somewhere, or it would find the pipe closed.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok((child, address));
        }
    }
    Err(ProgramError::NoAddress)
}

/// A way to `server` for a task that measures.
pub(crate) async fn connect(server: Server, clock: &Arc<dyn Clock>) -> Result<ClientFactory, ProgramError> {
    let options = ClientOptions::new(UserAgent::new("xtask", "v0", ""), Arc::clone(clock));
    Ok(ClientFactory::connect(server, options).await?)
}
