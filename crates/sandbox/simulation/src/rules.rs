//! Rules for every operator.

use std::{
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
};

use kcm_apiserver::{ApiServer, ListOptions, Object, Resource};
use serde_json::Value;

use crate::{
    engine::{managers::panic_message, outcome::Outcome},
    world::{World, Write},
};

/// Names of the rules, in the order of the documentation.
pub const RULES: &[&str] = &[
    "action",
    "converged",
    "inactive",
    "silence",
    "equal-effect",
    "left-behind",
    "created-twice",
    "needless-deletion",
    "status-ahead",
    "status-back",
    "lease",
    "effort",
    "panic",
    "exit",
    "deterministic",
    "surprise",
    "fault",
];

/// Resources of other components.
pub(crate) fn is_of_others(resource: &str) -> bool {
    matches!(
        resource,
        "events" | "leases" | "nodes" | "endpoints" | "endpointslices" | "customresourcedefinitions"
    )
}

/// Checks `observedGeneration` in the status that a write has stored.
pub(crate) fn check_status(write: &Write<'_>) -> Option<(&'static str, String)> {
    let after = write.after?;
    let generation = after.generation();
    let name = format!("{} {}/{}", write.resource, after.namespace(), after.name());
    let conditions = after.value()["status"]["conditions"].as_array().into_iter().flatten();
    let observed = |value: &Value| value["observedGeneration"].as_i64();
    let newest = conditions.filter_map(observed).chain(observed(&after.value()["status"])).max();
    if let Some(newest) = newest.filter(|newest| *newest > generation) {
        return Some((
            "status-ahead",
            format!("{name} has generation {generation}, and its status is for {newest}"),
        ));
    }
    let own = observed(&after.value()["status"])?;
    let old = write.before.and_then(|before| observed(&before.value()["status"]))?;
    (own < old)
        .then(|| ("status-back", format!("the status of {name} was for generation {old}, and is for {own}")))
}

/// Describes what is left to do at the end.
pub(crate) fn unfinished(server: &ApiServer) -> Option<String> {
    objects(server).find_map(|object| {
        let (resource, namespace, name) = (object.resource(), object.namespace(), object.name());
        let of = || format!("{} {namespace}/{name}", resource.plural());
        if object.is_deleting() {
            return Some(format!("{} is being deleted", of()));
        }
        let observed = object.value()["status"]["observedGeneration"].as_i64();
        // The controllers of built-in kinds do not run.
        let observed =
            observed.filter(|observed| resource.is_custom() && *observed != object.generation())?;
        Some(format!("{} has generation {}, and its status is for {observed}", of(), object.generation()))
    })
}

fn objects(server: &ApiServer) -> impl Iterator<Item = std::sync::Arc<Object>> {
    let of = |resource: Resource| server.list(resource, None, &ListOptions::default());
    let resources = server.resources().into_iter().filter(|resource| !is_of_others(resource.plural()));
    resources.filter_map(move |resource| of(resource).ok()).flat_map(|list| list.items)
}

/// Returns the state at the end by resource, namespace and name, without what differs between runs: times, UIDs, revisions
/// and generated names. Of the kinds in `ignored`, the member of the JSON pointer is left out.
pub(crate) fn effect<X>(world: &World<X>, ignored: &[(String, String)]) -> BTreeMap<String, Value> {
    let ignored: Vec<_> =
        ignored.iter().filter_map(|(kind, pointer)| Some((world.resource(kind)?, pointer))).collect();
    let mut by_key = BTreeMap::<String, Vec<(String, Value)>>::new();
    for object in objects(&world.server) {
        let mut value = object.value().clone();
        for (_, pointer) in ignored.iter().filter(|(resource, _)| *resource == object.resource()) {
            remove(&mut value, pointer);
        }
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            let volatile =
                ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "name"];
            for member in volatile {
                metadata.remove(member);
            }
        }
        if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
            // Schedulers and allocators write them.
            for member in ["nodeName", "clusterIP", "clusterIPs"] {
                spec.remove(member);
            }
        }
        if object.resource() == Resource::PODS {
            value["status"].take();
        }
        make_stable(&mut value);
        by_key.entry(stable_key(&object)).or_default().push((value.to_string(), value));
    }
    let mut effect = BTreeMap::new();
    for (key, mut values) in by_key {
        // The order of generated names is that of random numbers.
        values.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (number, (_, value)) in values.into_iter().enumerate() {
            let suffix = if number == 0 { String::new() } else { format!(" #{}", number + 1) };
            effect.insert(format!("{key}{suffix}"), value);
        }
    }
    effect
}

