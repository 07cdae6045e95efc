//! Results of runs.

use std::{collections::BTreeMap, fmt};

use kcm_apiserver::ApiStatus;
use serde_json::Value;
use thiserror::Error;

use super::observer::Finding;

/// Effect that depends on the order of events. It is not compared with that of another run.
pub const NOT_COMPARED: &str = "not compared";

/// Result of a scenario.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "the findings are the result"]
pub struct Outcome {
    /// Violations of rules.
    pub findings: Vec<Finding>,
    /// Writes of managers and incidents, in order.
    pub log: Vec<String>,
    /// Number of writes of managers, without those of Leases and Events.
    pub writes: u64,
    /// Effect, by object.
    pub effect: BTreeMap<String, Value>,
    /// Requests of the operator, if they were recorded.
    pub requests: Vec<String>,
    /// Number of creations and deletions by the operator, by object.
    pub counts: BTreeMap<String, u64>,
}

/// A simulation that could not be run.
#[derive(Debug, Error)]
pub enum SimulationError {
    /// The runtime cannot be built.
    #[error("failed to build a runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// The children of a schedule cannot be run.
    #[error("failed to run the children of a schedule: {0}")]
    Children(std::io::Error),
    /// The API server has refused an object that exists from the start.
    #[error("failed to set up the cluster: {0}")]
    Cluster(#[from] ApiStatus),
    /// A rule was removed that does not exist.
    #[error("invalid rule {0:?}: no rule has this name")]
    UnknownRule(String),
    /// The kind of a rule or of [`ignore_field`](crate::Simulation::ignore_field) does not exist in the run without faults.
    #[error("invalid kind {0:?}: no resource has this kind")]
    UnknownKind(String),
    /// The controllers cannot be built.
    #[error("failed to build the controllers: {0}")]
    Controllers(String),
}

impl Outcome {
    /// `true` if no rule was violated.
    pub fn has_no_findings(&self) -> bool {
        self.findings.is_empty()
    }

    /// Adds a finding for each object whose effect differs from that without faults.
    pub fn compare_effect(&mut self, calm: &BTreeMap<String, Value>) {
        for (object, effect) in calm {
            let own = self.effect.get(object).cloned().unwrap_or_default();
            if own != *effect && own != NOT_COMPARED && *effect != NOT_COMPARED {
                let what = format!("{object} is {own}, and without faults {effect}");
                self.findings.push(Finding { rule: "equal-effect".to_owned(), what });
            }
        }
    }

    /// Adds the findings of the run without faults.
    pub fn add_without_faults(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings.into_iter().map(|finding| {
            let rule = format!("without-faults-{}", finding.rule);
            Finding { rule, ..finding }
        }));
    }

    /// Names of the rules that were violated, each once.
    pub fn rules(&self) -> Vec<&str> {
        let mut rules: Vec<&str> = self.findings.iter().map(|finding| finding.rule.as_str()).collect();
        rules.sort_unstable();
        rules.dedup();
        rules
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.findings.iter().try_for_each(|finding| writeln!(f, "{finding}"))
    }
}
