//! Results of the checks, as a table.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use super::{checks, failure::Failure, kubectl::Version};

/// Status of a check.
#[derive(Debug, Clone)]
pub enum CheckStatus {
    /// The check succeeded.
    Passed,
    /// The check failed.
    Failed(Failure),
    /// The check does not apply to this cluster. Contains the reason.
    Skipped(String),
}

/// Result of one check with one `kubectl` version.
#[derive(Debug, Clone)]
pub struct CheckReport {
    /// Number of the check.
    pub number: u8,
    /// Status.
    pub status: CheckStatus,
    /// Duration.
    pub duration: Duration,
}

/// Results with one version of `kubectl`.
#[derive(Debug, Clone)]
pub struct Run {
    /// Version of `kubectl`.
    pub version: Version,
    /// Results, sorted by number.
    pub reports: Vec<CheckReport>,
}

impl Run {
    /// Returns the result of a check.
    pub fn report(&self, number: u8) -> Option<&CheckReport> {
        self.reports.iter().find(|report| report.number == number)
    }
}

/// Results of all checks with all versions.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Results by version, oldest first.
    pub runs: Vec<Run>,
}

impl Report {
    /// Numbers of the checks that failed with at least one version.
    pub fn failed(&self) -> BTreeSet<u8> {
        self.reports()
            .filter(|report| matches!(report.status, CheckStatus::Failed(_)))
            .map(|v| v.number)
            .collect()
    }

    /// Number of checks that passed with all versions.
    pub fn passed(&self) -> usize {
        let not: BTreeSet<u8> =
            self.reports().filter(|v| !matches!(v.status, CheckStatus::Passed)).map(|v| v.number).collect();
        checks::all().iter().filter(|check| !not.contains(&check.number)).count()
    }

    fn reports(&self) -> impl Iterator<Item = &CheckReport> {
        self.runs.iter().flat_map(|run| &run.reports)
    }

    /// Returns a Markdown table with a column per version.
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
                let word = match run.report(check.number).map(|report| &report.status) {
                    Some(CheckStatus::Passed) => "pass",
                    Some(CheckStatus::Failed(_)) => "**fail**",
                    Some(CheckStatus::Skipped(_)) | None => "skipped",
                };
                let _ = write!(table, " {word} |");
            }
        }
        table.push('\n');
        table
    }

    /// Returns the distinct reasons of failed and skipped checks.
    pub fn reasons(&self) -> String {
        let mut reasons = String::new();
        for check in checks::all() {
            let mut seen = BTreeSet::new();
            for run in &self.runs {
                let reason = match run.report(check.number).map(|report| &report.status) {
                    Some(CheckStatus::Failed(failure)) => failure.summary(),
                    Some(CheckStatus::Skipped(why)) => format!("skipped: {why}"),
                    Some(CheckStatus::Passed) | None => continue,
                };
                if seen.insert(reason.clone()) {
                    let _ = writeln!(reasons, "* {}: {reason}", check.number);
                }
            }
        }
        reasons
    }

    /// Returns the full messages of failed checks.
    pub fn details(&self) -> String {
        let mut details = String::new();
        for run in &self.runs {
            for report in &run.reports {
                if let CheckStatus::Failed(failure) = &report.status {
                    let _ = writeln!(
                        details,
                        "\ncheck {} with kubectl {}: {failure}",
                        report.number, run.version
                    );
                }
            }
        }
        details
    }
}
