//! Seeds, exploration and shrinking of the scenarios of an operator.

use std::{
    fmt,
    ops::{ControlFlow, Range},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use thiserror::Error;

use crate::{
    engine::{
        explore::Explorer,
        faults::{Incident, RequestFault, RequestPattern},
        observer::Finding,
        outcome::{Outcome, SimulationError},
        parallel,
        shrink::{Reduction, shrink},
    },
    removal,
    scenario::{LONG_HISTORY, Scenario},
    simulate::SimulatedScenario,
    simulation::Simulation,
};

/// Lines of the log in the text of a [`Failure`].
const LOG_LINES: usize = 60;

/// A scenario that violates rules.
#[derive(Clone, PartialEq, Error)]
pub struct Failure {
    /// Smallest scenario that was found.
    pub scenario: Scenario,
    /// Its outcome.
    pub outcome: Outcome,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\nscenario:\n{}\nlog:", self.outcome, self.scenario.to_text())?;
        let skipped = self.outcome.log.len().saturating_sub(LOG_LINES);
        self.outcome.log.iter().skip(skipped).try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The text of [`Display`](fmt::Display), which is that of a failed assertion.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Failure {
    /// `None` if the scenario violates no rule.
    fn of(scenario: Scenario, outcome: Outcome) -> Option<Self> {
        (!outcome.has_no_findings()).then_some(Self { scenario, outcome })
    }
}

/// Fails the test if a violation was found.
#[expect(clippy::panic, reason = "a failure fails the test")]
fn pass(found: Found) {
    match found {
        Ok(None) => {}
        Ok(Some(failure)) => panic!("{failure}"),
        Err(error) => panic!("{error}"),
    }
}

/// Findings of the faults and incidents of a scenario that have no effect.
fn without_effect(scenario: &Scenario, outcome: &Outcome) -> Vec<Finding> {
    let of_faults = outcome.faults_without_requests.iter().filter_map(|at| {
        let RequestFault { requests: RequestPattern(requests), effect, from, until, .. } =
            scenario.faults.get(*at)?;
        Some(format!("no request of `{requests}` from {from} to {until} can have the effect {effect:?}"))
    });
    let of_incidents = scenario.incidents.iter().filter_map(|incident| match incident.event {
        Incident::Kill { manager }
        | Incident::Terminate { manager }
        | Incident::Stop { manager, .. }
        | Incident::Cut { manager, .. }
        | Incident::ClockStep { manager, .. } => {
            (manager >= scenario.managers).then(|| format!("there is no process {manager}"))
        }
        Incident::Lag { front_end, .. } => {
            (front_end >= scenario.front_ends.max(1)).then(|| format!("there is no API server {front_end}"))
        }
        Incident::Restore { .. } => None,
    });
    of_faults.chain(of_incidents).map(|what| Finding { rule: "fault".to_owned(), what }).collect()
}

/// Result of a search.
type Found = Result<Option<Failure>, SimulationError>;

impl<X: Send + Sync + 'static> Simulation<X> {
    /// Checks the operator: the run without faults, its repetition, every schedule with one surprise, and `seeds`.
    ///
    /// # Panics
    ///
    /// If a rule is violated: the message contains the smallest scenario that was found. If the scenario cannot be run. Within a
    /// Tokio runtime.
    pub fn check(&self, seeds: Range<u64>) {
        pass(self.calm().and_then(|found| match found {
            Some(failure) => Ok(Some(failure)),
            None => match self.surprises(1)? {
                Some(failure) => Ok(Some(failure)),
                None => self.seeds(seeds),
            },
        }));
    }

    /// Checks the operator in a scenario, such as that of an earlier [`Failure`]: the run without faults, its repetition, and
    /// the run with faults. A surprise for a step that does not occur violates `surprise`, and a fault that can affect no request
    /// violates `fault`.
    ///
    /// # Panics
    ///
    /// If a rule is violated, or the scenario cannot be run. Within a Tokio runtime.
    pub fn check_scenario(&self, scenario: &Scenario) {
        pass(self.calm_run(scenario.without_faults()).and_then(|found| match found {
            Some(failure) => Ok(Some(failure)),
            None => {
                let mut outcome = self.run(scenario)?;
                if self.applies("fault") && outcome.has_no_findings() {
                    outcome.findings.extend(without_effect(scenario, &outcome));
                }
                Ok(Failure::of(scenario.clone(), outcome))
            }
        }));
    }

    /// Runs the scenario without faults, and repeats it.
    ///
    /// # Errors
    ///
    /// If a rule or a kind does not exist, or the API server refuses an object of the start.
    ///
    /// # Panics
    ///
    /// Within a Tokio runtime.
    pub fn calm(&self) -> Found {
        self.calm_run(self.scenario.clone())
    }

    /// Runs a scenario that has no faults, and repeats it.
    fn calm_run(&self, scenario: Scenario) -> Found {
        let (mut outcome, differs) = self.run_twice(&scenario)?;
        outcome.findings.extend(differs);
        // All other rules hold for an operator that does nothing.
        if outcome.writes == 0 && outcome.has_no_findings() && self.applies("inactive") {
            let what = "the operator writes nothing".to_owned();
            outcome.findings.push(Finding { rule: "inactive".to_owned(), what });
        }
        Ok(Failure::of(scenario, outcome))
    }

    /// Runs the scenario with the faults of each seed. Returns the first violation, shrunk: a test compares the result with `None`.
    ///
    /// # Errors
    ///
    /// If a rule or a kind does not exist, or the API server refuses an object of the start.
    ///
    /// # Panics
    ///
    /// Within a Tokio runtime.
    pub fn seeds(&self, seeds: Range<u64>) -> Found {
        let found = in_threads(
            usize::try_from(seeds.end.saturating_sub(seeds.start)).unwrap_or(usize::MAX),
            |number| {
                let seed = seeds.start + number as u64;
                let scenario = self.scenario.with_seed(seed);
                let outcome = self.run(&scenario)?;
                Ok((!outcome.has_no_findings()).then_some((scenario, outcome)))
            },
        )?;
        found.map(|(scenario, outcome)| self.shrunk(scenario, &outcome)).transpose()
    }

    /// Runs every schedule of the scenario with at most `surprises`. Returns the first violation, shrunk: a test compares the result
    /// with `None`.
    ///
    /// # Errors
    ///
    /// If a rule or a kind does not exist, or the API server refuses an object of the start.
    ///
    /// # Panics
    ///
    /// Within a Tokio runtime.
    pub fn surprises(&self, surprises: usize) -> Found {
        let (scenario, calm) = (self.scenario.clone(), Arc::new(self.run_once(&self.scenario)?));
        let scenario = SimulatedScenario { simulation: self, scenario, calm };
        let explorer = Explorer::new(scenario, surprises)?.with_share(self.share);
        let explorer = if self.is_reduced { explorer } else { explorer.without_reduction() };
        if !explorer.outcome().has_no_findings() {
            return self.shrunk(self.scenario.clone(), explorer.outcome()).map(Some);
        }
        // Not in groups, so that few parts use all processors, and no part is run after a violation.
        let found = in_threads(explorer.parts(), |part| {
            let reports = explorer.run_parts(part..part + 1)?;
            Ok(reports.into_iter().flat_map(|report| report.violations).next())
        })?;
        let Some(violation) = found else { return Ok(None) };
        let scenario = explorer.schedule(&violation.surprises).scenario;
        let outcome = Outcome { findings: violation.findings, ..Outcome::default() };
        self.shrunk(scenario, &outcome).map(Some)
    }

    /// Makes a scenario that violates a rule as small as possible.
    fn shrunk(&self, scenario: Scenario, violated: &Outcome) -> Result<Failure, SimulationError> {
        let rules = violated.rules();
        let has_actions = !scenario.actions.is_empty();
        let scenario = shrink(
            scenario,
            REDUCTIONS,
            |scenario| &mut scenario.surprises,
            |scenario| {
                // Without actions, a corrected operator may write nothing, which violates `inactive`.
                if has_actions && scenario.actions.is_empty() {
                    return Ok(false);
                }
                let outcome = self.run(scenario)?;
                Ok::<_, SimulationError>(outcome.rules().iter().any(|rule| rules.contains(rule)))
            },
        )?;
        let mut outcome = self.run(&scenario)?;
        if outcome.has_no_findings() {
            // The operator does not depend on the scenario alone.
            let what = format!("a repetition does not violate {}", rules.join(", "));
            let (_, differs) = self.run_twice(&scenario)?;
            outcome.findings.clone_from(&violated.findings);
            outcome.findings.push(Finding { rule: "deterministic".to_owned(), what });
            outcome.findings.extend(differs);
        }
        Ok(Failure { scenario, outcome })
    }
}

/// Parts that may be left out of a scenario.
const REDUCTIONS: &[Reduction<Scenario>] = &[
    removal!(incidents),
    removal!(faults),
    removal!(surprises),
    removal!(actions),
    Reduction { len: |_| 1, reduce: |scenario, _| scenario.managers = 1 },
    Reduction { len: |_| 1, reduce: |scenario, _| scenario.front_ends = 1 },
    Reduction { len: |_| 1, reduce: |scenario, _| scenario.history = LONG_HISTORY },
];

/// Calls `run` with `0..count` on all cores. Returns the result with the lowest number.
fn in_threads<T: Send>(
    count: usize,
    run: impl Fn(usize) -> Result<Option<T>, SimulationError> + Sync,
) -> Result<Option<T>, SimulationError> {
    let (lowest, mut found) = (AtomicUsize::new(usize::MAX), None);
    let numbers = (0..count).take_while(|number| *number < lowest.load(Ordering::Relaxed));
    parallel::each(
        numbers,
        parallel::available(),
        |number| run(*number).transpose(),
        |number, result| {
            if result.is_some() && number < lowest.load(Ordering::Relaxed) {
                lowest.store(number, Ordering::Relaxed);
                found = result;
            }
            ControlFlow::<()>::Continue(())
        },
    );
    found.transpose()
}
