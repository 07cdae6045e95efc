//! Findings: causes with their explanation and pods.

use kcm_clock::Timestamp;
use serde::Serialize;

use crate::cause::Cause;

/// Effect of a finding on the rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Stops the rollout until a person or another controller intervenes.
    Blocks,
    /// Ends without intervention, after a time.
    Delays,
    /// Does not hold the rollout.
    Note,
}

/// Cause that was found, with the pods that it applies to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Cause.
    pub cause: Cause,
    /// Effect.
    pub effect: Effect,
    /// Explanation.
    pub message: String,
    /// Names of the pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
    /// Container, if the cause is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Object that refuses or holds the rollout, such as the name of a quota or of a webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Time at which a delay is expected to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Finding {
    pub(crate) fn new(cause: Cause, effect: Effect, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { cause, effect, message, pods: Vec::new(), container: None, object: None, until: None }
    }

    pub(crate) fn blocks(cause: Cause, message: impl Into<String>) -> Self {
        Self::new(cause, Effect::Blocks, message)
    }

    pub(crate) fn delays(cause: Cause, message: impl Into<String>, until: Option<Timestamp>) -> Self {
        Self { until, ..Self::new(cause, Effect::Delays, message) }
    }

    pub(crate) fn note(cause: Cause, message: impl Into<String>) -> Self {
        Self::new(cause, Effect::Note, message)
    }

    pub(crate) fn container(self, name: &str) -> Self {
        Self { container: Some(name.to_owned()), ..self }
    }

    pub(crate) fn object(self, name: &str) -> Self {
        Self { object: Some(name.to_owned()), ..self }
    }

    pub(crate) fn pod(mut self, name: &str) -> Self {
        self.pods.push(name.to_owned());
        self
    }
}

/// Adds a finding about pods. Findings that differ in their pods only are merged.
pub(crate) fn add(findings: &mut Vec<Finding>, new: Finding) {
    let is_same = |known: &&mut Finding| {
        (known.cause, known.effect, &known.message, &known.container)
            == (new.cause, new.effect, &new.message, &new.container)
    };
    match findings.iter_mut().find(is_same) {
        Some(known) => {
            known.until = known.until.into_iter().chain(new.until).min();
            known.pods.extend(new.pods);
        }
        None => findings.push(new),
    }
}
