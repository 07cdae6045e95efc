//! Comparison of a diagnosis with the truth.

use std::fmt;

use serde_json::Value;

use crate::scenario::Truth;

/// Verdict about a diagnosis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// State, causes and remedy are true.
    Right,
    /// The state is true, and no cause is false, but a cause, a remedy or a part of the explanation is missing.
    Partly,
    /// The diagnosis has the state `unknown`, and the truth is another one.
    CannotTell,
    /// The state or a cause is false, or the explanation contains what it must not contain.
    Wrong,
}

impl Verdict {
    /// All verdicts, the best first.
    pub const ALL: &[Self] = &[Self::Right, Self::Partly, Self::CannotTell, Self::Wrong];
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Right => "right",
            Self::Partly => "partly",
            Self::CannotTell => "cannot tell",
            Self::Wrong => "wrong",
        })
    }
}

/// Result of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Name of the scenario.
    pub name: String,
    /// Verdict.
    pub verdict: Verdict,
    /// True state and causes.
    pub expected: String,
    /// Reported state and causes.
    pub got: String,
    /// Differences.
    pub differences: Vec<String>,
}

/// Compares a diagnosis, in its JSON form, with the truth of the scenario `name`.
pub fn judge(name: &str, truth: &Truth, diagnosis: &Value) -> Outcome {
    let state = diagnosis["state"].as_str().unwrap_or_default();
    let mut causes: Vec<&str> = texts(diagnosis, "findings", "cause").collect();
    // Of several findings with one cause, the first is listed.
    let mut seen = Vec::new();
    causes.retain(|cause| {
        !seen.contains(cause) && {
            seen.push(*cause);
            true
        }
    });
    let Differences { claims, wrong, missing } = differences(truth, diagnosis, state, &causes);
    let verdict = if !claims.is_empty() {
        Verdict::Wrong
    } else if state == "unknown" && truth.state != "unknown" {
        Verdict::CannotTell
    } else if !wrong.is_empty() {
        Verdict::Wrong
    } else if !missing.is_empty() {
        Verdict::Partly
    } else {
        Verdict::Right
    };
    Outcome {
        name: name.to_owned(),
        verdict,
        expected: format!("{} {} {}", truth.state, truth.causes.join(" "), truth.any_of.join("/"))
            .trim_end()
            .to_owned(),
        got: format!("{state} {}", causes.join(" ")).trim_end().to_owned(),
        differences: claims.into_iter().chain(wrong).chain(missing).collect(),
    }
}

fn texts<'a>(diagnosis: &'a Value, list: &str, member: &str) -> impl Iterator<Item = &'a str> {
    let items = diagnosis[list].as_array().map_or(&[][..], Vec::as_slice).iter();
    let texts: Vec<&str> = items.filter_map(|item| item[member].as_str()).collect();
    texts.into_iter()
}

/// Differences between a diagnosis and the truth.
#[derive(Default)]
struct Differences {
    /// False statements, which no state excuses.
    claims: Vec<String>,
    /// Another state, or none of the causes.
    wrong: Vec<String>,
    /// Missing parts of a true diagnosis.
    missing: Vec<String>,
}

fn differences(truth: &Truth, diagnosis: &Value, state: &str, causes: &[&str]) -> Differences {
    let Differences { mut claims, mut wrong, mut missing } = Differences::default();
    if state != truth.state {
        wrong.push(format!("state {state}"));
    }
    for cause in truth.not.iter().filter(|cause| causes.contains(&cause.as_str())) {
        claims.push(format!("claims {cause}"));
    }
    let found = |cause: &&String| causes.contains(&cause.as_str());
    if !truth.causes.is_empty() && !truth.causes.iter().any(|cause| found(&cause)) {
        wrong.push(format!("finds none of {}", truth.causes.join(" ")));
    }
    for cause in truth.causes.iter().filter(|cause| !found(cause)) {
        missing.push(format!("no {cause}"));
    }
    if !truth.any_of.is_empty() && !truth.any_of.iter().any(|cause| found(&cause)) {
        wrong.push(format!("finds none of {}", truth.any_of.join(" ")));
    }
    for cause in &truth.single {
        let count = texts(diagnosis, "findings", "cause").filter(|other| other == cause).count();
        if count > 1 {
            missing.push(format!("{count} findings of {cause}"));
        }
    }
    let first = diagnosis["cause"].as_str();
    match first {
        Some(first) if truth.causes.is_empty() && truth.state == "complete" && first != "unknown" => {
            claims.push(format!("cause {first} of a complete rollout"));
        }
        Some(first)
            if !truth.causes.is_empty()
                && !truth.causes.iter().chain(&truth.any_of).any(|cause| cause == first) =>
        {
            missing.push(format!("first cause {first}"));
        }
        _ => {}
    }
    let commands: Vec<&str> = texts(diagnosis, "commands", "command").collect();
    let suggested = |part: &&String| commands.iter().any(|command| command.contains(part.as_str()));
    missing.extend(
        truth.remedy.iter().filter(|part| !suggested(part)).map(|part| format!("no remedy {part:?}")),
    );
    claims.extend(truth.no_remedy.iter().filter(suggested).map(|part| format!("offers {part:?}")));
    let messages: Vec<&str> = texts(diagnosis, "findings", "message")
        .chain(diagnosis["summary"].as_str())
        .chain(
            ["/bounds/message", "/changed/at", "/changed/manager"]
                .iter()
                .filter_map(|member| diagnosis.pointer(member).and_then(Value::as_str)),
        )
        .chain(diagnosis["next"].as_array().into_iter().flatten().filter_map(Value::as_str))
        .collect();
    let said = |part: &&String| {
        messages.iter().any(|message| message.contains(part.as_str()))
            || texts(diagnosis, "unreadable", "resource").any(|resource| resource.contains(part.as_str()))
    };
    missing.extend(truth.says.iter().filter(|part| !said(part)).map(|part| format!("does not say {part:?}")));
    claims.extend(truth.never_says.iter().filter(said).map(|part| format!("says {part:?}")));
    Differences { claims, wrong, missing }
}

