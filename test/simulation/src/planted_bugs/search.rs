//! Search for the bug that is active in this process: by seeds, and by the fewest surprises.

use std::{collections::BTreeMap, ops::ControlFlow};

use kcm_rollout_simulation::{Explorer, Finding, SimulationError, parallel};

use super::{TaskError, tree};
use crate::{explore, simulate};

/// Surprises up to which a bug is searched.
const SURPRISES: usize = 2;

/// One in this number of the schedules with two surprises is run.
const SHARE: usize = 250;

/// Schedules that are run before the first of those that violate a rule is taken, so that the result does not depend on the
/// speed of the threads.
const BATCH: usize = 32;

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
    let scenarios = explore::scenarios(&tree())?;
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
        if let Some(found) = explore_all(&explorers, jobs)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Runs parts of all explorations until a rule is violated. Consecutive parts of an exploration are run far from each other,
/// because most bugs need a surprise in a certain phase.
fn explore_all(explorers: &[(&str, Explorer)], jobs: usize) -> Result<Option<String>, SimulationError> {
    let mut parts: Vec<(u64, &str, &Explorer, usize)> = Vec::new();
    for (name, explorer) in explorers {
        let order = |part: usize| (part as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        parts.extend((0..explorer.parts()).map(|part| (order(part), *name, explorer, part)));
    }
    parts.sort_by_key(|(order, name, ..)| (*order, *name));
    for batch in parts.chunks(BATCH) {
        let mut violations = BTreeMap::new();
        let failed = parallel::each(
            batch.iter().enumerate(),
            jobs,
            |(_, (.., explorer, part))| explorer.run_part(*part),
            |(at, (_, name, ..)), report| match report {
                Ok(report) => {
                    violations.extend(report.violations.into_iter().next().map(|first| (at, (*name, first))));
                    ControlFlow::Continue(())
                }
                Err(error) => ControlFlow::Break(error),
            },
        );
        if let Some(error) = failed {
            return Err(error);
        }
        if let Some((_, (name, first))) = violations.into_iter().next() {
            return Ok(found(name, first.surprises.len(), &first.findings));
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
