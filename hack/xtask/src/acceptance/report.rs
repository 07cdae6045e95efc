//! What came of the checks, as a table.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use super::{checks, failure::Failure, runner::Run};

/// How a check ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// As expected.
    Passed,
    /// Not as expected, or it cannot be done yet.
    Failed(Failure),
    /// It cannot be asked of this cluster.
    Skipped(String),
}

/// One check with one `kubectl`.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Its number in the list.
    pub number: u8,
    /// What came of it.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// All checks with all versions.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// One for each version, oldest first.
    pub runs: Vec<Run>,
}

impl Report {
    /// The numbers of the checks that failed with any version.
    pub fn failed(&self) -> BTreeSet<u8> {
        self.verdicts()
            .filter(|verdict| matches!(verdict.outcome, Outcome::Failed(_)))
            .map(|v| v.number)
            .collect()
    }

    /// How many of the checks failed or were left out with no version.
    pub fn passed(&self) -> usize {
        let not: BTreeSet<u8> =
            self.verdicts().filter(|v| !matches!(v.outcome, Outcome::Passed)).map(|v| v.number).collect();
        checks::all().iter().filter(|check| !not.contains(&check.number)).count()
    }

    fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.runs.iter().flat_map(|run| &run.verdicts)
    }

    /// A Markdown table of the checks with a column for each version.
    pub fn table(&self) -> String {
        let mut table = String::from("| # | check |");
        for run in &self.runs {
            let _ = write!(table, " {} |", run.version);
        }
        table.push_str("\n|---|---|");
        table.push_str(&"---|".repeat(self.runs.len()));
        for check in checks::all() {
            let _ = write!(table, "\n| {} | {} |", check.number, check.title);
            for run in &self.runs {
                let word = match run.verdict(check.number).map(|verdict| &verdict.outcome) {
                    Some(Outcome::Passed) => "pass",
                    Some(Outcome::Failed(_)) => "**fail**",
                    Some(Outcome::Skipped(_)) | None => "skipped",
                };
                let _ = write!(table, " {word} |");
            }
        }
        table.push('\n');
        table
    }

    /// Why checks failed or were left out, each reason once.
    pub fn reasons(&self) -> String {
        let mut reasons = String::new();
        for check in checks::all() {
            let mut told = BTreeSet::new();
            for run in &self.runs {
                let reason = match run.verdict(check.number).map(|verdict| &verdict.outcome) {
                    Some(Outcome::Failed(failure)) => failure.summary(),
                    Some(Outcome::Skipped(why)) => format!("skipped: {why}"),
                    Some(Outcome::Passed) | None => continue,
                };
                if told.insert(reason.clone()) {
                    let _ = writeln!(reasons, "* {}: {reason}", check.number);
                }
            }
        }
        reasons
    }

    /// All that is known of the failures, for a terminal.
    pub fn details(&self) -> String {
        let mut details = String::new();
        for run in &self.runs {
            for verdict in &run.verdicts {
                if let Outcome::Failed(failure) = &verdict.outcome {
                    let _ = writeln!(
                        details,
                        "\ncheck {} with kubectl {}: {failure}",
                        verdict.number, run.version
                    );
                }
            }
        }
        details
    }
}
