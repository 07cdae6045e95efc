//! Searches the bug that the environment names, in a build with planted bugs. Started by `cargo xtask planted-bugs`.

use std::{env, error::Error, process::ExitCode};

use simulation_tasks::{
    explore::{WORKER, work},
    planted_bugs::find,
};

const USAGE: &str = "Usage: find-planted-bug JOBS SEEDS";

fn main() -> ExitCode {
    match run() {
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

fn run() -> Result<String, Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        // Started by the search itself.
        [WORKER, words @ ..] => match work(words)?.ok_or(USAGE)? {},
        [jobs, seeds] => Ok(find(jobs.parse()?, seeds.parse()?)?),
        _ => Err(USAGE.into()),
    }
}
