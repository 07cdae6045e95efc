//! The project's own tasks: `cargo xtask TASK`.

use std::{
    env,
    io::{self, BufWriter, Write as _},
    process::ExitCode,
};

use serde_json::json;
use thiserror::Error;
use xtask::{
    acceptance, answer,
    input::{self, InputError},
    load, manager_load, planted_bugs, record, simulate,
};

const USAGE: &str = "usage: cargo xtask TASK

tasks:
  answer deployment|replicaset|hash FILE
      print what our controllers answer to the recorded cases in FILE (JSON lines, .xz or not; - for standard
      input), one line a case, in the same form

  apiserver-load [--pods N] [--sandbox PATH]
      measure the sandbox over HTTP, and in the same run etcd and kube-apiserver in KUBEBUILDER_ASSETS if that is
      set; run it as cargo run --release -p xtask -- apiserver-load

  kubectl-acceptance [--update-docs] [--newest] [--only N,N,…]
      check what kubectl's users expect against the sandbox, with every kubectl version found, and print the table;
      with KUBECONFIG_REAL against the cluster that kubeconfig names; --update-docs puts the table into
      docs/sandbox.md, --newest takes one version, --only some of the checks

  manager-load [--pods N[,N…]] [--manager PATH] [--sandbox PATH] [--no-takeover]
      measure the manager against the sandbox: start, memory, processor time, takeover; and in the same run the one
      in KUBE_CONTROLLER_MANAGER if that is set; run it as cargo run --release -p xtask -- manager-load

  planted-bugs [--jobs N] [--dir DIR] [NAME...]
      plant the bugs of test/planted-bugs in a copy of the tree and have the simulation look for each, see
      docs/simulation.md; --dir keeps the copy, so that the next build of it is short

  record [--manager COMMAND] [--server COMMAND|embedded [--http]] [--only RE] [--stories DIR] [--against RUNS]
      [--dir DIR] --out DIR
      play the stories with a manager on an API server and record what it writes, see docs/recording.md; in commands
      {kubeconfig} {controllers} {dir} {port} are filled in; without --manager the program in
      KUBE_CONTROLLER_MANAGER, without --server etcd and kube-apiserver in KUBEBUILDER_ASSETS; --against compares
      with recorded runs, --dir keeps the programs' files

  simulate [--seeds A..B] [--minutes N] [--jobs N] [--no-shrink] [--twice] [--file SCENARIO]
      [--log]
      run whole clusters in simulated time, drawn from seeds, and shrink the first that violates a rule, see
      docs/simulation.md; --twice compares two runs of each seed, --file runs a scenario from a file, --log prints
      every write of one; run it as
      cargo run --release -p xtask -- simulate";

#[derive(Debug, Error)]
enum TaskError {
    #[error("{USAGE}")]
    Usage,
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("cannot write the answers: {0}")]
    Output(#[from] io::Error),
    #[error(transparent)]
    Acceptance(#[from] acceptance::TaskError),
    #[error(transparent)]
    Record(#[from] record::TaskError),
    #[error(transparent)]
    Load(#[from] load::TaskError),
    #[error(transparent)]
    PlantedBugs(#[from] planted_bugs::TaskError),
    #[error(transparent)]
    Simulate(#[from] simulate::TaskError),
    #[error(transparent)]
    ManagerLoad(#[from] manager_load::TaskError),
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
        ["apiserver-load", flags @ ..] => {
            let task = load::Task::parse(flags).ok_or(TaskError::Usage)?;
            Ok(task.run()?)
        }
        ["manager-load", flags @ ..] => {
            let task = manager_load::Task::parse(flags).ok_or(TaskError::Usage)?;
            Ok(task.run()?)
        }
        ["kubectl-acceptance", flags @ ..] => {
            let task = acceptance::Task::parse(flags).ok_or(TaskError::Usage)?;
            Ok(task.run()?)
        }
        ["planted-bugs", flags @ ..] => {
            let task = planted_bugs::Task::parse(flags).ok_or(TaskError::Usage)?;
            Ok(task.run()?)
        }
        // Run by `planted-bugs`, in a program with planted bugs.
        ["find-planted-bug", "--jobs", jobs] => {
            Ok(planted_bugs::find(jobs.parse().map_err(|_| TaskError::Usage)?)?)
        }
        ["simulate", flags @ ..] => {
            let task = simulate::Task::parse(flags).ok_or(TaskError::Usage)?;
            Ok(task.run()?)
        }
        ["record", flags @ ..] => {
            let task = record::Task::parse(flags).ok_or(TaskError::Usage)?;
            Ok(task.run()?)
        }
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
