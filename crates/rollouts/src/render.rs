//! Text of diagnoses, in lines of at most 80 columns.

use std::fmt::Write as _;

use jiff::SignedDuration;
use kcm_clock::Timestamp;

use crate::{
    diagnosis::{Diagnosis, State},
    duration::short,
    finding::{Effect, Finding},
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
            State::Paused => 33,
            State::Stuck | State::DeadlineExceeded => 31,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Writes the sentence, the causes, the next writes and the commands.
pub fn text(diagnosis: &Diagnosis, now: Timestamp, style: Style) -> String {
    let mut out = String::new();
    let title = format!("deployment {}/{}", diagnosis.namespace, diagnosis.name);
    wrap(&mut out, "", "", &title);
    let mut summary = String::new();
    wrap(&mut summary, "", "", &diagnosis.summary);
    // The first word of the sentence is the state.
    let word = summary.split([' ', ':']).next().unwrap_or_default().to_owned();
    out.push_str(&style.paint(diagnosis.state, &word));
    out.push_str(summary.get(word.len()..).unwrap_or_default());
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
            wrap(&mut out, "  # ", "  # ", &command.purpose);
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
    if !diagnosis.unreadable.is_empty() {
        out.push_str("\nNot read\n");
        for unreadable in &diagnosis.unreadable {
            wrap(&mut out, "  - ", "    ", &format!("{}: {}", unreadable.resource, unreadable.reason));
        }
    }
    out
}

fn finding(out: &mut String, finding: &Finding, now: Timestamp) {
    let until =
        finding.until.map(|until| until.duration_since(now)).filter(|left| *left > SignedDuration::ZERO);
    let until = until.map(|left| format!(" Expected in {}.", short(left))).unwrap_or_default();
    wrap(out, "  - ", "    ", &format!("{}: {}{until}", finding.cause, finding.message));
    if !finding.pods.is_empty() {
        let shown: Vec<&str> = finding.pods.iter().take(PODS).map(String::as_str).collect();
        let more = finding.pods.len() - shown.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let label = if finding.pods.len() == 1 { "pod" } else { "pods" };
        wrap(out, "    ", "    ", &format!("{label}: {}{more}", shown.join(", ")));
    }
}

/// Writes a table of rollouts, the worst first.
pub fn table(diagnoses: &[Diagnosis], style: Style) -> String {
    let mut rows: Vec<&Diagnosis> = diagnoses.iter().collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.state), row.namespace.clone(), row.name.clone()));
    let mut out =
        format!("{:<15} {:<20} {:<13} {:<21} {:>7}\n", "NAMESPACE", "NAME", "STATE", "CAUSE", "READY");
    for row in rows {
        let state = match row.state {
            State::DeadlineExceeded => "deadline",
            state => state.name(),
        };
        let cause = row.cause.map_or("-", |cause| cause.name());
        let ready = format!("{}/{}", row.replicas.available, row.replicas.desired);
        let _ = writeln!(
            out,
            "{:<15} {:<20} {} {:<21} {ready:>7}",
            fit(&row.namespace, 15),
            fit(&row.name, 20),
            style.paint(row.state, &format!("{state:<13}")),
            fit(cause, 21),
        );
    }
    out
}

/// Shortens a text to `width` columns.
fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
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

    #[test]
    fn lines_fit() {
        let mut out = String::new();
        wrap(&mut out, "  - ", "    ", &format!("short words {} and the end", "x".repeat(200)));
        assert!(out.lines().all(|line| line.chars().count() <= WIDTH), "{out}");
        assert_eq!(out.matches('x').count(), 200);
        assert!(out.ends_with("and the end\n"), "{out}");
    }

    #[test]
    fn long_names_are_shortened() {
        assert_eq!((fit("abc", 3), fit("abcd", 3)), ("abc".to_owned(), "ab…".to_owned()));
    }
}
