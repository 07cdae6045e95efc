//! The task: all faults, managers and rounds.

use std::{
    collections::VecDeque,
    fs,
    future::pending,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kcm_clock::{Clock, RealClock};
use parking_lot::Mutex;
use tokio::{
    signal::{
        ctrl_c,
        unix::{SignalKind, signal},
    },
    task::JoinSet,
};

use crate::{
    catalogue::{self, Fault},
    cluster::Cluster,
    error::{SuiteError, failed},
    measure::Who,
    page,
    results::Results,
    run::{Plan, run},
    verdict::exceeded,
    workload::{FULL, SMALL},
};

/// Default number of rounds.
const ROUNDS: usize = 3;

/// Arguments of the task.
#[derive(Debug)]
pub struct Task {
    faults: Vec<&'static Fault>,
    rounds: usize,
    jobs: usize,
    resume: bool,
    page_only: bool,
    folder: Option<PathBuf>,
    manager: Option<PathBuf>,
}

/// Programs of the runs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// This manager.
    pub ours: PathBuf,
    /// Upstream's manager, see `KUBE_CONTROLLER_MANAGER`.
    pub upstream: Option<PathBuf>,
    /// Folder with etcd and kube-apiserver, see `KUBEBUILDER_ASSETS`. `None` for the embedded API server.
    pub assets: Option<PathBuf>,
}

/// A run that is to be made.
#[derive(Debug, Clone, Copy)]
struct Job {
    fault: &'static Fault,
    who: Who,
    round: usize,
}

/// State that the lanes share.
struct Shared {
    jobs: Mutex<VecDeque<Job>>,
    results: Mutex<Results>,
    programs: Programs,
    logs: PathBuf,
    started: Duration,
    count: usize,
    clock: RealClock,
}

impl Task {
    /// Parses the arguments. Returns `None` if they are invalid.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut task = Self {
            faults: catalogue::all().collect(),
            rounds: ROUNDS,
            jobs: 1,
            resume: false,
            page_only: false,
            folder: None,
            manager: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--faults" => {
                    task.faults = words.next()?.split(',').map(catalogue::find).collect::<Option<_>>()?;
                }
                "--rounds" => task.rounds = words.next()?.parse().ok().filter(|rounds| *rounds > 0)?,
                "--jobs" => task.jobs = words.next()?.parse().ok().filter(|jobs| *jobs > 0)?,
                "--resume" => task.resume = true,
                "--page-only" => task.page_only = true,
                "--dir" => task.folder = Some((*words.next()?).into()),
                "--manager" => task.manager = Some((*words.next()?).into()),
                _ => return None,
            }
        }
        Some(task)
    }

    /// Program of this manager, if given.
    pub fn manager(&self) -> Option<&Path> {
        self.manager.as_deref()
    }

    /// `true` if no manager is run.
    pub fn is_page_only(&self) -> bool {
        self.page_only
    }

    /// Runs the faults and writes the page to `page`. Results and logs are written to `--dir`, or to `folder`.
    pub async fn run(&self, programs: Programs, folder: &Path, page: &Path) -> Result<(), SuiteError> {
        let folder = self.folder.as_deref().unwrap_or(folder);
        let logs = folder.join("logs");
        fs::create_dir_all(&logs).map_err(failed(logs.display().to_string()))?;
        let mut results = Results::read(&folder.join("results.jsonl"))?;
        if !self.page_only {
            let jobs = self.jobs(&programs, &mut results)?;
            let clock = RealClock::new();
            let shared = Arc::new(Shared {
                count: jobs.len(),
                jobs: Mutex::new(jobs),
                results: Mutex::new(results),
                programs,
                logs,
                started: clock.monotonic(),
                clock,
            });
            let mut lanes = JoinSet::new();
            for _ in 0..self.jobs.min(shared.count) {
                lanes.spawn(lane(Arc::clone(&shared)));
            }
            // The lanes are dropped at the end, and their processes killed: they do not receive the signals of a terminal.
            loop {
                tokio::select! {
                    ended = lanes.join_next() => match ended {
                        Some(ended) => ended.unwrap_or(Ok(()))?,
                        None => break,
                    },
                    () = interrupted() => return Err(SuiteError::Interrupted),
                }
            }
            results = Results::read(&folder.join("results.jsonl"))?;
        }
        fs::write(page, page::page(&results.measurements)).map_err(failed(page.display().to_string()))
    }

    /// Runs to be made: round by round, first with upstream's manager, then with this one.
    fn jobs(&self, programs: &Programs, results: &mut Results) -> Result<VecDeque<Job>, SuiteError> {
        let is_embedded = programs.assets.is_none();
        let possible = |fault: &&&'static Fault| page::is_possible(fault.effect, is_embedded);
        let faults: Vec<_> = self.faults.iter().filter(possible).copied().collect();
        if !self.resume {
            for fault in &faults {
                results.remove(&fault.name)?;
            }
        }
        let managers: &[Who] =
            if programs.upstream.is_some() { &[Who::Upstream, Who::Ours] } else { &[Who::Ours] };
        let mut jobs = VecDeque::new();
        for round in 1..=self.rounds {
            for fault in &faults {
                for who in managers {
                    if !results.contains(&fault.name, *who, round) {
                        jobs.push_back(Job { fault, who: *who, round });
                    }
                }
            }
        }
        Ok(jobs)
    }
}

