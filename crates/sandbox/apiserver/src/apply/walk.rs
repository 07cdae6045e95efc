//! Traversal of typed objects: field sets, comparison, merge.
//!
//! Upstream counterpart: `structured-merge-diff/typed`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    set::{self, Set, display_step, field_step},
    topology::Topology,
};

/// Returns the fields of `value`.
pub(super) fn field_set(topology: Topology<'_>, value: &Value) -> Set {
    let mut set = Set::new();
    for part in topology.parts(value).unwrap_or_default() {
        let is_whole = part.topology.parts(part.value).is_none();
        let is_empty_map = part.value.as_object().is_some_and(Map::is_empty);
        let ends = is_whole || is_empty_map || !part.is_field;
        set::insert(&mut set, part.step, ends, field_set(part.topology, part.value));
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
    /// Fields that were added or modified.
    pub(super) written: Set,
    pub(super) removed: Set,
}

/// Compares two objects.
pub(super) fn compare(topology: Topology<'_>, old: &Value, new: &Value) -> Comparison {
    compare_parts(topology, Some(old), Some(new))
}

fn compare_parts(topology: Topology<'_>, old: Option<&Value>, new: Option<&Value>) -> Comparison {
    let mut result = Comparison::default();
    if topology.is_divisible_object() {
        let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
        result.add_members(topology, old, new);
    }
    if topology.is_associative_list() {
        let (old, new) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
        result.add_items(topology, old, new);
    }
    result
}

impl Comparison {
    pub(super) fn is_empty(&self) -> bool {
        self.written.is_empty() && self.removed.is_empty()
    }

    fn add_members(
        &mut self,
        topology: Topology<'_>,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
    ) {
        let mut add = |name: &str| {
            let (old, new) = (member(topology, old, name), member(topology, new, name));
            if old != new {
                self.add(field_step(name), topology.member(name).0, old, new);
            }
        };
        let is_new = |name: &str| new.is_some_and(|new| new.contains_key(name));
        let is_old = |name: &str| old.is_some_and(|old| old.contains_key(name));
        new.into_iter().flat_map(Map::keys).for_each(|name| add(name));
        old.into_iter().flat_map(Map::keys).filter(|name| !is_new(name)).for_each(|name| add(name));
        if old.is_some() != new.is_some() {
            topology.null_if_unset().filter(|name| !is_new(name) && !is_old(name)).for_each(add);
        }
    }

    fn add_items(&mut self, topology: Topology<'_>, old: Option<&Vec<Value>>, new: Option<&Vec<Value>>) {
        let mut items: BTreeMap<String, [Vec<&Value>; 2]> = BTreeMap::new();
        for (side, list) in [old, new].into_iter().enumerate() {
            for item in list.into_iter().flatten() {
                items.entry(topology.item_step(item)).or_default()[side].push(item);
            }
        }
        for (step, [old, new]) in items {
            // Items with the same keys have one owner.
            match (old.as_slice(), new.as_slice()) {
                ([] | [_], [] | [_]) => {
                    if old != new {
                        let (old, new) = (old.first().copied(), new.first().copied());
                        self.add(step, topology.item(), old, new);
                    }
                }
                ([_, _, ..], [_, _, ..]) if old == new => {}
                ([_, _, ..], [_, _, ..]) => set::insert(&mut self.written, step, true, Set::new()),
                ([_, _, ..], _) => {
                    if let [new] = new.as_slice() {
                        self.add(step.clone(), topology.item(), None, Some(new));
                    }
                    set::insert(&mut self.removed, step, true, Set::new());
                }
                _ => {
                    if let [old] = old.as_slice() {
                        self.add(step.clone(), topology.item(), Some(old), None);
                    }
                    set::insert(&mut self.written, step, true, Set::new());
                }
            }
        }
    }

    /// Adds the difference between two values that are not equal.
    fn add(&mut self, step: String, topology: Topology<'_>, old: Option<&Value>, new: Option<&Value>) {
        let is_modified = match (old, new) {
            (Some(old), Some(new)) => {
                !(topology.divides(old) && topology.divides(new)) || (is_empty(old) && is_empty(new))
            }
            _ => false,
        };
        let below = if is_modified {
            let removed = compare_parts(topology, old, None).removed;
            Self { written: compare_parts(topology, None, new).written, removed }
        } else {
            compare_parts(topology, old, new)
        };
        if new.is_none() || !below.removed.is_empty() {
            set::insert(&mut self.removed, step.clone(), new.is_none(), below.removed);
        }
        set::insert(&mut self.written, step, old.is_none() || is_modified, below.written);
    }
}

/// Returns a member of an object: `null` for an unset member that Go writes as `null`.
fn member<'a>(
    topology: Topology<'_>,
    object: Option<&'a Map<String, Value>>,
    name: &str,
) -> Option<&'a Value> {
    match object?.get(name) {
        None if topology.is_null_if_unset(name) => Some(&Value::Null),
        value => value,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
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
    let below = match set::below(set, step) {
        None => return true,
        Some((true, _)) => return false,
        Some((false, below)) => below,
    };
    remove_items(topology, value, below);
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    }
}
