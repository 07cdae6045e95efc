//! Checks of the published crates: `cargo run -p packages -- TASK`.

mod consumer;
mod workspace;

use std::{env, io, process::ExitCode};

use thiserror::Error;

use crate::workspace::Workspace;

const USAGE: &str = "Usage: cargo run -p packages -- TASK

Tasks:
  consumer
      Package all published crates, and follow docs/tutorial.md outside of the workspace with the packages.";

#[derive(Debug, Error)]
enum TaskError {
    #[error("{USAGE}")]
    Usage,
    #[error("failed to {action}: {source}")]
    Io { action: String, source: io::Error },
    #[error("{command} failed:\n{output}")]
    Command { command: String, output: String },
    #[error("docs/tutorial.md: {0}")]
    Tutorial(String),
    #[error("failed to read the output of cargo metadata: {0}")]
    Metadata(#[from] serde_json::Error),
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
        _ => Err(TaskError::Usage),
    }
}

/// Adds the failed action to an I/O error.
fn failed(action: impl Into<String>) -> impl FnOnce(io::Error) -> TaskError {
    let action = action.into();
    move |source| TaskError::Io { action, source }
}
