//! Picture of a rollout in characters: pods of each ReplicaSet, stacked, over time.

use std::fmt::Write as _;

use super::seconds;
use crate::report::{Preview, Step, StepReplicaSet};

/// Columns of the picture.
const WIDTH: usize = 60;
/// Maximum number of rows.
const HEIGHT: usize = 16;

/// Characters of the new ReplicaSet, the one before it, older ones, pods that are not available, terminating pods, and the
/// maximum.
const NEW: char = '█';
const OLD: char = '▒';
const OLDER: char = '░';
const UNAVAILABLE: char = '▓';
const TERMINATING: char = '·';
const MAX_PODS: char = '╌';

/// Draws the steps until the end of the rollout.
///
/// From the bottom, each column has the available pods of the ReplicaSets, oldest first, then unavailable and terminating
/// pods.
pub(super) fn picture(preview: &Preview) -> String {
    let previous = previous_replica_set(preview);
    let has_older =
        preview.steps.iter().any(|step| available(step, |set| !set.is_new && !is(set, previous)) > 0);
    let has_bounds = preview.bounds.strategy == "RollingUpdate";
    let end = preview.steps.last().map_or(0.0, |step| step.seconds).max(1.0);
    let most = preview.steps.iter().map(|step| step.pods + step.terminating).max().unwrap_or(0);
    let bounds = &preview.bounds;
    let top = most.max(bounds.max_pods).max(1);
    let rows = usize::try_from(top).unwrap_or(HEIGHT).min(HEIGHT);
    let per_row = f64::from(top) / rows as f64;
    let row_of = |pods: i32| (f64::from(pods) / per_row).round();
    let mut text = String::new();
    for row in (1..=rows).rev() {
        let level = row as f64;
        let is_max = has_bounds && is_row(row_of(bounds.max_pods), level);
        let is_min = has_bounds && bounds.min_available > 0 && is_row(row_of(bounds.min_available), level);
        let line: String = (0..WIDTH)
            .map(|column| {
                let time = end * (column as f64 + 0.5) / WIDTH as f64;
                let cell =
                    step_at(&preview.steps, time).map_or(' ', |step| cell(step, previous, level, &row_of));
                if cell == ' ' && is_max { MAX_PODS } else { cell }
            })
            .collect();
        let (label, bound) = match (is_max, is_min) {
            (true, _) => (f64::from(bounds.max_pods), " max pods"),
            (_, true) => (f64::from(bounds.min_available), " min avail."),
            _ => ((level * per_row).round(), ""),
        };
        let _ =
            writeln!(text, "{label:>5} ┤{}{bound}", if bound.is_empty() { line.trim_end() } else { &line });
    }
    let (middle, last) = (seconds(end / 2.0), seconds(end));
    let half = WIDTH / 2;
    let _ = writeln!(text, "    0 └{}", "─".repeat(WIDTH));
    let _ = writeln!(text, "       0s{middle:>width$}{last:>half$}", width = half - 2);
    let older = if has_older { format!("{OLDER} older   ") } else { String::new() };
    let _ = writeln!(
        text,
        "       {older}{OLD} old   {NEW} new   {UNAVAILABLE} not available   {TERMINATING} terminating"
    );
    text
}

fn is_row(row: f64, level: f64) -> bool {
    (row - level).abs() < 0.5
}

/// Last step at `time`.
fn step_at(steps: &[Step], time: f64) -> Option<&Step> {
    steps.iter().rev().find(|step| step.seconds <= time)
}

fn cell(step: &Step, previous: Option<&str>, level: f64, row_of: &impl Fn(i32) -> f64) -> char {
    let (new, old) = (available(step, |set| set.is_new), available(step, |set| is(set, previous)));
    let all = available(step, |_| true);
    let layers = [
        (all - new - old, OLDER),
        (all - new, OLD),
        (all, NEW),
        (step.pods, UNAVAILABLE),
        (step.pods + step.terminating, TERMINATING),
    ];
    layers.iter().find(|(pods, _)| level <= row_of(*pods)).map_or(' ', |(_, character)| *character)
}

/// Name of the newest ReplicaSet of those with an old template. ReplicaSets are listed oldest first.
fn previous_replica_set(preview: &Preview) -> Option<&str> {
    let mut newest =
        preview.steps.iter().filter_map(|step| step.replica_sets.iter().rev().find(|set| !set.is_new));
    newest.next().map(|set| &*set.name)
}

fn is(set: &StepReplicaSet, name: Option<&str>) -> bool {
    Some(&*set.name) == name
}

/// Number of available pods of the ReplicaSets.
fn available(step: &Step, selects: impl Fn(&StepReplicaSet) -> bool) -> i32 {
    step.replica_sets.iter().filter(|set| selects(set)).map(|set| set.available).sum()
}
