//! Results of runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use kcm_apiserver::ApiStatus;
use serde_json::Value;
use thiserror::Error;

use super::observer::Finding;

/// Effect that depends on the order of events. It is not compared with that of another run.
pub const NOT_COMPARED: &str = "not compared";

/// Differences of an object in the text of a finding.
const MAX_DIFFERENCES: usize = 3;

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
    /// Requests of the operator, if they were recorded, without times and UIDs in their bodies.
    pub requests: Vec<String>,
    /// Positions of the faults of the scenario that could affect no request, if they were recorded.
    pub faults_without_requests: Vec<usize>,
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
    #[doc(hidden)]
    pub fn compare_effect(&mut self, calm: &BTreeMap<String, Value>) {
        for (object, effect) in calm {
            let own = self.effect.get(object);
            if *effect == NOT_COMPARED || own.is_some_and(|own| own == effect || *own == NOT_COMPARED) {
                continue;
            }
            let what = match own {
                Some(own) => differences("", Some(own), Some(effect)),
                None => vec!["does not exist, and exists without faults".to_owned()],
            };
            let more = match what.len().saturating_sub(MAX_DIFFERENCES) {
                0 => String::new(),
                more => format!("; {more} more"),
            };
            let what = what.into_iter().take(MAX_DIFFERENCES).collect::<Vec<_>>().join("; ");
            let what = format!("{object} {}{more}", what.trim_start());
            self.findings.push(Finding { rule: "equal-effect".to_owned(), what });
        }
    }

    /// Adds the findings of the run without faults.
    #[doc(hidden)]
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

/// Values that differ, each with its JSON pointer, which begins with `pointer`.
fn differences(pointer: &str, own: Option<&Value>, calm: Option<&Value>) -> Vec<String> {
    match (own, calm) {
        _ if own == calm => Vec::new(),
        (Some(Value::Object(own)), Some(Value::Object(calm))) => {
            let names: BTreeSet<_> = own.keys().chain(calm.keys()).collect();
            let of_member = |name: &String| {
                let member = name.replace('~', "~0").replace('/', "~1");
                differences(&format!("{pointer}/{member}"), own.get(name), calm.get(name))
            };
            names.into_iter().flat_map(of_member).collect()
        }
        (Some(Value::Array(own)), Some(Value::Array(calm))) => {
            let of_element = |at: usize| differences(&format!("{pointer}/{at}"), own.get(at), calm.get(at));
            (0..own.len().max(calm.len())).flat_map(of_element).collect()
        }
        _ => {
            let text = |value: Option<&Value>| value.map_or_else(|| "missing".to_owned(), Value::to_string);
            vec![format!("{pointer} is {}, and without faults {}", text(own), text(calm))]
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_named_by_json_pointers() {
        let text = |own: Value, calm: Value| {
            let of = |value: Value| BTreeMap::from([("pods a/b".to_owned(), value)]);
            let mut outcome = Outcome { effect: of(own), ..Outcome::default() };
            outcome.compare_effect(&of(calm));
            outcome.findings.pop().map(|finding| finding.what)
        };
        assert_eq!(text(json!({"a": 1}), json!({"a": 1})), None);
        assert_eq!(
            text(json!({"a/b": [1, 2], "c": 3}), json!({"a/b": [1], "c": 4})).unwrap(),
            "pods a/b /a~1b/1 is 2, and without faults missing; /c is 3, and without faults 4"
        );
        assert_eq!(text(json!("x"), json!("y")).unwrap(), "pods a/b is \"x\", and without faults \"y\"");
        let many = text(json!([1, 2, 3, 4, 5]), json!([0, 0, 0, 0, 0])).unwrap();
        assert!(many.ends_with("/2 is 3, and without faults 0; 2 more"), "{many}");
        let mut outcome = Outcome::default();
        outcome.compare_effect(&BTreeMap::from([("pods a/b".to_owned(), json!({}))]));
        assert_eq!(outcome.findings[0].what, "pods a/b does not exist, and exists without faults");
    }
}
