//! Traversal of typed objects: field sets, comparison, merge.
//!
//! Upstream counterpart: `structured-merge-diff/typed`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    set::{Set, display_step, field_step},
    topology::Topology,
};

/// Returns the fields of `value`.
pub(super) fn field_set(topology: Topology<'_>, value: &Value) -> Set {
    let mut set = Set::default();
    for part in topology.parts(value).unwrap_or_default() {
        let is_whole = part.topology.parts(part.value).is_none();
        let is_empty_map = part.value.as_object().is_some_and(serde_json::Map::is_empty);
        if is_whole || is_empty_map || !part.is_field {
            set.members.insert(part.step.clone());
        }
        if !is_whole {
            set.add_child(part.step, field_set(part.topology, part.value));
        }
    }
    set
}

/// Returns the reason why `config` cannot be applied: an unknown field or duplicate list keys. `path` is the path of
/// `config`.
pub(super) fn validation_error(topology: Topology<'_>, config: &Value, path: &str) -> Option<String> {
    let mut seen = BTreeSet::new();
    for part in topology.parts(config).unwrap_or_default() {
        if config.is_array() && !seen.insert(part.step.clone()) {
            return Some(format!("{path}: duplicate entries for key {}", display_step(&part.step)));
        }
        if topology.is_struct() && !part.is_field {
            return Some(format!("{path}{}: field not declared in schema", display_step(&part.step)));
        }
        if let Some(found) =
            validation_error(part.topology, part.value, &format!("{path}{}", display_step(&part.step)))
        {
            return Some(found);
        }
    }
    None
}

/// Difference between two objects.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) added: Set,
    pub(super) modified: Set,
    pub(super) removed: Set,
}

/// Compares two objects.
pub(super) fn compare(topology: Topology<'_>, old: &Value, new: &Value) -> Comparison {
    compare_parts(topology, Some(old), Some(new))
}

fn compare_parts(topology: Topology<'_>, old: Option<&Value>, new: Option<&Value>) -> Comparison {
    let mut result = Comparison::default();
    let mut pairs: BTreeMap<String, (Topology<'_>, Option<&Value>, Option<&Value>)> = BTreeMap::new();
    for part in old.and_then(|old| topology.parts(old)).unwrap_or_default() {
        pairs.insert(part.step, (part.topology, Some(part.value), None));
    }
    for part in new.and_then(|new| topology.parts(new)).unwrap_or_default() {
        pairs.entry(part.step).or_insert((part.topology, None, None)).2 = Some(part.value);
    }
    for (step, (topology, old, new)) in pairs {
        let (old, new) = (old.filter(|value| !value.is_null()), new.filter(|value| !value.is_null()));
        if old == new {
            continue;
        }
        let divides = |value: Option<&Value>| value.is_none_or(|value| topology.parts(value).is_some());
        let divided = divides(old) && divides(new);
        match (old, new) {
            (None, _) => drop(result.added.members.insert(step.clone())),
            (_, None) => drop(result.removed.members.insert(step.clone())),
            _ if !divided => drop(result.modified.members.insert(step.clone())),
            _ => {}
        }
        if divided {
            let below = compare_parts(topology, old, new);
            result.added.add_child(step.clone(), below.added);
            result.modified.add_child(step.clone(), below.modified);
            result.removed.add_child(step, below.removed);
        }
    }
    result
}

/// Merges `config` into `live`.
pub(super) fn merge(topology: Topology<'_>, live: &Value, config: &Value) -> Value {
    match (topology, live, config) {
        (_, Value::Object(live), Value::Object(config)) if topology.is_divisible_object() => {
            let mut merged = live.clone();
            for (key, value) in config {
                let value = match live.get(key) {
                    Some(live) => merge(topology.member(key).0, live, value),
                    None => value.clone(),
                };
                merged.insert(key.clone(), value);
            }
            Value::Object(merged)
        }
        (_, Value::Array(live), Value::Array(config)) if topology.is_associative_list() => {
            Value::Array(merge_lists(topology, live, config))
        }
        _ => config.clone(),
    }
}

/// Merges lists. Items of `config` come in its order. Items only in `live` keep their place before their successor.
fn merge_lists(topology: Topology<'_>, live: &[Value], config: &[Value]) -> Vec<Value> {
    let step = |item: &Value| topology.item_step(item);
    let wanted: BTreeSet<String> = config.iter().map(step).collect();
    let mut known: BTreeMap<String, &Value> = BTreeMap::new();
    for item in live {
        known.entry(step(item)).or_insert(item);
    }
    let mut rest = live.iter().peekable();
    let mut taken = BTreeSet::new();
    let mut merged = Vec::with_capacity(live.len() + config.len());
    for item in config {
        let own = step(item);
        // Live items that are not in `config` and precede the next item that is.
        while let Some(next) =
            rest.next_if(|next| !wanted.contains(&step(next)) || taken.contains(&step(next)))
        {
            if !wanted.contains(&step(next)) {
                merged.push(next.clone());
            }
        }
        rest.next_if(|next| step(next) == own);
        if taken.insert(own.clone()) {
            merged.push(
                known.get(&own).map_or_else(|| item.clone(), |live| merge(topology.item(), live, item)),
            );
        }
    }
    merged.extend(rest.filter(|item| !wanted.contains(&step(item))).cloned());
    merged
}

/// Removes the fields in `set` from `value`, and containers that become empty.
pub(super) fn remove_items(topology: Topology<'_>, value: &mut Value, set: &Set) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| keep(topology.member(key).0, value, &field_step(key), set));
        }
        Value::Array(list) => list.retain_mut(|item| {
            let step = topology.item_step(item);
            keep(topology.item(), item, &step, set)
        }),
        _ => {}
    }
}

fn keep(topology: Topology<'_>, value: &mut Value, step: &str, set: &Set) -> bool {
    if set.members.contains(step) {
        return false;
    }
    let Some(below) = set.children.get(step) else { return true };
    remove_items(topology, value, below);
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    }
}
