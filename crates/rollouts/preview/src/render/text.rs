//! Text for a terminal, in 80 columns.

use std::fmt::{Display, Write as _};

use kcm_rollouts::printable;

use super::{amount, picture::picture, seconds, short_name};
use crate::{
    report::{DurationRange, DurationReason, Effect, End, FieldChange, NeverReady, Preview, Step},
    timings::{ReadyAfterSource, StopAfterSource, TemplateAge, Timings},
};

/// Columns of the text.
const WIDTH: usize = 80;
/// Maximum number of rows of the table of steps.
const ROWS: usize = 20;
/// Maximum number of ReplicaSets in the table.
const COLUMNS: usize = 3;
/// Maximum width of a value of a changed field.
const VALUE: usize = 32;

/// Text of a preview: answer, changed fields, numbers, steps, picture, and warnings. It contains no control characters except
/// line breaks.
pub fn text(preview: &Preview) -> String {
    let mut text = String::new();
    head(&mut text, preview);
    if preview.steps.len() > 1 {
        numbers(&mut text, preview);
        text.push('\n');
        table(&mut text, preview);
        text.push('\n');
        text.push_str(&picture(preview));
    }
    notes(&mut text, preview);
    printable(&text).into_owned()
}

/// Writing to a string does not fail.
macro_rules! line {
    ($text:expr, $($arg:tt)*) => { let _ = writeln!($text, $($arg)*); };
}

/// Adds `line`, broken between words to fit [`WIDTH`]. Further lines are indented. Line breaks are those between words.
fn wrap(text: &mut String, line: &str) {
    let indent = if line.starts_with(' ') { "    " } else { "  " };
    let mut width = 0;
    for (at, word) in line.split([' ', '\n']).enumerate() {
        let length = word.chars().count();
        if at > 0 && width > indent.len() && width + 1 + length > WIDTH {
            text.push('\n');
            text.push_str(indent);
            width = indent.len();
        } else if at > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += length;
    }
    text.push('\n');
}

fn head(text: &mut String, preview: &Preview) {
    let Preview { namespace, name, replicas, .. } = preview;
    let answer = match preview.effect {
        Effect::Create => "is created".to_owned(),
        Effect::NewReplicaSet => "starts a rollout".to_owned(),
        Effect::ReusedReplicaSet => "starts a rollout of an old revision".to_owned(),
        Effect::Paused => "changes its template, and is paused: no rollout".to_owned(),
        Effect::Scale => {
            format!("only scales from {} to {}; no new rollout", replicas.before, replicas.after)
        }
        Effect::Pause => "is paused".to_owned(),
        Effect::Resume => "is resumed".to_owned(),
        Effect::Settings => "changes other fields; no new rollout".to_owned(),
        Effect::Nothing => "does not change".to_owned(),
    };
    wrap(text, &format!("Deployment {namespace}/{name} {answer}"));
    if let Some(set) = &preview.replica_set {
        let revision = set.revision.map_or_else(String::new, |revision| format!(", revision {revision}"));
        match preview.effect {
            Effect::NewReplicaSet | Effect::Create => {
                line!(text, "  creates ReplicaSet {} (hash {}{revision})", set.name, set.hash);
            }
            Effect::ReusedReplicaSet => {
                let old = set.previous_revision.unwrap_or_default();
                line!(
                    text,
                    "  reuses ReplicaSet {} of revision {old} (hash {}{revision})",
                    set.name,
                    set.hash
                );
            }
            _ => {}
        }
    }
    if replicas.before != replicas.after && !matches!(preview.effect, Effect::Create | Effect::Scale) {
        line!(text, "  spec.replicas: {} -> {}", replicas.before, replicas.after);
    }
    for FieldChange { path, before, after } in &preview.template_changes {
        wrap(text, &format!("  {path}: {} -> {}", value(before.as_ref()), value(after.as_ref())));
    }
}

/// Value of a field, shortened.
fn value(value: Option<&serde_json::Value>) -> String {
    let text = value.map_or_else(|| "(none)".to_owned(), ToString::to_string);
    if text.chars().count() <= VALUE {
        return text;
    }
    let kept: String = text.chars().take(VALUE - 1).collect();
    format!("{kept}…")
}

