//! Findings: causes with their explanation and pods.

use jiff::SignedDuration;
use kcm_clock::Timestamp;
use serde::Serialize;

use crate::{cause::Cause, duration::short};

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
    /// Object that refuses or holds the rollout, such as the name of a quota or of a webhook, or that has the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Fewest and most restarts of the container in one of the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<(i64, i64)>,
    /// Shortest and longest duration in one of the pods.
    #[serde(skip)]
    pub(crate) ages: Option<(SignedDuration, SignedDuration)>,
    /// Time at which a delay is expected to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Finding {
    pub(crate) fn new(cause: Cause, effect: Effect, message: impl Into<String>) -> Self {
        Self {
            cause,
            effect,
            message: message.into(),
            pods: Vec::new(),
            container: None,
            object: None,
            restarts: None,
            ages: None,
            until: None,
        }
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

    pub(crate) fn restarts(self, number: i64) -> Self {
        Self { restarts: Some((number, number)), ..self }
    }

    /// Sets the duration of the cause, which the explanation then does not contain.
    pub(crate) fn age(self, age: SignedDuration) -> Self {
        Self { ages: Some((age, age)), ..self }
    }

    pub(crate) fn pod(mut self, name: &str) -> Self {
        self.pods.push(name.to_owned());
        self
    }

    /// Adds the duration and the number of restarts to the explanation.
    pub(crate) fn with_restarts(mut self) -> Self {
        if let Some((shortest, longest)) = self.ages.map(|(one, other)| (short(one), short(other))) {
            let range = if shortest == longest { longest } else { format!("{shortest} to {longest}") };
            append(&mut self.message, &format!("Duration: {range}."));
        }
        let text = match self.restarts {
            Some((1, 1)) => "1 restart.".to_owned(),
            Some((fewest, most)) if fewest == most => format!("{most} restarts."),
            Some((fewest, most)) => format!("{fewest} to {most} restarts."),
            None => return self,
        };
        append(&mut self.message, &text);
        self
    }
}

/// Appends a sentence. A message of the cluster before it may not end with a full stop.
pub(crate) fn append(text: &mut String, sentence: &str) {
    text.push_str(if text.ends_with('.') { " " } else { ". " });
    text.push_str(sentence);
}

/// Adds a finding about pods. Findings that differ only in their pods, in their durations, in their numbers of restarts and
/// in identifiers of the explanation are merged.
pub(crate) fn add(findings: &mut Vec<Finding>, new: Finding) {
    let template = template(&new);
    let is_same = |known: &&mut Finding| {
        (known.cause, known.effect, &known.container, &known.object)
            == (new.cause, new.effect, &new.container, &new.object)
            && self::template(known) == template
    };
    match findings.iter_mut().find(is_same) {
        Some(known) => {
            known.until = known.until.into_iter().chain(new.until).min();
            known.restarts = range(known.restarts, new.restarts);
            known.ages = range(known.ages, new.ages);
            known.pods.extend(new.pods);
        }
        None => findings.push(new),
    }
}

/// Range that contains both ranges.
fn range<T: Ord>(known: Option<(T, T)>, new: Option<(T, T)>) -> Option<(T, T)> {
    match (known, new) {
        (Some(known), Some(new)) => Some((known.0.min(new.0), known.1.max(new.1))),
        (known, new) => known.or(new),
    }
}

/// Explanation without the names of the pods, and without long hexadecimal numbers such as container IDs.
fn template(finding: &Finding) -> String {
    /// Digits of the shortest identifier.
    const IDENTIFIER: usize = 8;
    let message = match finding.pods.first() {
        Some(pod) => finding.message.replace(pod.as_str(), ""),
        None => finding.message.clone(),
    };
    let is_word = |letter: char| letter.is_ascii_alphanumeric();
    message
        .split_inclusive(|letter| !is_word(letter))
        .filter(|word| {
            let word = word.trim_end_matches(|letter| !is_word(letter));
            word.len() < IDENTIFIER || !word.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_with_the_same_cause_are_one_group() {
        let mut findings = Vec::new();
        for (pod, restarts, id) in [("web-1", 3, "0a1b2c3d4e5f"), ("web-2", 5, "ffeeddccbbaa")] {
            let message = format!("sandbox {id} of pod {pod} failed with code 503");
            add(&mut findings, Finding::blocks(Cause::CrashLoop, message).restarts(restarts).pod(pod));
        }
        let other = Finding::blocks(Cause::CrashLoop, "sandbox of another pod").pod("web-3");
        add(&mut findings, other);
        assert_eq!(findings.len(), 2);
        assert_eq!(findings[0].pods, ["web-1", "web-2"]);
        let message = findings.swap_remove(0).with_restarts().message;
        assert_eq!(message, "sandbox 0a1b2c3d4e5f of pod web-1 failed with code 503. 3 to 5 restarts.");
    }

    #[test]
    fn ages_are_a_range() {
        let mut findings = Vec::new();
        for (pod, seconds) in [("web-1", 90), ("web-2", 30)] {
            let finding = Finding::delays(Cause::ImagePulling, "Image app:2 is being pulled.", None);
            add(&mut findings, finding.age(SignedDuration::from_secs(seconds)).pod(pod));
        }
        assert_eq!(findings.len(), 1, "{findings:#?}");
        let message = findings.swap_remove(0).with_restarts().message;
        assert_eq!(message, "Image app:2 is being pulled. Duration: 30s to 1m30s.");
    }
}