/// Removes the member of a JSON pointer.
fn remove(value: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    let name = name.replace("~1", "/").replace("~0", "~");
    if let Some(members) = value.pointer_mut(parent).and_then(Value::as_object_mut) {
        members.remove(&name);
    }
}

/// Resource with its group, namespace and name of an object, with the prefix of a generated name.
pub(crate) fn stable_key(object: &Object) -> String {
    let generated = object.value()["metadata"]["generateName"].as_str();
    let name = generated.map_or_else(|| object.name().to_owned(), |prefix| format!("{prefix}*"));
    format!("{} {}/{name}", object.resource(), object.namespace())
}

/// Violation of a rule of a simulation. A panic, such as that of an assertion, is a violation.
pub(crate) fn violation(rule: impl FnOnce() -> Option<String>) -> Option<String> {
    caught(rule).unwrap_or_else(Some)
}

/// Calls a function of a simulation. Returns the message of a panic as the error.
pub(crate) fn caught<T>(function: impl FnOnce() -> T) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(function)).map_err(|panic| panic_message(&*panic).to_owned())
}

/// Removes UIDs, replaces times, observed generations and other UIDs, and sorts conditions.
pub(crate) fn make_stable(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("uid");
            for (name, member) in members {
                make_stable(member);
                match (&**name, member) {
                    ("observedGeneration", member) => *member = Value::Null,
                    ("conditions", Value::Array(conditions)) => {
                        conditions.sort_by(|one, other| one["type"].as_str().cmp(&other["type"].as_str()));
                    }
                    _ => {}
                }
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(make_stable),
        Value::String(text) if is_time(text) => *text = "TIME".to_owned(),
        // In labels of Jobs and their pods.
        Value::String(text) if is_uid(text) => *text = "UID".to_owned(),
        _ => {}
    }
}

fn is_uid(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    text.bytes().all(is_digit) && text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
}

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.parse::<jiff::Timestamp>().is_ok()
}

/// Compares an outcome with that of the run without faults.
pub(crate) fn compare(outcome: &mut Outcome, calm: &Outcome) {
    outcome.compare_effect(&calm.effect);
    for (object, value) in &outcome.effect {
        if !calm.effect.contains_key(object) {
            let what = format!("{object} exists, and does not exist without faults: {value}");
            outcome.findings.push(crate::Finding { rule: "left-behind".to_owned(), what });
        }
    }
    for (write, count) in &outcome.counts {
        let of_calm = calm.counts.get(write).copied().unwrap_or_default();
        let rule = if write.starts_with("create") { "created-twice" } else { "needless-deletion" };
        // An object that does not exist without faults is left behind, or was deleted.
        if *count > of_calm && (of_calm > 0 || rule == "needless-deletion") {
            let what = format!("{write}: {count} times, and {of_calm} times without faults");
            outcome.findings.push(crate::Finding { rule: rule.to_owned(), what });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn member_of_a_pointer_is_removed_if_it_exists() {
        let mut value = json!({"status": {"attempts": 2, "a/b": 1, "phase": "Ready"}});
        for pointer in ["/status/attempts", "/status/a~1b", "/status/missing", "/missing/member"] {
            remove(&mut value, pointer);
        }
        assert_eq!(value, json!({"status": {"phase": "Ready"}}));
    }

    #[test]
    fn times_uids_and_generations_are_not_compared() {
        let mut value = json!({
            "uid": "1", "observedGeneration": 2, "count": 3,
            "times": ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456+00:00", "2026"],
            "labels": {"controller-uid": "0f0e0d0c-0b0a-4908-8706-050403020100", "n": "a-b-c-d-e"},
        });
        make_stable(&mut value);
        let stable = json!({
            "observedGeneration": null, "count": 3, "times": ["TIME", "TIME", "2026"],
            "labels": {"controller-uid": "UID", "n": "a-b-c-d-e"},
        });
        assert_eq!(value, stable);
    }

    #[test]
    fn conditions_are_compared_without_their_order() {
        let mut value = json!({"conditions": [{"type": "Ready"}, {"type": "Available"}], "others": [2, 1]});
        make_stable(&mut value);
        let sorted = json!({"conditions": [{"type": "Available"}, {"type": "Ready"}], "others": [2, 1]});
        assert_eq!(value, sorted);
    }
}