fn numbers(text: &mut String, preview: &Preview) {
    let Preview { outcome, bounds, timings, .. } = preview;
    let end = match (outcome.end, outcome.duration_seconds, &outcome.duration_range) {
        (End::Complete, _, Some(range)) => {
            format!("complete after {} to {}", seconds(range.min_seconds), seconds(range.max_seconds))
        }
        (End::Complete, Some(duration), None) => format!("complete after {}", seconds(duration)),
        (End::Stuck, ..) => "does not complete".to_owned(),
        (End::Paused, ..) => "paused".to_owned(),
        (End::Complete | End::Unfinished, ..) => "does not complete in a day".to_owned(),
    };
    let created = count(outcome.pods_created, "pod");
    line!(text, "\n{end}: {created} created, {} deleted", outcome.pods_deleted);
    for reason in outcome.duration_range.iter().flat_map(|range: &DurationRange| &range.reasons) {
        wrap(
            text,
            match reason {
                DurationReason::Quota => {
                    "  a quota refuses pods meanwhile; each refusal doubles the wait for the next attempt"
                }
                DurationReason::BackOff => "  pods were refused before; the next attempt may be late",
            },
        );
    }
    if let Some(message) = &outcome.message {
        wrap(text, &format!("  {message}"));
    }
    let (most, all) = (outcome.most_pods, outcome.most_pods_with_terminating);
    let (fewest, is_rolling) = (outcome.fewest_available, bounds.strategy == "RollingUpdate");
    let because = |reason: Option<&str>| reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    let limit = if is_rolling { format!(", at most {}", bounds.max_pods) } else { String::new() };
    let reason = because(outcome.most_pods_reason.filter(|_| is_rolling));
    wrap(text, &format!("  most pods         {:>5} at {}{limit}{reason}", most.pods, seconds(most.seconds)));
    let exceeds = is_rolling && all.pods > bounds.max_pods;
    let reason = because(exceeds.then_some("the bound does not count terminating pods"));
    line!(text, "  with terminating  {:>5} at {}{reason}", all.pods, seconds(all.seconds));
    let limit = if is_rolling { format!(", at least {}", bounds.min_available) } else { String::new() };
    let reason = because(outcome.fewest_available_reason.filter(|_| is_rolling));
    let at = seconds(fewest.seconds);
    wrap(text, &format!("  fewest available  {:>5} at {at}{limit}{reason}", fewest.pods));
    let stop_source = match timings.stop_after_source {
        StopAfterSource::Given => "given",
        StopAfterSource::GracePeriod => "grace period",
    };
    let ready_after = seconds(timings.ready_after_seconds);
    wrap(text, &format!("  ready after       {ready_after:>5} ({})", ready_source(timings)));
    line!(text, "  removed after     {:>5} ({stop_source})", seconds(timings.stop_after_seconds));
    if timings.unready > 0 {
        let pods = if timings.unready == 1 { "pod" } else { "pods" };
        line!(text, "  never ready       {:>5} new {pods} (given)", timings.unready);
    }
}

/// Evidence for the time to readiness.
fn ready_source(timings: &Timings) -> String {
    let ignored = match timings.ready_after_ignored {
        0 => String::new(),
        ignored => format!("; {ignored} not used: restarted or unready before"),
    };
    match timings.ready_after_source {
        ReadyAfterSource::Given => "given".to_owned(),
        ReadyAfterSource::ExistingPods => {
            let age = match timings.ready_after_template {
                Some(TemplateAge::Same) => " of the same template",
                Some(TemplateAge::Older) => " of older templates",
                Some(TemplateAge::Current) | None => "",
            };
            format!("median of {}{age}{ignored}", count(timings.ready_after_pods as u64, "pod"))
        }
        ReadyAfterSource::LastRollout => format!("at most: the end of the last rollout{ignored}"),
        ReadyAfterSource::Assumed => format!("assumed: no pod shows it{ignored}"),
    }
}

