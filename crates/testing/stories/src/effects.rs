//! Effects of a recording, and the difference between two recordings.
//!
//! Two runs of the same manager differ in conflicts and retries, in the number of status writes between two states, and in
//! the interleaving of writes to different objects. [`Effects`] leaves these out.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use crate::recording::{Counted, RecordedEvent, Recording, StepWrites, Write};

/// Effects of a manager in a story, by step.
///
/// Failed writes are left out. Of the status writes to one object in a step, only the status and the generation of the last
/// one are kept. Events that increase a count are left out. The rest is sorted by resource and name.
#[derive(Debug, Clone, PartialEq)]
pub struct Effects(Vec<StepEffects>);

#[derive(Debug, Clone, PartialEq)]
struct StepEffects {
    step: String,
    effects: Vec<Value>,
}

/// Difference between the effects of two managers. `Display` formats it as a diff.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    steps: Vec<StepDifference>,
}

#[derive(Debug, Clone, PartialEq)]
struct StepDifference {
    step: String,
    missing: Vec<String>,
    surplus: Vec<String>,
}

impl Effects {
    /// Returns the effects of a recording.
    pub fn of(recording: &Recording) -> Self {
        Self(recording.steps.iter().map(StepEffects::of).collect())
    }

    /// Returns the difference between `self` (upstream) and `ours`, or `None` if they are equal.
    pub fn difference(&self, ours: &Self) -> Option<Difference> {
        let mut steps = Vec::new();
        let nothing = StepEffects { step: "(no such step)".to_owned(), effects: Vec::new() };
        for at in 0..self.0.len().max(ours.0.len()) {
            let (theirs, ours) = (self.0.get(at).unwrap_or(&nothing), ours.0.get(at).unwrap_or(&nothing));
            if theirs != ours {
                steps.push(StepDifference::between(theirs, ours));
            }
        }
        (!steps.is_empty()).then_some(Difference { steps })
    }
}

/// Returns the smallest difference between `ours` and one of `runs`, or `None` if `ours` equals one of them.
///
/// If `runs` is empty, all effects are differences.
pub fn closest_difference(runs: &[Recording], ours: &Recording) -> Option<Difference> {
    let ours = Effects::of(ours);
    if runs.is_empty() {
        return Effects(Vec::new()).difference(&ours);
    }
    let mut closest: Option<Difference> = None;
    for run in runs {
        let difference = Effects::of(run).difference(&ours)?;
        if closest.as_ref().is_none_or(|closest| difference.len() < closest.len()) {
            closest = Some(difference);
        }
    }
    closest
}

impl StepEffects {
    fn of(step: &StepWrites) -> Self {
        let mut effects: Vec<(String, String, Value)> = Vec::new();
        let mut statuses: BTreeMap<(&str, &str), &Write> = BTreeMap::new();
        for Counted { times, what } in &step.writes {
            if what.code >= 400 {
                continue;
            }
            let resource = resource(what);
            let name = what.name.as_deref().unwrap_or_default();
            if resource.ends_with("/status") {
                statuses.insert((resource, name), what);
            } else {
                let body = comparable_body(what);
                let effect = json!({"write": what.write, "code": what.code, "name": what.name, "body": body});
                let place = (resource.to_owned(), name.to_owned());
                effects.extend((0..*times).map(|_| (place.0.clone(), place.1.clone(), effect.clone())));
            }
        }
        for ((resource, name), write) in statuses {
            let body = write.body.as_ref().unwrap_or(&Value::Null);
            let effect = json!({
                "write": format!("final {resource}"),
                "name": name,
                "status": body["status"],
                "generation": body["metadata"]["generation"],
            });
            effects.push((resource.to_owned(), name.to_owned(), effect));
        }
        for Counted { times, what } in &step.events {
            if what.code >= 400 || what.again {
                continue;
            }
            let on = what.on.clone().unwrap_or_default();
            let effect = event_effect(what);
            effects.extend((0..*times).map(|_| ("event".to_owned(), on.clone(), effect.clone())));
        }
        // Stable: effects on one object keep their order.
        effects.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        Self { step: step.step.clone(), effects: effects.into_iter().map(|(_, _, effect)| effect).collect() }
    }
}

/// Removes the version of `DeleteOptions`, which API servers log differently.
fn comparable_body(write: &Write) -> Option<Value> {
    let mut body = write.body.clone();
    if let Some(Value::Object(options)) = &mut body
        && options.get("kind").is_some_and(|kind| kind == "DeleteOptions")
    {
        options.remove("apiVersion");
    }
    body
}

