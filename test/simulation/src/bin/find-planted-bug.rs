//! Searches the bug that the environment names, in a build with planted bugs. Started by `cargo xtask planted-bugs`.

use std::{env, process::ExitCode};

use simulation_tasks::planted_bugs::find;

fn main() -> ExitCode {
    let numbers: Vec<u64> = env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [jobs, seeds] = numbers[..] else {
        eprintln!("Usage: find-planted-bug JOBS SEEDS");
        return ExitCode::FAILURE;
    };
    match find(usize::try_from(jobs).unwrap_or(1), seeds) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
