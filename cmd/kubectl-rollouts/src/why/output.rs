//! Output of diagnoses.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    io::{self, IsTerminal as _, Write as _},
};

use kcm_clock::Timestamp;
use kcm_rollouts::{
    Cause, Diagnosis, Effect, Replicas, State, Unreadable, grants, printable, printable_json,
    render::{self, Style},
};
use serde::Serialize;

use super::{
    WhyError,
    common::{self, CommonCause},
    flags::{Output, WhyFlags},
    reading::Reading,
};

/// List of diagnoses in JSON and YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DiagnosisList<'a> {
    api_version: &'static str,
    kind: &'static str,
    items: &'a [Diagnosis],
    common_causes: Vec<CommonCause>,
}

/// Writes diagnoses, and their changes.
#[derive(Debug)]
pub(super) struct Printer {
    output: Output,
    /// `true` for the diagnosis of one Deployment.
    is_single: bool,
    style: Style,
    /// `true` if a new text replaces the last one.
    redraws: bool,
    /// Last text.
    text: String,
    /// Last content by namespace and name. `None` before the first output.
    last: Option<BTreeMap<String, Content>>,
    /// `true` if lines were printed after the last text.
    has_lines: bool,
}

/// Content of a diagnosis without times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    state: State,
    cause: Option<Cause>,
    replicas: Replicas,
    findings: Vec<(Cause, Effect, Option<String>, Option<String>)>,
}

impl From<&Diagnosis> for Content {
    fn from(diagnosis: &Diagnosis) -> Self {
        let findings = diagnosis.findings.iter();
        Self {
            state: diagnosis.state,
            cause: diagnosis.cause,
            replicas: diagnosis.replicas,
            findings: findings
                .map(|one| (one.cause, one.effect, one.container.clone(), one.object.clone()))
                .collect(),
        }
    }
}

fn contents(found: &[Diagnosis]) -> BTreeMap<String, Content> {
    found.iter().map(|one| (format!("{}/{}", one.namespace, one.name), Content::from(one))).collect()
}

