//! `cargo xtask simulate`: runs simulations on all processors.

use std::{
    ops::{ControlFlow, Range},
    path::PathBuf,
    time::Duration,
};

use kcm_clock::{Clock, RealClock};
use kcm_rollout_simulation::{Outcome, Scenario, ScenarioError, SimulationError, parallel};
use thiserror::Error;

/// Seeds that are run unless the command says otherwise.
const SEEDS: Range<u64> = 0..1000;

/// Interval of progress lines.
const PROGRESS: Duration = Duration::from_secs(10);

/// Arguments of the task.
#[derive(Debug)]
pub struct Task {
    seeds: Range<u64>,
    minutes: Option<u64>,
    jobs: usize,
    file: Option<PathBuf>,
    log: bool,
}

/// A simulation that found something, or could not be run.
#[derive(Debug, Error)]
pub enum TaskError {
    /// A scenario file cannot be used.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The simulation itself does not work.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// There are findings.
    #[error("{0} scenarios violate rules")]
    Found(usize),
}

impl Task {
    /// Parses the words after `simulate`; `None` if they make no sense.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let jobs = parallel::available();
        let mut task = Self { seeds: SEEDS, minutes: None, jobs, file: None, log: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--seeds" => task.seeds = seeds(words.next()?)?,
                "--minutes" => {
                    task.minutes = Some(words.next()?.parse().ok()?);
                    task.seeds.end = u64::MAX;
                }
                "--jobs" => task.jobs = words.next()?.parse().ok().filter(|jobs| *jobs > 0)?,
                "--file" => task.file = Some((*words.next()?).into()),
                "--log" => task.log = true,
                _ => return None,
            }
        }
        Some(task)
    }

    /// Runs the simulations and prints what they find.
    pub fn run(&self) -> Result<(), TaskError> {
        if let Some(file) = &self.file {
            return self.play(&Scenario::read(file)?);
        }
        if self.log {
            return self.play(&Scenario::draw(self.seeds.start));
        }
        let clock = RealClock::new();
        let limit = self.minutes.map(|minutes| Duration::from_secs(minutes * 60));
        let mut failed = Vec::new();
        let (mut done, mut writes, mut shown) = (0_u64, 0_u64, Duration::ZERO);
        let broken = parallel::each(
            self.seeds.clone(),
            self.jobs,
            |seed| run(*seed),
            |seed, outcome| {
                let elapsed = clock.monotonic();
                let outcome = match outcome {
                    Ok(outcome) => outcome,
                    Err(error) => return ControlFlow::Break(Some(error)),
                };
                done += 1;
                writes += outcome.writes;
                if !outcome.has_no_findings() {
                    println!("seed {seed} violates {}:\n{outcome}", outcome.rules().join(", "));
                    failed.push((seed, outcome));
                }
                if elapsed >= shown + PROGRESS {
                    shown = elapsed;
                    eprintln!("{done} seeds, {:.1} a second, {} failed", rate(done, elapsed), failed.len());
                }
                if limit.is_some_and(|limit| elapsed >= limit) {
                    return ControlFlow::Break(None);
                }
                ControlFlow::Continue(())
            },
        );
        if let Some(Some(error)) = broken {
            return Err(error.into());
        }
        let elapsed = clock.monotonic();
        println!(
            "{done} seeds in {:.0} s with {} jobs: {:.1} a second a job, {} writes a seed, {} failed",
            elapsed.as_secs_f64(),
            self.jobs,
            rate(done, elapsed) / self.jobs as f64,
            writes / done.max(1),
            failed.len(),
        );
        if let Some((seed, outcome)) = failed.first() {
            let small = Scenario::draw(*seed).shrunk(&outcome.rules())?;
            println!(
                "seed {seed} in short, for a file in test/stories/found/simulation:\n\n{}",
                small.to_text()
            );
            println!("{}", small.run()?);
        }
        if failed.is_empty() { Ok(()) } else { Err(TaskError::Found(failed.len())) }
    }

    /// Runs one scenario and prints everything.
    fn play(&self, scenario: &Scenario) -> Result<(), TaskError> {
        let outcome = scenario.run()?;
        if self.log {
            println!("{}", scenario.to_text());
            for line in &outcome.log {
                println!("{line}");
            }
        }
        print!("{outcome}");
        if outcome.has_no_findings() { Ok(()) } else { Err(TaskError::Found(1)) }
    }
}

fn rate(done: u64, elapsed: Duration) -> f64 {
    done as f64 / elapsed.as_secs_f64().max(0.001)
}

/// `7` or `100..300`.
fn seeds(text: &str) -> Option<Range<u64>> {
    match text.split_once("..") {
        Some((from, to)) => Some(from.parse().ok()?..to.parse().ok()?),
        None => text.parse().ok().map(|seed| seed..seed + 1),
    }
}

/// Runs a seed.
pub(crate) fn run(seed: u64) -> Result<Outcome, SimulationError> {
    Scenario::draw(seed).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_nonsense_is_refused() {
        let task = Task::parse(&["--seeds", "5..9", "--jobs", "2"]).unwrap();
        assert_eq!((task.seeds, task.jobs), (5..9, 2));
        assert_eq!(Task::parse(&["--seeds", "7"]).unwrap().seeds, 7..8);
        for nonsense in [&["--seeds"][..], &["--seeds", "x"], &["--jobs", "0"], &["--fast"]] {
            assert!(Task::parse(nonsense).is_none(), "{nonsense:?}");
        }
    }
}
