//! Development tasks: `cargo xtask TASK`. The tasks are in the suites of `test`.

mod beside;

use std::{
    env,
    io::{self, BufWriter, Write as _},
    path::Path,
    process::ExitCode,
};

use load_tests::{apiserver_load, budget, build_times, manager_load, manager_soak};
use recorded_cases::{
    answer,
    input::{self, InputError},
    record,
};
use serde_json::json;
use simulation_tasks::{explore, planted_bugs, simulate};
use thiserror::Error;

const USAGE: &str = include_str!("usage.txt");

#[derive(Debug, Error)]
enum TaskError {
    #[error("{}", USAGE.trim_end())]
    Usage,
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("failed to write the output: {0}")]
    Output(#[from] io::Error),
    #[error(transparent)]
    Beside(#[from] beside::TaskError),
    #[error(transparent)]
    E2eReport(#[from] upstream_tests::TaskError),
    #[error(transparent)]
    Acceptance(#[from] kubectl_acceptance::TaskError),
    #[error(transparent)]
    Explore(#[from] explore::TaskError),
    #[error(transparent)]
    Record(#[from] record::TaskError),
    #[error(transparent)]
    Load(#[from] load_tests::TaskError),
    #[error(transparent)]
    PlantedBugs(#[from] planted_bugs::TaskError),
    #[error(transparent)]
    Simulate(#[from] simulate::TaskError),
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
        ["beside-upstream", flags @ ..] => Ok(beside::run(flags)?.ok_or(TaskError::Usage)?),
        // Started by `beside-upstream`.
        ["beside-upstream-client", words @ ..] => Ok(beside::run_client(words)?.ok_or(TaskError::Usage)?),
        ["budget", flags @ ..] => Ok(budget::Task::parse(flags).ok_or(TaskError::Usage)?.run()?),
        ["build-times"] => Ok(build_times::run()?),
        ["e2e-report", folder] => Ok(upstream_tests::run(Path::new(folder))?),
        ["apiserver-load", flags @ ..] => {
            Ok(apiserver_load::Task::parse(flags).ok_or(TaskError::Usage)?.run()?)
        }
        ["manager-load", flags @ ..] => {
            Ok(manager_load::Task::parse(flags).ok_or(TaskError::Usage)?.run()?)
        }
        ["manager-soak", flags @ ..] => {
            Ok(manager_soak::Task::parse(flags).ok_or(TaskError::Usage)?.run()?)
        }
        ["explore", flags @ ..] => Ok(explore::Task::parse(flags).ok_or(TaskError::Usage)?.run()?),
        // Started by `explore`.
        ["explore-worker", words @ ..] => match explore::work(words)?.ok_or(TaskError::Usage)? {},
        ["kubectl-acceptance", flags @ ..] => {
            Ok(kubectl_acceptance::Task::parse(flags).ok_or(TaskError::Usage)?.run()?)
        }
        ["planted-bugs", flags @ ..] => {
            Ok(planted_bugs::Task::parse(flags).ok_or(TaskError::Usage)?.run()?)
        }
        ["simulate", flags @ ..] => Ok(simulate::Task::parse(flags).ok_or(TaskError::Usage)?.run()?),
        ["record", flags @ ..] => Ok(record::Task::parse(flags).ok_or(TaskError::Usage)?.run()?),
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