impl Printer {
    pub(super) fn new(flags: &WhyFlags) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            output: flags.output,
            is_single: flags.name.is_some(),
            style: if is_terminal && !no_color { Style::Colour } else { Style::Plain },
            redraws: is_terminal && matches!(flags.output, Output::Text(_)),
            text: String::new(),
            last: None,
            has_lines: false,
        }
    }

    /// `true` if the content differs from the last one, apart from times.
    pub(super) fn differs(&self, found: &[Diagnosis]) -> bool {
        self.last.as_ref() != Some(&contents(found))
    }

    /// Records the content as the last one, and returns the one before.
    pub(super) fn record(&mut self, found: &[Diagnosis]) -> Option<BTreeMap<String, Content>> {
        self.last.replace(contents(found))
    }

    /// `true` if the times in the text are visible while they pass.
    pub(super) fn redraws(&self) -> bool {
        self.redraws
    }

    /// Writes the diagnoses, or what has changed since the last call: a screen on a terminal, a line for each change of a
    /// text, and a document of the other formats.
    pub(super) fn print(
        &mut self,
        reading: &Reading,
        found: &[Diagnosis],
        now: Timestamp,
    ) -> Result<(), WhyError> {
        let last = self.record(found);
        if self.redraws {
            let text = self.show(reading, found, now)?;
            if text != self.text {
                // Clears the screen, so that one screen shows one state.
                let clear = if last.is_some() { "\x1b[H\x1b[2J" } else { "" };
                write(&format!("{clear}{text}"))?;
                self.text = text;
            }
            return Ok(());
        }
        match (last, self.output) {
            (Some(last), _) if Some(&last) == self.last.as_ref() => Ok(()),
            (Some(last), Output::Text(_)) => {
                self.has_lines = true;
                Ok(write(&printable(&changes(&last, found, now)))?)
            }
            _ => Ok(write(&self.show(reading, found, now)?)?),
        }
    }

    /// Writes the diagnoses again if only lines followed the first ones.
    pub(super) fn finish(
        &mut self,
        reading: &Reading,
        found: &[Diagnosis],
        now: Timestamp,
    ) -> Result<(), WhyError> {
        if self.has_lines {
            write(&format!("\n{}", self.show(reading, found, now)?))?;
        }
        Ok(())
    }

    fn show(&self, reading: &Reading, found: &[Diagnosis], now: Timestamp) -> Result<String, WhyError> {
        let common = || common::causes(found, &reading.deployments);
        match (self.output, found) {
            (Output::Text(_), [one]) if self.is_single => {
                Ok(terminal(self.style, |style| render::text(one, now, style)))
            }
            (Output::Text(_), []) => Ok("No Deployments found.\n".to_owned()),
            (Output::Text(columns), all) => {
                let notes = common_text(&common()) + &not_read(all);
                Ok(terminal(self.style, |style| render::table(all, columns, now, style) + &notes))
            }
            (output, [one]) if self.is_single => encode(one, output),
            (output, _) => {
                let list = DiagnosisList {
                    api_version: kcm_rollouts::API_VERSION,
                    kind: "RolloutDiagnosisList",
                    items: found,
                    common_causes: common(),
                };
                encode(&list, output)
            }
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Renders a text whose only control sequences are those of its colours. A text that contains others is without colours.
fn terminal(style: Style, render: impl Fn(Style) -> String) -> String {
    let plain = render(Style::Plain);
    match (printable(&plain), style) {
        (Cow::Borrowed(_), Style::Colour) => render(style),
        (text, _) => text.into_owned(),
    }
}

/// Lines for the rollouts that differ from the last output.
fn changes(last: &BTreeMap<String, Content>, found: &[Diagnosis], now: Timestamp) -> String {
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ");
    let present = contents(found);
    let mut lines = String::new();
    for diagnosis in found {
        let name = format!("{}/{}", diagnosis.namespace, diagnosis.name);
        if last.get(&name) != present.get(&name) {
            let cause = diagnosis.cause.map(|cause| format!("{cause}: ")).unwrap_or_default();
            lines.push_str(&format!("{time} {name} {cause}{}\n", diagnosis.summary.replace('\n', " ")));
        }
    }
    for name in last.keys().filter(|name| !present.contains_key(*name)) {
        lines.push_str(&format!("{time} {name} deleted\n"));
    }
    lines
}

fn common_text(common: &[CommonCause]) -> String {
    if common.is_empty() {
        return String::new();
    }
    let lines: String = common.iter().map(|cause| format!("  {}\n", cause.describe())).collect();
    format!("\nCommon causes\n{lines}")
}

/// Resources that could not be read for a row of a table, and the commands that permit it.
fn not_read(found: &[Diagnosis]) -> String {
    let mut unreadable: Vec<Unreadable> = Vec::new();
    let mut commands: Vec<String> = Vec::new();
    let mut namespaces = BTreeSet::new();
    // The rows of a namespace have the same objects.
    for diagnosis in found.iter().filter(|one| namespaces.insert(&one.namespace)) {
        for one in &diagnosis.unreadable {
            if !unreadable.contains(one) {
                unreadable.push(one.clone());
            }
        }
        for command in grants(&diagnosis.namespace, &diagnosis.unreadable) {
            if !commands.contains(&command.command) {
                commands.push(command.command);
            }
        }
    }
    let lines: String = commands.iter().map(|command| format!("  {command}\n")).collect();
    render::not_read(&unreadable) + &lines
}

fn encode(value: &impl Serialize, output: Output) -> Result<String, WhyError> {
    match output {
        Output::Yaml => serde_saphyr::to_string(value)
            .map(|text| printable(&text).into_owned())
            .map_err(|error| WhyError::Encode(error.to_string())),
        Output::Json | Output::Text(_) => serde_json::to_string_pretty(value)
            .map(|text| printable_json(&text).into_owned() + "\n")
            .map_err(|error| WhyError::Encode(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_sequences_remove_the_colours() {
        let text = |message: &'static str| {
            move |style: Style| match style {
                Style::Plain => format!("Stuck: {message}\n"),
                Style::Colour => format!("\x1b[31mStuck\x1b[0m: {message}\n"),
            }
        };
        assert_eq!(terminal(Style::Plain, text("ok")), "Stuck: ok\n");
        assert_eq!(terminal(Style::Colour, text("ok")), "\x1b[31mStuck\x1b[0m: ok\n");
        for style in [Style::Plain, Style::Colour] {
            assert_eq!(terminal(style, text("\x1b[2J")), "Stuck: \u{fffd}[2J\n");
        }
    }
}
