//! The project's own tasks: `cargo xtask TASK`.

use std::{
    env,
    io::{self, BufWriter, Write as _},
    process::ExitCode,
};

use serde_json::json;
use thiserror::Error;
use xtask::{
    answer,
    input::{self, InputError},
};

const USAGE: &str = "usage: cargo xtask TASK

tasks:
  answer deployment|replicaset|hash FILE
      print what our controllers answer to the recorded cases in FILE (JSON lines, .xz or not; - for standard
      input), one line a case, in the same form";

#[derive(Debug, Error)]
enum TaskError {
    #[error("{USAGE}")]
    Usage,
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("cannot write the answers: {0}")]
    Output(#[from] io::Error),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), TaskError> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["answer", kind @ ("deployment" | "replicaset" | "hash"), file] => print_answers(kind, file),
        _ => Err(TaskError::Usage),
    }
}

fn print_answers(kind: &str, file: &str) -> Result<(), TaskError> {
    let mut out = BufWriter::new(io::stdout().lock());
    for (at, case) in input::cases(file)?.iter().enumerate() {
        let line = match kind {
            "hash" => json!({ "id": at, "hash": answer::hash::answer(case) }),
            "deployment" => json!({ "id": case["id"], "output": answer::deployment::answer(case) }),
            _ => json!({ "id": case["id"], "output": answer::replicaset::answer(case) }),
        };
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(())
}
