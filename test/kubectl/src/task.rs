//! The task `cargo xtask kubectl-acceptance`.

use std::{
    env, io,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use thiserror::Error;

use super::{
    document::{self, DocumentError},
    kubectl::Version,
    runner::{self, Options, RunError},
};

/// Number of concurrent checks; checks mostly wait for pods.
const PARALLEL: usize = 6;

/// Flags of `cargo xtask kubectl-acceptance`.
#[derive(Debug, Clone, Default)]
pub struct Task {
    update_docs: bool,
    newest: bool,
    only: Vec<u8>,
}

/// Error of the task.
#[derive(Debug, Error)]
pub enum TaskError {
    /// The sandbox cannot be built.
    #[error("failed to build the sandbox: {0}")]
    Build(String),
    /// The async runtime cannot be started.
    #[error("failed to start: {0}")]
    Start(#[from] io::Error),
    /// The checks cannot run.
    #[error(transparent)]
    Lane(#[from] RunError),
    /// The table cannot be written.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// Checks failed.
    #[error("{0} checks failed")]
    Failed(usize),
}

impl Task {
    /// Parses the arguments of `kubectl-acceptance`. Returns `None` if they are invalid.
    pub fn parse(flags: &[&str]) -> Option<Self> {
        let mut task = Self::default();
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            match *flag {
                "--update-docs" => task.update_docs = true,
                "--newest" => task.newest = true,
                "--only" => {
                    task.only = flags.next()?.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
                }
                _ => return None,
            }
        }
        Some(task)
    }

    /// Runs the checks and prints the results.
    ///
    /// If `kubectl` is not installed, prints a message and succeeds.
    pub fn run(&self) -> Result<(), TaskError> {
        let mut versions = Version::installed();
        if self.newest {
            versions = versions.pop().into_iter().collect();
        }
        if versions.is_empty() {
            println!("skipped: kubectl not found in PATH");
            return Ok(());
        }
        let kubeconfig = env::var_os("KUBECONFIG_REAL").map(PathBuf::from);
        let options = Options {
            sandbox: if kubeconfig.is_none() { build_sandbox()? } else { PathBuf::new() },
            versions,
            kubeconfig,
            only: self.only.clone(),
            parallel: PARALLEL,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let report = runtime.block_on(runner::run(&options))?;
        println!("{}\n{}{}", report.table(), report.reasons(), report.details());
        if self.update_docs {
            document::update(&Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"), &report)?;
        }
        match report.failed().len() {
            0 => Ok(()),
            failed => Err(TaskError::Failed(failed)),
        }
    }
}

/// Builds `kube-sandbox` and returns its path.
fn build_sandbox() -> Result<PathBuf, TaskError> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(repository())
        .args(["build", "--package", "kube-sandbox", "--message-format=json-render-diagnostics"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| TaskError::Build(error.to_string()))?;
    if !output.status.success() {
        return Err(TaskError::Build(output.status.to_string()));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| TaskError::Build("cargo reported no executable".to_owned()))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_rejects_unknown_flags() {
        let task = Task::parse(&["--update-docs", "--only", "1,72"]).unwrap();
        assert!(task.update_docs && !task.newest);
        assert_eq!(task.only, [1, 72]);
        assert!(Task::parse(&["--only"]).is_none());
        assert!(Task::parse(&["--only", "x"]).is_none());
        assert!(Task::parse(&["--all"]).is_none());
    }
}