fn resource(write: &Write) -> &str {
    write.write.rsplit(' ').next().unwrap_or_default()
}

fn event_effect(event: &RecordedEvent) -> Value {
    let RecordedEvent { code, on, kind, reason, message, component, again: _, count: _ } = event;
    json!({"event": on, "code": code, "type": kind, "reason": reason, "message": message, "component": component})
}

impl StepDifference {
    fn between(theirs: &StepEffects, ours: &StepEffects) -> Self {
        let step = if theirs.step == ours.step {
            ours.step.clone()
        } else {
            format!("{} / {}", theirs.step, ours.step)
        };
        let (mut a, mut b) = (theirs.effects.as_slice(), ours.effects.as_slice());
        while let ([first, rest @ ..], [other, others @ ..]) = (a, b)
            && first == other
        {
            (a, b) = (rest, others);
        }
        while let ([rest @ .., last], [others @ .., other]) = (a, b)
            && last == other
        {
            (a, b) = (rest, others);
        }
        let lines = |effects: &[Value]| effects.iter().map(|effect| format!("{effect:#}")).collect();
        Self { step, missing: lines(a), surplus: lines(b) }
    }
}

impl Difference {
    /// Number of effects that only one side has.
    pub fn len(&self) -> usize {
        self.steps.iter().map(|step| step.missing.len() + step.surplus.len()).sum()
    }

    /// `true` if only the names of steps differ.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Maximum number of lines printed per side of a step.
const LINES: usize = 120;

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "step {:?}: - upstream, + ours", step.step)?;
            let sides = [('-', &step.missing), ('+', &step.surplus)];
            for (sign, effects) in sides {
                let lines = effects.iter().flat_map(|effect| effect.lines());
                for line in lines.clone().take(LINES) {
                    writeln!(f, "  {sign} {line}")?;
                }
                let more = lines.count().saturating_sub(LINES);
                if more > 0 {
                    writeln!(f, "  {sign} … {more} more lines")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, ready: i32) -> Counted<Write> {
        let body = json!({"metadata": {"generation": 1}, "status": {"ready": ready}});
        let what = Write {
            write: "update deployments/status".to_owned(),
            code,
            name: Some("web".to_owned()),
            body: Some(body),
        };
        Counted { times: 1, what }
    }

    fn recording(writes: Vec<Counted<Write>>) -> Recording {
        let step = StepWrites { step: "s".to_owned(), writes, events: Vec::new() };
        Recording { story: "r".to_owned(), kubernetes: "v1.36.0".to_owned(), steps: vec![step] }
    }

    #[test]
    fn effects_leave_out_failed_and_intermediate_writes() {
        let short = recording(vec![status(200, 3)]);
        let long = recording(vec![status(200, 1), status(409, 2), status(200, 3), status(409, 4)]);
        assert_eq!(Effects::of(&short), Effects::of(&long));
    }

    #[test]
    fn difference_shows_the_step_and_the_last_status() {
        let (theirs, ours) = (recording(vec![status(200, 3)]), recording(vec![status(200, 4)]));
        let difference = Effects::of(&theirs).difference(&Effects::of(&ours)).unwrap();
        let text = difference.to_string();
        assert!(text.starts_with("step \"s\""), "{text}");
        assert!(text.contains("-     \"ready\": 3") && text.contains("+     \"ready\": 4"), "{text}");
    }

    #[test]
    fn difference_in_the_number_of_writes_is_reported() {
        let create = |times| {
            let what = Write { write: "create pods".to_owned(), code: 201, name: None, body: None };
            recording(vec![Counted { times, what }])
        };
        let difference = Effects::of(&create(3)).difference(&Effects::of(&create(2))).unwrap();
        assert_eq!(difference.len(), 1);
    }

    #[test]
    fn closest_difference_is_none_if_one_run_is_equal() {
        let runs = [recording(vec![status(200, 1)]), recording(vec![status(200, 2)])];
        assert_eq!(closest_difference(&runs, &recording(vec![status(200, 2)])), None);
        assert!(closest_difference(&runs, &recording(vec![status(200, 3)])).is_some());
    }

    #[test]
    fn recordings_with_different_steps_differ() {
        let (full, empty) = (recording(vec![status(200, 1)]), recording(Vec::new()));
        let none = Recording { steps: Vec::new(), ..empty.clone() };
        assert!(Effects::of(&full).difference(&Effects::of(&none)).is_some());
        assert!(
            Effects::of(&empty).difference(&Effects::of(&none)).is_some(),
            "a step without writes is a step"
        );
    }
}
