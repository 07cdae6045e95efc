//! Text of diagnoses, in lines of at most 80 columns.

use std::fmt::Write as _;

use jiff::SignedDuration;
use kcm_clock::Timestamp;

use crate::{
    diagnosis::{Diagnosis, State},
    duration::short,
    finding::{Effect, Finding, append},
    known::Unreadable,
};

/// Width of the text in columns.
pub const WIDTH: usize = 80;
/// Number of pod names that are listed.
const PODS: usize = 3;

/// Style of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Without colours.
    Plain,
    /// With ANSI colours.
    Colour,
}

impl Style {
    /// Returns the text in the colour of `state`.
    fn paint(self, state: State, text: &str) -> String {
        if self == Self::Plain {
            return text.to_owned();
        }
        let code = match state {
            State::Complete => 32,
            State::Progressing => 36,
            State::Paused | State::Unknown => 33,
            State::Stuck | State::DeadlineExceeded => 31,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Writes the sentence, the causes, the next writes and the commands.
pub fn text(diagnosis: &Diagnosis, now: Timestamp, style: Style) -> String {
    let mut out = String::new();
    let title = format!("{} {}/{}", diagnosis.resource, diagnosis.namespace, diagnosis.name);
    wrap(&mut out, "", "", &title);
    let mut summary = String::new();
    wrap(&mut summary, "", "", &diagnosis.summary);
    // The first word of the sentence is the state.
    let word = summary.split([' ', ':']).next().unwrap_or_default().to_owned();
    out.push_str(&style.paint(diagnosis.state, &word));
    out.push_str(summary.get(word.len()..).unwrap_or_default());
    if let Some(changed) = &diagnosis.changed {
        let (age, manager) = (short(now.duration_since(changed.at)), &changed.manager);
        wrap(&mut out, "", "", &format!("The template was changed {age} ago ({}) by {manager}.", changed.at));
    }
    let held: Vec<&Finding> =
        diagnosis.findings.iter().filter(|finding| finding.effect != Effect::Note).collect();
    if !held.is_empty() || diagnosis.bounds.is_some() {
        out.push_str("\nWhy\n");
    }
    if let Some(bounds) = &diagnosis.bounds {
        wrap(&mut out, "  ", "  ", &bounds.message);
    }
    for held in held {
        finding(&mut out, held, now);
    }
    if diagnosis.state != State::Complete && !(diagnosis.next.is_empty() && diagnosis.controllers.is_empty())
    {
        out.push_str("\nNext, by the controllers\n");
        let queued = diagnosis.controllers.iter().map(|controller| controller.describe(now));
        for step in diagnosis.next.iter().cloned().chain(queued) {
            wrap(&mut out, "  - ", "    ", &step);
        }
    }
    if !diagnosis.commands.is_empty() {
        out.push_str("\nCommands\n");
        for command in &diagnosis.commands {
            let course = command.course.as_ref().map(|course| format!("; {course}")).unwrap_or_default();
            wrap(&mut out, "  # ", "  # ", &format!("{}{course}", command.purpose));
            // A command stays in one line, so that it can be copied.
            let _ = writeln!(out, "  {}", command.command);
        }
    }
    let notes: Vec<&Finding> =
        diagnosis.findings.iter().filter(|finding| finding.effect == Effect::Note).collect();
    if !notes.is_empty() {
        out.push_str("\nNotes\n");
        for note in notes {
            finding(&mut out, note, now);
        }
    }
    out.push_str(&not_read(&diagnosis.unreadable));
    out
}

/// Writes the resources that could not be read.
pub fn not_read(unreadable: &[Unreadable]) -> String {
    let mut out = String::new();
    if !unreadable.is_empty() {
        out.push_str("\nNot read\n");
    }
    for unreadable in unreadable {
        let reason = match &unreadable.permission {
            Some(permission) => format!("not permitted to {permission}"),
            None => format!("{}: {}", unreadable.resource, unreadable.reason),
        };
        wrap(&mut out, "  - ", "    ", &reason);
    }
    out
}

fn finding(out: &mut String, finding: &Finding, now: Timestamp) {
    let until =
        finding.until.map(|until| until.duration_since(now)).filter(|left| *left > SignedDuration::ZERO);
    let mut text = format!("{}: {}", finding.cause, finding.message);
    if let Some(left) = until {
        append(&mut text, &format!("Expected in {}.", short(left)));
    }
    wrap(out, "  - ", "    ", &text);
    if !finding.pods.is_empty() {
        let shown: Vec<&str> = finding.pods.iter().take(PODS).map(String::as_str).collect();
        let more = finding.pods.len() - shown.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let label = if finding.pods.len() == 1 { "pod" } else { "pods" };
        wrap(out, "    ", "    ", &format!("{label}: {}{more}", shown.join(", ")));
    }
}

/// Columns of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// Namespace, name, state, cause, available pods.
    Default,
    /// Also updated pods, all pods, time of the last progress, time until the deadline.
    Wide,
}

/// Writes a table of rollouts at `now`, the worst first. States and causes have their names in JSON. The columns have the
/// width of their contents.
pub fn table(diagnoses: &[Diagnosis], columns: Columns, now: Timestamp, style: Style) -> String {
    /// Index of the column that is painted.
    const STATE: usize = 2;
    let mut sorted: Vec<&Diagnosis> = diagnoses.iter().collect();
    sorted.sort_by_key(|row| (std::cmp::Reverse(row.state), row.namespace.clone(), row.name.clone()));
    let header: &[&str] = match columns {
        Columns::Default => &["NAMESPACE", "NAME", "STATE", "CAUSE", "READY"],
        Columns::Wide => {
            &["NAMESPACE", "NAME", "STATE", "CAUSE", "READY", "UPDATED", "PODS", "LAST PROGRESS", "DEADLINE"]
        }
    };
    let rows: Vec<Vec<String>> = sorted.iter().map(|row| fit(row, columns, now)).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut out = String::new();
    let mut write = |cells: &[&str], state: Option<State>| {
        let mut line = String::new();
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let is_last = column + 1 == cells.len();
            let padded = if is_last { (*cell).to_owned() } else { format!("{cell:<width$}") };
            let painted = state.filter(|_| column == STATE).map(|state| style.paint(state, &padded));
            line.push_str(&painted.unwrap_or(padded));
            line.push_str(if is_last { "\n" } else { "   " });
        }
        out.push_str(&line);
    };
    write(header, None);
    for (row, cells) in sorted.iter().zip(&rows) {
        write(&cells.iter().map(String::as_str).collect::<Vec<_>>(), Some(row.state));
    }
    out
}

/// Cells of a row.
fn fit(row: &Diagnosis, columns: Columns, now: Timestamp) -> Vec<String> {
    let replicas = &row.replicas;
    let of_desired = |number: i32| format!("{number}/{}", replicas.desired);
    // The name in JSON is that of serde.
    let state = serde_json::to_value(row.state).ok().and_then(|name| name.as_str().map(str::to_owned));
    let mut cells = vec![
        row.namespace.clone(),
        row.name.clone(),
        state.unwrap_or_default(),
        row.cause.map_or("-", |cause| cause.name()).to_owned(),
        of_desired(replicas.available),
    ];
    if columns == Columns::Wide {
        let none = || "-".to_owned();
        cells.extend([
            of_desired(replicas.updated),
            replicas.total.to_string(),
            row.last_progress.map_or_else(none, |at| format!("{} ago", short(now.duration_since(at)))),
            row.deadline
                .filter(|at| *at > now)
                .map_or_else(none, |at| format!("in {}", short(at.duration_since(now)))),
        ]);
    }
    cells
}

/// Writes `text` in lines of at most [`WIDTH`] columns, which begin with `first` or `rest`.
fn wrap(out: &mut String, first: &str, rest: &str, text: &str) {
    let mut line = first.to_owned();
    let mut is_empty = true;
    let mut column = first.chars().count();
    for word in text.split_whitespace() {
        let mut word = word;
        loop {
            let length = word.chars().count();
            let gap = usize::from(!is_empty);
            if column + gap + length <= WIDTH {
                if !is_empty {
                    line.push(' ');
                }
                line.push_str(word);
                column += gap + length;
                is_empty = false;
                break;
            }
            if is_empty {
                // A word longer than the line is split.
                let at = word.char_indices().nth(WIDTH - column).map_or(word.len(), |(at, _)| at);
                let (head, tail) = word.split_at(at);
                line.push_str(head);
                word = tail;
            }
            let _ = writeln!(out, "{line}");
            rest.clone_into(&mut line);
            column = rest.chars().count();
            is_empty = true;
            if word.is_empty() {
                break;
            }
        }
    }
    if !is_empty {
        let _ = writeln!(out, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::Cause;

    #[test]
    fn lines_fit() {
        let mut out = String::new();
        wrap(&mut out, "  - ", "    ", &format!("short words {} and the end", "x".repeat(200)));
        assert!(out.lines().all(|line| line.chars().count() <= WIDTH), "{out}");
        assert_eq!(out.matches('x').count(), 200);
        assert!(out.ends_with("and the end\n"), "{out}");
    }

    fn diagnosis(name: &str, state: State, cause: Option<Cause>) -> Diagnosis {
        let deployment = serde_json::json!({
            "metadata": { "name": name, "namespace": "shop", "uid": name },
            "spec": { "replicas": 3, "selector": { "matchLabels": { "app": name } } },
        });
        let now = Timestamp::UNIX_EPOCH;
        let diagnosis = crate::diagnose(&crate::Snapshot::default(), &deployment, now).unwrap();
        Diagnosis { state, cause, last_progress: Some(now), deadline: None, ..diagnosis }
    }

    #[test]
    fn names_in_a_table_are_whole_and_those_of_json() {
        let long = "a".repeat(60);
        let rows: Vec<Diagnosis> = Cause::ALL
            .iter()
            .map(|cause| diagnosis(&format!("{long}-{cause}"), State::DeadlineExceeded, Some(*cause)))
            .chain([diagnosis("web", State::Complete, None)])
            .collect();
        let now = "1970-01-01T00:01:30Z".parse().unwrap();
        let table = table(&rows, Columns::Default, now, Style::Plain);
        for line in table.lines().skip(1).take(Cause::ALL.len()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words[2], "deadline_exceeded", "{line}");
            assert_eq!(words[1], format!("{long}-{}", words[3]), "{line}");
        }
        assert_eq!(table.lines().count(), Cause::ALL.len() + 2);
        let last: Vec<&str> = table.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last, ["shop", "web", "complete", "-", "0/3"]);
    }

    #[test]
    fn wide_table() {
        let rows = [diagnosis("web", State::Stuck, Some(Cause::ImagePull))];
        let now = "1970-01-01T00:01:30Z".parse().unwrap();
        assert_eq!(
            table(&rows, Columns::Wide, now, Style::Plain),
            "NAMESPACE   NAME   STATE   CAUSE        READY   UPDATED   PODS   LAST PROGRESS   DEADLINE\n\
             shop        web    stuck   image_pull   0/3     0/3       0      1m30s ago       -\n"
        );
        let painted = table(&rows, Columns::Default, now, Style::Colour);
        assert!(painted.contains("\x1b[31mstuck\x1b[0m   image_pull"), "{painted:?}");
    }
}
