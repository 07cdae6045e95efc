//! Checks of the published crates: `cargo run -p packages -- TASK`.

mod consumer;
mod public_api;
mod workspace;

use std::{env, io, path::PathBuf, process::ExitCode};

use thiserror::Error;

use crate::workspace::Workspace;

const USAGE: &str = "Usage: cargo run -p packages -- TASK

Tasks:
  consumer
      Package all published crates, and build a crate outside the workspace that depends on the packages.

  public-api [--update]
      Compare the public API of the published crates with docs/api.
        --update  write docs/api";

#[derive(Debug, Error)]
enum TaskError {
    #[error("{USAGE}")]
    Usage,
    #[error("failed to {action}: {source}")]
    Io { action: String, source: io::Error },
    #[error("{command} failed:\n{output}")]
    Command { command: String, output: String },
    #[error("failed to read the output of cargo metadata: {0}")]
    Metadata(#[from] serde_json::Error),
    #[error("failed to read {file}: {source}")]
    PublicApi { file: PathBuf, source: public_api::Error },
    #[error("the public API has changed, run cargo run -p packages -- public-api --update:\n{0}")]
    Changed(String),
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), TaskError> {
    match words {
        ["consumer"] => consumer::check(&Workspace::read()?),
        ["public-api"] => public_api::check(&Workspace::read()?),
        ["public-api", "--update"] => public_api::update(&Workspace::read()?),
        _ => Err(TaskError::Usage),
    }
}

/// Adds the failed action to an I/O error.
fn failed(action: impl Into<String>) -> impl FnOnce(io::Error) -> TaskError {
    let action = action.into();
    move |source| TaskError::Io { action, source }
}
