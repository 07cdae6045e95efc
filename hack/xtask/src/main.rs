//! Development tasks: `cargo xtask TASK`. The tasks are in the suites of `test`.

mod beside;

use std::{
    env,
    io::{self, BufWriter, Write as _},
    path::Path,
    process::ExitCode,
};

use load_tests::{apiserver_load, budget, build_times, manager_load, manager_memory};
use recorded_cases::{
    answer,
    input::{self, InputError},
    record,
};
use serde_json::json;
use simulation_tasks::{planted_bugs, simulate};
use thiserror::Error;

const USAGE: &str = "Usage: cargo xtask TASK

Tasks:
  answer deployment|replicaset|hash FILE
      Run the controllers on the recorded cases in FILE and print their output, one line per case. FILE contains
      JSON lines, optionally compressed with xz; - reads stdin.

  apiserver-load [--pods N] [--sandbox PATH]
      Benchmark the sandbox over HTTP. If KUBEBUILDER_ASSETS is set, benchmark its etcd and kube-apiserver, too.
      Run with cargo run --release -p xtask -- apiserver-load.

  beside-upstream [--faults NAME[,NAME...]] [--rounds N] [--jobs N] [--resume] [--page-only] [--manager PATH]
      [--dir DIR]
      Run the manager through the catalogue of faults in test/beside-upstream, after upstream's manager if
      KUBE_CONTROLLER_MANAGER is set, and write docs/beside-upstream.md. The API server is etcd and kube-apiserver in
      KUBEBUILDER_ASSETS, or the embedded one, which can produce some of the faults only. Requires root.
        --rounds       number of rounds; the median counts [default: 3]
        --jobs         number of API servers that are used at the same time [default: 1]
        --resume       keep the results of an earlier task
        --page-only    write the page only
        --dir          directory of results and logs [default: target/beside-upstream]

  budget [--release] [--update] [--growth]
      Count the instructions of the manager for a fixed script with valgrind, and compare them with
      cmd/kube-controller-manager/tests/budget/instructions.txt. Skipped if valgrind is not installed, or the file has
      no numbers of this compiler.
        --release      use the release profile
        --update       write the file
        --growth       print the instructions per object for 1, 3 and 10 times the objects

  build-times
      Build the README's two commands, each with an empty target folder, and write the times to docs/performance.md.

  e2e-report DIR
      Write docs/e2e.md from the results of test/upstream/run in DIR.

  kubectl-acceptance [--update-docs] [--newest] [--only N,N,...]
      Run the kubectl acceptance checks against the sandbox with every installed kubectl version and print the
      results. If KUBECONFIG_REAL is set, run them against the cluster of that kubeconfig.
        --update-docs  write the results to test/kubectl/README.md
        --newest       use the newest kubectl version only
        --only         run these checks only

  manager-load [--pods N[,N...]] [--no-takeover] [--manager PATH] [--sandbox PATH]
      Measure startup time, memory, CPU time and takeover time of the manager on the sandbox. If
      KUBE_CONTROLLER_MANAGER is set, measure that program, too.
      Run with cargo run --release -p xtask -- manager-load.

  manager-load --workloads all|NAME[,NAME...] [--scale N[,N...]] [--rounds N] [--kube-apiserver] [--manager PATH]
      [--sandbox PATH]
      Measure wall time, CPU time of manager and API server, peak memory and writes of workloads. If
      KUBE_CONTROLLER_MANAGER is set, measure that program, too.
        --workloads       burst5000, down5000, small500, roll500, mass_roll300, ten_by_1000, idle
        --scale           factors of the number of pods or Deployments, up to 10 [default: 1]
        --rounds          number of rounds; the median counts [default: 1]
        --kube-apiserver  run on etcd and kube-apiserver in KUBEBUILDER_ASSETS instead of the sandbox

  manager-size [--deployments N] [--revisions N] [--pods-each N] [--manager PATH] [--sandbox PATH]
      Create Deployments with this number of ReplicaSets and pods each, and print the resident memory of the manager.
      Run with cargo run --release -p xtask -- manager-size.

  manager-soak [--cycles N] [--pods N] [--manager PATH] [--sandbox PATH]
      Scale a Deployment from 0 to N pods, change its image and scale it to 0, in each cycle, and print the resident
      memory of the manager. Run with cargo run --release -p xtask -- manager-soak.

  planted-bugs [--jobs N] [--dir DIR] [NAME...]
      Apply the patches in test/planted-bugs to a copy of the source tree and check that the simulation finds each
      bug. See docs/simulation.md.
        --dir          keep the copy in DIR, so that later builds are incremental

  record [--manager COMMAND] [--server COMMAND|embedded [--http]] [--only RE] [--stories DIR] [--against RUNS]
      [--dir DIR] --out DIR
      Play the stories against a manager and an API server and record the writes of the manager. Commands can
      contain {kubeconfig}, {controllers}, {dir} and {port}. See docs/recording.md.
        --manager      command of the manager [default: the program in KUBE_CONTROLLER_MANAGER]
        --server       command of the API server, or embedded [default: etcd and kube-apiserver in
                       KUBEBUILDER_ASSETS]
        --http         the API server does not use TLS
        --only         play stories with matching names only
        --stories      directory of the stories [default: test/stories]
        --against      compare with the recorded runs in this directory
        --dir          keep logs and other files of the programs in DIR
        --out          directory for the recordings

  simulate [--seeds A..B] [--minutes N] [--jobs N] [--no-shrink] [--twice] [--file SCENARIO] [--log]
      Simulate clusters generated from seeds, and shrink the first scenario that violates a rule. See
      docs/simulation.md. Run with cargo run --release -p xtask -- simulate.
        --no-shrink    do not shrink a failed scenario
        --twice        compare two runs of each seed
        --file         run the scenario in this file
        --log          print every write of the scenario";

