//! Sets of fields in the `fieldsV1` format.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Map, Value};

/// Set of field paths, as `fieldsV1` writes it.
///
/// Keys are path elements: `f:name` for a field, `k:{"name":"web"}` for a list item with these keys, `v:"text"` for a set
/// item. They are canonical, so equal elements are equal strings. A path ends at an element without elements below it, and
/// at one that contains [`END`].
///
/// Upstream counterpart: `structured-merge-diff/fieldpath.Set`.
pub(super) type Set = Map<String, Value>;

/// Marks an element at which a path ends, beside the elements below it.
const END: &str = ".";

/// Element with the elements below it. Returns `None` if no path ends there or below.
fn element(is_end: bool, mut below: Set) -> Option<Value> {
    match (is_end, below.is_empty()) {
        (false, true) => return None,
        (true, false) => drop(below.insert(END.to_owned(), Value::Object(Map::new()))),
        _ => {}
    }
    Some(Value::Object(below))
}

fn is_end(below: &Set) -> bool {
    below.is_empty() || below.contains_key(END)
}

/// Elements with the elements below each of them.
fn elements(set: &Set) -> impl Iterator<Item = (&String, &Set)> {
    set.iter().filter(|(step, _)| *step != END).filter_map(|(step, below)| Some((step, below.as_object()?)))
}

/// Returns the elements below `step`, and `true` if a path ends there.
pub(super) fn below<'a>(set: &'a Set, step: &str) -> Option<(bool, &'a Set)> {
    set.get(step).and_then(Value::as_object).map(|below| (is_end(below), below))
}

/// Adds the path that ends at `step`, if `is_end`, and the paths below it.
pub(super) fn insert(set: &mut Set, step: String, is_end: bool, below: Set) {
    if let Some(element) = element(is_end, below) {
        set.insert(step, element);
    }
}

/// Changes an element. Removes it if no path ends there or below after that.
fn change(set: &mut Set, step: &str, change: impl FnOnce(bool, &mut Set) -> bool) {
    let Some(Value::Object(below)) = set.get_mut(step) else { return };
    let was_end = is_end(below);
    below.remove(END);
    let is_end = change(was_end, below);
    if is_end && !below.is_empty() {
        below.insert(END.to_owned(), Value::Object(Map::new()));
    } else if !is_end && below.is_empty() {
        set.remove(step);
    }
}

/// Adds the paths of `other`.
pub(super) fn unite(set: &mut Set, other: &Set) {
    for (step, theirs) in elements(other) {
        if set.contains_key(step) {
            change(set, step, |was_end, below| {
                unite(below, theirs);
                was_end || is_end(theirs)
            });
        } else {
            set.insert(step.clone(), Value::Object(theirs.clone()));
        }
    }
}

/// Removes the paths of `other`.
pub(super) fn subtract(set: &mut Set, other: &Set) {
    for (step, theirs) in elements(other) {
        change(set, step, |was_end, below| {
            subtract(below, theirs);
            was_end && !is_end(theirs)
        });
    }
}

pub(super) fn intersection(set: &Set, other: &Set) -> Set {
    let mut common = Set::new();
    for (step, theirs) in elements(other) {
        if let Some((ends, own)) = below(set, step) {
            insert(&mut common, step.clone(), ends && is_end(theirs), intersection(own, theirs));
        }
    }
    common
}

/// Removes fields below which `other` has fields: the owner of a nested field also owns the enclosing object.
pub(super) fn remove_parents(set: &mut Set, other: &Set) {
    for (step, theirs) in elements(other) {
        let is_parent = step.starts_with("f:") && elements(theirs).next().is_some();
        change(set, step, |was_end, below| {
            remove_parents(below, theirs);
            was_end && !is_parent
        });
    }
}

/// Removes the path that ends at `step`, but not those below it.
pub(super) fn remove_end(set: &mut Set, step: &str) {
    change(set, step, |_, _| false);
}

/// Removes a path and all paths below it.
pub(super) fn remove(set: &mut Set, path: &[&str]) {
    match path {
        [] => {}
        [last] => drop(set.remove(*last)),
        [first, rest @ ..] => change(set, first, |was_end, below| {
            remove(below, rest);
            was_end
        }),
    }
}

/// Decodes `fieldsV1`. Returns `None` if it is invalid.
pub(super) fn parse(value: &Value) -> Option<Set> {
    let mut set = Set::new();
    for (step, value) in value.as_object()?.iter().filter(|(step, _)| *step != END) {
        let ends = is_end(value.as_object()?);
        insert(&mut set, canonical(step)?, ends, parse(value)?);
    }
    Some(set)
}

/// All paths as in messages: `.spec.containers[name="web"].image`.
pub(super) fn paths(set: &Set) -> Vec<String> {
    let mut paths = Vec::new();
    collect(set, "", &mut paths);
    paths
}

fn collect(set: &Set, prefix: &str, into: &mut Vec<String>) {
    for (step, below) in elements(set) {
        let path = format!("{prefix}{}", display_step(step));
        collect(below, &path, into);
        if is_end(below) {
            into.push(path);
        }
    }
}

/// Returns the canonical form of an element. `None` if it is invalid.
fn canonical(step: &str) -> Option<String> {
    let (form, rest) = step.split_once(':')?;
    match form {
        "f" => Some(step.to_owned()),
        "i" => rest.parse::<i64>().ok().map(|index| format!("i:{index}")),
        "v" => serde_json::from_str::<Value>(rest).ok().map(|value| value_step(&value)),
        "k" => serde_json::from_str::<BTreeMap<String, Value>>(rest).ok().map(|keys| key_step(&keys)),
        _ => None,
    }
}

/// Returns the element of the field `name`.
pub(super) fn field_step(name: &str) -> String {
    ["f:", name].concat()
}

/// Returns the element of the set item `value`.
pub(super) fn value_step(value: &Value) -> String {
    format!("v:{value}")
}

/// Returns the element of the list item with these keys.
pub(super) fn key_step(keys: &BTreeMap<String, Value>) -> String {
    let mut text = String::from("k:{");
    for (index, (key, value)) in keys.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{}:{value}", Value::from(key.as_str()));
    }
    text.push('}');
    text
}

/// Formats an element as in messages.
pub(super) fn display_step(step: &str) -> String {
    let (form, rest) = step.split_once(':').unwrap_or(("f", step));
    match form {
        "k" => {
            let keys: BTreeMap<String, Value> = serde_json::from_str(rest).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        "v" => format!("[={rest}]"),
        "i" => format!("[{rest}]"),
        _ => format!(".{rest}"),
    }
}