fn table(text: &mut String, preview: &Preview) {
    let names = columns(preview);
    let _ = write!(text, "{:>8} {:>6} {:>9} {:>11}", "TIME", "PODS", "AVAILABLE", "TERMINATING");
    for name in &names {
        let _ = write!(text, " {:>11}", short_name(&preview.name, name));
    }
    text.push('\n');
    for step in rows(&preview.steps) {
        let _ = write!(
            text,
            "{:>8} {:>6} {:>9} {:>11}",
            seconds(step.seconds),
            step.pods,
            step.available,
            step.terminating
        );
        for name in &names {
            let set = step.replica_sets.iter().find(|set| set.name == *name);
            let cell = set.map_or_else(|| "-".to_owned(), |set| format!("{}/{}", set.available, set.desired));
            let _ = write!(text, " {cell:>11}");
        }
        text.push('\n');
    }
    if !names.is_empty() {
        line!(text, "{:>36}  ReplicaSets: available/desired", "");
    }
}

/// Names of the ReplicaSets in the table, oldest first. The new one is always among them.
fn columns(preview: &Preview) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for set in preview.steps.iter().flat_map(|step| &step.replica_sets) {
        if !names.contains(&set.name) {
            names.push(set.name.clone());
        }
    }
    let surplus = names.len().saturating_sub(COLUMNS);
    names.drain(..surplus);
    names
}

/// Steps of the table: all, or evenly distributed ones with the first and the last.
fn rows(steps: &[Step]) -> Vec<&Step> {
    if steps.len() <= ROWS {
        return steps.iter().collect();
    }
    let last = steps.len() - 1;
    (0..ROWS).filter_map(|row| steps.get(row * last / (ROWS - 1))).collect()
}

fn notes(text: &mut String, preview: &Preview) {
    if let Some(never) = &preview.never_ready {
        never_ready(text, never, preview.deadline.seconds.is_some());
    }
    for check in &preview.quotas {
        let [used, peak, hard] =
            [check.used, check.peak, check.hard].map(|number| amount(&check.resource, number));
        let verdict = if check.fits { "fits" } else { "DOES NOT FIT" };
        let (quota, resource) = (&check.quota, &check.resource);
        wrap(
            text,
            &format!("Quota {quota} {resource}: {used} used, {peak} at the peak of {hard}: {verdict}"),
        );
    }
    if let (Some(fits), true) = (preview.nodes.fits, preview.nodes.needed > 0) {
        let (needed, free, nodes) = (preview.nodes.needed, preview.nodes.free, preview.nodes.nodes);
        let verdict = if fits { "fits" } else { "DOES NOT FIT" };
        let (pods, nodes) = (count(needed, "more pod"), count(nodes, "node"));
        line!(text, "Nodes: {pods} at the peak, room for {free} on {nodes}: {verdict}");
    }
    if let Some(reason) = &preview.dry_run.reason {
        wrap(text, &format!("Checked by an embedded API server ({reason})"));
    }
    for warning in &preview.dry_run.warnings {
        wrap(text, &format!("Warning of the API server: {warning}"));
    }
    for warning in &preview.warnings {
        wrap(text, &format!("Warning: {}", warning.message));
    }
    for unreadable in &preview.unreadable {
        wrap(text, &format!("Not read: {} ({})", unreadable.resource, unreadable.reason));
    }
}

fn never_ready(text: &mut String, never: &NeverReady, has_deadline: bool) {
    let NeverReady { new_pods, available, stuck_seconds, .. } = never;
    line!(
        text,
        "\nIf no new pod becomes ready: stuck after {} with {} waiting,",
        seconds(*stuck_seconds),
        count(*new_pods, "new pod")
    );
    let deadline = match never.deadline_exceeded_seconds {
        Some(at) => format!("the progress deadline fails after {}", seconds(at)),
        // It applies to rollouts, and not to scaling.
        None if has_deadline => "the progress deadline does not apply".to_owned(),
        None => "there is no progress deadline".to_owned(),
    };
    line!(text, "  {} available; {deadline}", count(*available, "pod"));
}

/// Number with its noun in singular or plural.
fn count<N: Display + Copy + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        let mut text = String::new();
        wrap(&mut text, &format!("Warning: {} end", "word ".repeat(20).trim_end()));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(lines[1].starts_with("  word ") && lines[1].ends_with(" end"), "{text}");
    }
}