#[derive(Debug, Error)]
enum TaskError {
    #[error("{USAGE}")]
    Usage,
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("failed to write the output: {0}")]
    Output(#[from] io::Error),
    #[error(transparent)]
    Beside(#[from] beside::TaskError),
    #[error(transparent)]
    Budget(#[from] budget::TaskError),
    #[error(transparent)]
    BuildTimes(#[from] build_times::TaskError),
    #[error(transparent)]
    E2eReport(#[from] upstream_tests::TaskError),
    #[error(transparent)]
    Acceptance(#[from] kubectl_acceptance::TaskError),
    #[error(transparent)]
    Record(#[from] record::TaskError),
    #[error(transparent)]
    Load(#[from] apiserver_load::TaskError),
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
        ["beside-upstream", flags @ ..] => Ok(beside::run(flags)?.ok_or(TaskError::Usage)?),
        // Started by `beside-upstream`.
        ["beside-upstream-client", words @ ..] => Ok(beside::run_client(words)?.ok_or(TaskError::Usage)?),
        ["budget", flags @ ..] => Ok(budget::Task::parse(flags).ok_or(TaskError::Usage)?.run()?),
        ["build-times"] => Ok(build_times::run()?),
        ["e2e-report", folder] => Ok(upstream_tests::run(Path::new(folder))?),
        ["apiserver-load", flags @ ..] => {
            let task = apiserver_load::Task::parse(flags).ok_or(TaskError::Usage)?;
            Ok(task.run()?)
        }
        ["manager-load", flags @ ..] => {
            let task = manager_load::Task::parse(flags).ok_or(TaskError::Usage)?;
            Ok(task.run()?)
        }
        ["manager-size", flags @ ..] => {
            let task = manager_memory::SizeTask::parse(flags).ok_or(TaskError::Usage)?;
            Ok(task.run()?)
        }
        ["manager-soak", flags @ ..] => {
            let task = manager_memory::SoakTask::parse(flags).ok_or(TaskError::Usage)?;
            Ok(task.run()?)
        }
        ["kubectl-acceptance", flags @ ..] => {
            let task = kubectl_acceptance::Task::parse(flags).ok_or(TaskError::Usage)?;
            Ok(task.run()?)
        }
        ["planted-bugs", flags @ ..] => {
            let task = planted_bugs::Task::parse(flags).ok_or(TaskError::Usage)?;
            Ok(task.run()?)
        }
        // Used by `planted-bugs` in a build with planted bugs.
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
