//! `cargo xtask explore`: runs every schedule of small scenarios with a bounded number of surprises.

mod progress;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    env, fs,
    hash::{DefaultHasher, Hasher as _},
    io::{self, BufReader},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use kcm_clock::{Clock, RealClock};
use kcm_rollout_simulation::{
    Bounds, Explorer, Report, Scenario, ScenarioError, SimulationError, Survey, Violation, Workers, parallel,
    run_parts,
};
use parking_lot::Mutex;
use thiserror::Error;

use self::progress::Progress;
use crate::{
    page::{PageError, Table},
    tree,
};

/// Folder of the scenarios, from the root of the tree.
pub const FOLDER: &str = "test/stories/explore";

/// First argument of the processes that explore.
pub const WORKER: &str = "explore-worker";

/// Folder of the state of explorations, from the root of the tree.
const STATE: &str = "target/explore";

/// Interval of progress lines.
const PROGRESS: Duration = Duration::from_secs(10);

/// Results of the explorations.
const RESULTS: Table = Table {
    header: "\
| Scenario | Choice points | Surprises | Share | Schedules | Run to their end | Time | Schedules per second | Violations |
|---|---|---|---|---|---|---|---|---|
",
    key: &[0, 2],
};

/// Arguments of the task.
#[derive(Debug)]
pub struct Task {
    scenarios: Vec<String>,
    surprises: usize,
    share: usize,
    jobs: usize,
    resume: bool,
}

/// An exploration that found something, or could not be run.
#[derive(Debug, Error)]
pub enum TaskError {
    /// A scenario file cannot be used.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The simulation itself does not work.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// A scenario is named that does not exist.
    #[error("{FOLDER} has no {0}.yaml")]
    Unknown(String),
    /// A file cannot be read or written.
    #[error("failed to access {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The table cannot be written.
    #[error(transparent)]
    Page(#[from] PageError),
    /// There are findings.
    #[error("{0} schedules violate rules")]
    Found(usize),
}

impl TaskError {
    fn file(path: &Path) -> impl Fn(io::Error) -> Self + use<'_> {
        |source| Self::File { path: path.to_owned(), source }
    }
}

/// Returns the scenarios of a folder, by name.
pub(crate) fn scenarios(folder: &Path) -> Result<BTreeMap<String, Scenario>, TaskError> {
    let mut scenarios = BTreeMap::new();
    for entry in folder.read_dir().map_err(TaskError::file(folder))? {
        let path = entry.map_err(TaskError::file(folder))?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        scenarios.insert(name, Scenario::read(&path)?);
    }
    Ok(scenarios)
}

/// Hash of this program.
fn program() -> Result<u64, TaskError> {
    let path = env::current_exe().map_err(TaskError::file(Path::new("the program")))?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read(&path).map_err(TaskError::file(&path))?);
    Ok(hasher.finish())
}

/// Processes that explore a scenario.
pub(crate) fn workers(name: &str, Bounds { surprises, share }: Bounds) -> Workers {
    Workers::new(vec![WORKER.to_owned(), name.to_owned(), surprises.to_string(), share.to_string()])
}

/// Runs the parts that standard input names. `words` follow [`WORKER`]; returns `None` if they make no sense.
pub fn work(words: &[&str]) -> Result<Option<Infallible>, TaskError> {
    let [name, surprises, share] = words else { return Ok(None) };
    let (Ok(surprises), Ok(share)) = (surprises.parse(), share.parse()) else { return Ok(None) };
    let scenario = Scenario::read(&tree().join(FOLDER).join(format!("{name}.yaml")))?;
    let explorer = Explorer::new(scenario, surprises)?.with_share(share);
    Ok(Some(run_parts(explorer, BufReader::new(io::stdin()), io::stdout())?))
}