/// Waits for SIGINT or SIGTERM.
async fn interrupted() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return pending().await };
    tokio::select! {
        _ = ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// Makes runs on one API server until there are no more.
async fn lane(shared: Arc<Shared>) -> Result<(), SuiteError> {
    let assets = shared.programs.assets.clone();
    let mut cluster = Cluster::start(assets.as_deref()).await?;
    loop {
        let Some(job) = shared.jobs.lock().pop_front() else { return Ok(()) };
        let name = if job.who == Who::Ours { "ours" } else { "upstream" };
        let log = shared.logs.join(format!("{}-{name}-{}.log", job.fault.name, job.round));
        let program = match (job.who, &shared.programs.upstream) {
            (Who::Upstream, Some(program)) => program,
            _ => &shared.programs.ours,
        };
        let plan = Plan {
            fault: job.fault,
            who: job.who,
            program,
            round: job.round,
            scale: FULL,
            log: &log,
            until_reached: false,
        };
        match run(&mut cluster, plan).await {
            Ok(measurement) => {
                shared.report(job, &serde_json::to_string(&measurement)?);
                shared.results.lock().add(measurement)?;
            }
            Err(error) => {
                // The API server of the lane may be unusable.
                shared.report(job, &format!("no result: {error}"));
                cluster = Cluster::start(assets.as_deref()).await?;
            }
        }
    }
}

impl Shared {
    /// Prints a result and the time that is left.
    fn report(&self, job: Job, text: &str) {
        let left = self.jobs.lock().len();
        let done = (self.count - left).max(1) as u32;
        let elapsed = self.clock.monotonic().saturating_sub(self.started);
        let minutes = (elapsed / done * left as u32).as_secs() / 60;
        eprintln!(
            "{} {:?} round {}: {text} [{left} left, about {minutes} min]",
            job.fault.name, job.who, job.round
        );
    }
}

/// Runs this manager through a fault on the embedded API server. The fault ends as soon as it has reached the manager, unless
/// it consists of bursts. Returns the bounds that the manager exceeds.
pub async fn run_embedded(fault: &str, program: &Path, log: &Path) -> Result<Vec<String>, SuiteError> {
    let unknown = || failed(fault.to_owned())(std::io::ErrorKind::NotFound.into());
    let fault = catalogue::find(fault).ok_or_else(unknown)?;
    let mut cluster = Cluster::start(None).await?;
    let until_reached = !fault.effect.has_pauses();
    let plan = Plan { fault, who: Who::Ours, program, round: 1, scale: SMALL, log, until_reached };
    let measurement = run(&mut cluster, plan).await?;
    let mut exceeded: Vec<_> = exceeded(&measurement, &fault.bounds).into_iter().map(str::to_owned).collect();
    if measurement.reached == 0 {
        exceeded.push("the fault did not reach the manager".to_owned());
    }
    Ok(exceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_rejects_unknown_faults_and_zero_rounds() {
        let task = Task::parse(&["--faults", "sigkill,429", "--rounds", "1", "--resume"]).unwrap();
        assert_eq!((task.faults.len(), task.rounds, task.resume), (2, 1, true));
        assert!(Task::parse(&["--faults", "earthquake"]).is_none());
        assert!(Task::parse(&["--rounds", "0"]).is_none());
        assert_eq!(Task::parse(&[]).unwrap().rounds, ROUNDS);
    }
}
