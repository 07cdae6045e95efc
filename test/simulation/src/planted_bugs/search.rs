//! Search for the bug that is active in this process: by seeds, by the fewest surprises, and by the scenarios of defects.

use std::{collections::BTreeMap, ops::ControlFlow};

use kcm_rollout_simulation::{Explorer, Finding, SimulationError, Survey, Workers, parallel};

use super::TaskError;
use crate::{explore, simulate, tree};

/// Folder of the scenarios in which a defect was found, from the root of the tree.
const DEFECTS: &str = "test/stories/found/simulation";

/// Surprises up to which a bug is searched.
const SURPRISES: usize = 2;

/// One in this number of the schedules with two surprises is run.
const SHARE: usize = 250;

/// Number of parts in the first batch. All parts of a batch are run before the first of those that violate a rule is taken, so
/// that the result does not depend on the speed of the threads. Each batch is twice as large as the one before, because the
/// workers run their scenarios from the start in each.
const FIRST_BATCH: usize = 1024;

/// Runs seeds until a rule is violated.
pub(super) fn by_seed(jobs: usize, seeds: u64) -> Result<Option<String>, SimulationError> {
    let found = parallel::each(
        0..seeds,
        jobs,
        |seed| simulate::run(*seed),
        |seed, outcome| match outcome {
            Err(error) => ControlFlow::Break(Err(error)),
            Ok(outcome) if outcome.has_no_findings() => ControlFlow::Continue(()),
            Ok(outcome) => ControlFlow::Break(Ok(format!("{seed} | {}", outcome.rules().join(", ")))),
        },
    );
    found.transpose()
}

/// Runs the scenarios of the exploration with no surprise, then with one, then a share of those with two, until a rule is
/// violated.
pub(super) fn by_surprises(jobs: usize) -> Result<Option<String>, TaskError> {
    let scenarios = explore::scenarios(&tree().join(explore::FOLDER))?;
    let mut surveys = BTreeMap::new();
    for surprises in 0..=SURPRISES {
        let share = if surprises < SURPRISES { 1 } else { SHARE };
        let mut explorers = Vec::new();
        for (name, scenario) in &scenarios {
            let explorer = Explorer::new(scenario.clone(), surprises)?.with_share(share);
            if let Some(found) = found(name, 0, &explorer.outcome().findings) {
                return Ok(Some(found));
            }
            explorers.push((&**name, explorer));
        }
        if let Some(found) = explore_all(&explorers, &mut surveys, jobs)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Runs the scenarios in which a defect was found, by name, until a rule is violated. With a bug, a scenario may not reach its
/// surprises.
pub(super) fn by_scenarios_of_defects() -> Result<Option<String>, TaskError> {
    for (name, scenario) in explore::scenarios(&tree().join(DEFECTS))? {
        if scenario.run()?.rules().iter().any(|rule| *rule != "surprise") {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// A part of the exploration of a scenario.
struct Part<'a, 'b> {
    scenario: &'a str,
    workers: &'b Workers,
    number: usize,
}

/// Runs parts of all explorations until a rule is violated. Consecutive parts of an exploration are in different batches,
/// because most bugs need a surprise in a certain phase. Schedules end at the states of `surveys`, to which those of the
/// schedules are added.
fn explore_all<'a>(
    explorers: &[(&'a str, Explorer)],
    surveys: &mut BTreeMap<&'a str, Survey>,
    jobs: usize,
) -> Result<Option<String>, SimulationError> {
    let explorers: Vec<_> = explorers
        .iter()
        .map(|(scenario, explorer)| {
            let survey = surveys.remove(scenario).unwrap_or_default();
            let workers = explore::workers(scenario, explorer.bounds()).with_survey(survey);
            (*scenario, workers, explorer.parts())
        })
        .collect();
    let mut parts = Vec::new();
    for (scenario, workers, count) in &explorers {
        let order = |part: usize| (part as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        parts.extend((0..*count).map(|number| (order(number), Part { scenario, workers, number })));
    }
    parts.sort_by_key(|(order, part)| (*order, part.scenario));
    let (mut left, mut size) = (&mut *parts, FIRST_BATCH);
    while !left.is_empty() {
        let (batch, rest) = left.split_at_mut(size.min(left.len()));
        (left, size) = (rest, size * 2);
        // A worker runs parts in ascending order.
        batch.sort_by_key(|(_, part)| (part.scenario, part.number));
        let mut violations = BTreeMap::new();
        let failed = parallel::each(
            batch.iter().enumerate(),
            jobs,
            |(_, (_, part))| {
                part.workers.run_parts(part.number..part.number + 1).map_err(SimulationError::Children)
            },
            |(at, (_, part)), reports| match reports {
                Ok(reports) => {
                    for report in reports {
                        surveys.entry(part.scenario).or_default().add(part.number, report.states);
                        let first = report.violations.into_iter().next();
                        violations.extend(first.map(|first| (at, (part.scenario, first))));
                    }
                    ControlFlow::Continue(())
                }
                Err(error) => ControlFlow::Break(error),
            },
        );
        if let Some(error) = failed {
            return Err(error);
        }
        if let Some((_, (scenario, first))) = violations.into_iter().next() {
            return Ok(found(scenario, first.surprises.len(), &first.findings));
        }
    }
    Ok(None)
}

fn found(scenario: &str, surprises: usize, findings: &[Finding]) -> Option<String> {
    let mut rules: Vec<&str> = findings.iter().map(|finding| &*finding.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    (!rules.is_empty()).then(|| format!("{surprises} | {scenario} | {}", rules.join(", ")))
}