/// Table of results, and their numbers.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let Outcome { name, verdict, expected, got, differences } = outcome;
        text.push_str(&format!("{verdict:<11} | {name} | {expected} | {got} | {}\n", differences.join("; ")));
    }
    for verdict in Verdict::ALL {
        let count = outcomes.iter().filter(|outcome| outcome.verdict == *verdict).count();
        text.push_str(&format!("{verdict}: {count} of {}\n", outcomes.len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(truth: &str, diagnosis: &Value) -> (Verdict, Vec<String>) {
        let outcome = judge("n", &serde_saphyr::from_str(truth).unwrap(), diagnosis);
        (outcome.verdict, outcome.differences)
    }

    #[test]
    fn verdicts() {
        let diagnosis = json!({
            "state": "stuck", "cause": "crash_loop", "summary": "Stuck because 2 pods crash",
            "findings": [{ "cause": "crash_loop", "message": "exit code 1" }, { "cause": "image_pull", "message": "m" }],
            "commands": [{ "command": "kubectl -n shop rollout undo deployment/web" }],
        });
        let cases = [
            (
                "{state: stuck, causes: [crash_loop, image_pull], remedy: [rollout undo], says: [exit code 1]}",
                Verdict::Right,
            ),
            ("{state: stuck, causes: [crash_loop]}", Verdict::Right),
            ("{state: stuck, causes: [image_pull]}", Verdict::Partly),
            ("{state: stuck, causes: [crash_loop, paused]}", Verdict::Partly),
            ("{state: stuck, causes: [crash_loop], remedy: [describe]}", Verdict::Partly),
            ("{state: stuck, causes: [crash_loop], says: [exit code 2]}", Verdict::Partly),
            ("{state: stuck, causes: [paused]}", Verdict::Wrong),
            ("{state: progressing, causes: [crash_loop]}", Verdict::Wrong),
            ("{state: stuck, causes: [crash_loop], not: [image_pull]}", Verdict::Wrong),
            ("{state: stuck, any_of: [paused, crash_loop]}", Verdict::Right),
            ("{state: stuck, any_of: [paused, unknown]}", Verdict::Wrong),
            ("{state: stuck, single: [crash_loop]}", Verdict::Right),
            ("{state: stuck, causes: [crash_loop], no_remedy: [rollout undo]}", Verdict::Wrong),
            ("{state: stuck, causes: [crash_loop], never_says: [exit code 1]}", Verdict::Wrong),
        ];
        for (truth, expected) in cases {
            assert_eq!(verdict(truth, &diagnosis).0, expected, "{truth}: {:?}", verdict(truth, &diagnosis).1);
        }
        let unknown = json!({ "state": "unknown", "cause": "unknown", "findings": [{ "cause": "unknown" }] });
        assert_eq!(verdict("{state: stuck, causes: [paused]}", &unknown).0, Verdict::CannotTell);
        assert_eq!(verdict("{state: unknown, causes: [unknown]}", &unknown).0, Verdict::Right);
    }

    #[test]
    fn unknown_does_not_excuse_a_false_claim() {
        let unknown = json!({
            "state": "unknown", "cause": "unknown", "findings": [{ "cause": "unknown" }, { "cause": "paused", "message": "m" }],
            "commands": [{ "command": "kubectl -n shop rollout resume deployment/web" }],
        });
        for claim in ["not: [paused]", "no_remedy: [rollout resume]", "never_says: [m]"] {
            let truth = format!("{{state: stuck, causes: [crash_loop], {claim}}}");
            assert_eq!(verdict(&truth, &unknown).0, Verdict::Wrong, "{claim}");
        }
        assert_eq!(verdict("{state: stuck, causes: [crash_loop]}", &unknown).0, Verdict::CannotTell);
    }
}