impl Task {
    /// Parses the words after `explore`; `None` if they make no sense.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let jobs = parallel::available();
        let mut task = Self { scenarios: Vec::new(), surprises: 1, share: 1, jobs, resume: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--scenario" => task.scenarios.extend(words.next()?.split(',').map(str::to_owned)),
                "--surprises" => task.surprises = words.next()?.parse().ok().filter(|number| *number > 0)?,
                "--share" => task.share = words.next()?.parse().ok().filter(|share| *share > 0)?,
                "--jobs" => task.jobs = words.next()?.parse().ok().filter(|jobs| *jobs > 0)?,
                "--resume" => task.resume = true,
                _ => return None,
            }
        }
        Some(task)
    }

    /// Explores the scenarios, prints violations, and writes the table of `docs/simulation.md`.
    pub fn run(&self) -> Result<(), TaskError> {
        let tree = tree();
        let mut all = scenarios(&tree.join(FOLDER))?;
        if let Some(unknown) = self.scenarios.iter().find(|name| !all.contains_key(*name)) {
            return Err(TaskError::Unknown(unknown.clone()));
        }
        if !self.scenarios.is_empty() {
            all.retain(|name, _| self.scenarios.contains(name));
        }
        let program = program()?;
        let mut violations = 0;
        for (name, scenario) in all {
            let row = self.explore(&tree, program, &name, scenario, &mut violations)?;
            println!("{row}");
            RESULTS.update(&tree, &row)?;
        }
        if violations == 0 { Ok(()) } else { Err(TaskError::Found(violations)) }
    }

    /// States of the schedules with one surprise, and violations by part.
    fn survey(
        &self,
        name: &str,
        parts: usize,
    ) -> Result<(Survey, BTreeMap<usize, Vec<Violation>>), SimulationError> {
        let bounds = Bounds { surprises: 1, share: 1 };
        let workers = workers(name, bounds);
        let (mut survey, mut violations) = (Survey::default(), BTreeMap::new());
        let failed = parallel::each(
            bounds.groups(parts),
            self.jobs,
            |group| workers.run_parts(group.clone()).map_err(SimulationError::Children),
            |group, reports| match reports {
                Ok(reports) => {
                    for (part, report) in group.zip(reports) {
                        survey.add(part, report.states);
                        violations.insert(part, report.violations);
                    }
                    ControlFlow::Continue(())
                }
                Err(error) => ControlFlow::Break(error),
            },
        );
        failed.map_or(Ok((survey, violations)), Err)
    }

    /// Runs the parts that are not finished. Returns the first violation.
    fn run_parts(
        &self,
        name: &str,
        explorer: &Explorer,
        progress: &Mutex<Progress>,
    ) -> Result<Option<Violation>, TaskError> {
        let clock = RealClock::new();
        let left = progress.lock().left(explorer.bounds().groups(explorer.parts()));
        let is_surveyed = self.surprises > 1 && !left.is_empty();
        let (survey, mut surveyed) =
            if is_surveyed { self.survey(name, explorer.parts())? } else { Default::default() };
        let mut first = None;
        let mut add = |part, mut report: Report| {
            // A schedule may end at the state of one that does not violate the rule.
            for violation in surveyed.remove(&part).into_iter().flatten() {
                if !report.violations.iter().any(|one| one.surprises == violation.surprises) {
                    report.violations.push(violation);
                }
            }
            for Violation { surprises, findings } in &report.violations {
                for finding in findings {
                    println!("{name}: {finding}");
                }
                println!("{name}: with {surprises:?}");
            }
            first = first.take().or_else(|| report.violations.first().cloned());
            progress.lock().add(part, &report, clock.monotonic())
        };
        let workers = workers(name, explorer.bounds()).with_survey(survey);
        let failed = parallel::each(
            left.into_iter(),
            self.jobs,
            |group| workers.run_parts(group.clone()).map_err(SimulationError::Children),
            |group, reports| {
                let added = reports
                    .map_err(TaskError::from)
                    .and_then(|reports| group.zip(reports).try_for_each(|(part, report)| add(part, report)));
                added.map_or_else(ControlFlow::Break, ControlFlow::Continue)
            },
        );
        failed.map_or(Ok(first), Err)
    }

    fn explore(
        &self,
        tree: &Path,
        program: u64,
        name: &str,
        scenario: Scenario,
        violations: &mut usize,
    ) -> Result<String, TaskError> {
        let text = scenario.to_text();
        let explorer = Explorer::new(scenario, self.surprises)?.with_share(self.share);
        if !explorer.outcome().has_no_findings() {
            println!("{name} without surprises violates rules:\n{}", explorer.outcome());
            *violations += 1;
        }
        let file = tree.join(STATE).join(format!("{name}-{}-{}.txt", self.surprises, self.share));
        let progress = Progress::open(file, explorer.parts(), (program, &text), self.resume)?;
        let progress = Mutex::new(progress);
        let (running, is_over) = mpsc::channel::<()>();
        let first = thread::scope(|scope| {
            scope.spawn(|| {
                let is_over = is_over;
                while is_over.recv_timeout(PROGRESS) == Err(RecvTimeoutError::Timeout) {
                    let line = progress.lock().to_string();
                    eprintln!("{name}: {line}");
                }
            });
            // Its end wakes the thread that shows the progress.
            let _running = running;
            self.run_parts(name, &explorer, &progress)
        })?;
        let progress = progress.into_inner();
        *violations += usize::try_from(progress.violations).unwrap_or(usize::MAX);
        if let Some(Violation { surprises, findings }) = first {
            let rules: Vec<&str> = findings.iter().map(|finding| &*finding.rule).collect();
            let small = explorer.schedule(&surprises).shrunk(&rules)?;
            println!(
                "{name} in short, for a file in test/stories/found/simulation:\n\n{}\n{}",
                small.to_text(),
                small.run()?
            );
        }
        let share = if self.share == 1 { "all".to_owned() } else { format!("1/{}", self.share) };
        let seconds = progress.seconds();
        Ok(format!(
            "| {name} | {} | {} | {share} | {} | {} | {seconds:.0} s | {:.0} | {} |",
            explorer.choice_count(),
            self.surprises,
            progress.schedules,
            progress.schedules - progress.rejoined,
            progress.schedules as f64 / seconds.max(0.001),
            progress.violations,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_nonsense_is_refused() {
        let task =
            Task::parse(&["--scenario", "a,b", "--surprises", "2", "--share", "3", "--resume"]).unwrap();
        assert_eq!(task.scenarios, ["a", "b"]);
        assert_eq!((task.surprises, task.share, task.resume), (2, 3, true));
        for nonsense in [&["--scenario"][..], &["--surprises", "0"], &["--jobs", "x"], &["--fast"]] {
            assert!(Task::parse(nonsense).is_none(), "{nonsense:?}");
        }
    }
}
