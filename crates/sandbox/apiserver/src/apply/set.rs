//! Sets of fields in the `fieldsV1` format.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::{Map, Value};

/// Set of field paths.
///
/// Path elements have the `fieldsV1` format: `f:name` for a field, `k:{"name":"web"}` for a list item with these keys,
/// `v:"text"` for a set item. They are canonical, so equal elements are equal strings.
///
/// Upstream counterpart: `structured-merge-diff/fieldpath.Set`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Set {
    /// Elements at which a path ends.
    pub(super) members: BTreeSet<String>,
    /// Subsets below an element. None is empty.
    pub(super) children: BTreeMap<String, Self>,
}

impl Set {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// Adds the set below `step` unless it is empty.
    pub(super) fn add_child(&mut self, step: String, child: Self) {
        if !child.is_empty() {
            self.children.insert(step, child);
        }
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.members.extend(other.members.iter().cloned());
        for (step, child) in &other.children {
            let merged = both.children.get(step).map_or_else(|| child.clone(), |own| own.union(child));
            both.children.insert(step.clone(), merged);
        }
        both
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut common =
            Self { members: self.members.intersection(&other.members).cloned().collect(), ..Self::default() };
        for (step, child) in &self.children {
            if let Some(theirs) = other.children.get(step) {
                common.add_child(step.clone(), child.intersection(theirs));
            }
        }
        common
    }

    pub(super) fn difference(&self, other: &Self) -> Self {
        let mut rest =
            Self { members: self.members.difference(&other.members).cloned().collect(), ..Self::default() };
        for (step, child) in &self.children {
            let child =
                other.children.get(step).map_or_else(|| child.clone(), |minus| child.difference(minus));
            rest.add_child(step.clone(), child);
        }
        rest
    }

    /// Removes fields below which `other` has fields: the owner of a nested field also owns the enclosing object.
    pub(super) fn without_parents_in(&self, other: &Self) -> Self {
        let held = |step: &String| step.starts_with("f:") && other.children.contains_key(step);
        let mut rest = Self {
            members: self.members.iter().filter(|step| !held(step)).cloned().collect(),
            ..Self::default()
        };
        for (step, child) in &self.children {
            let child =
                other.children.get(step).map_or_else(|| child.clone(), |held| child.without_parents_in(held));
            rest.add_child(step.clone(), child);
        }
        rest
    }

    /// Removes a path and all paths below it.
    pub(super) fn remove(&mut self, path: &[&str]) {
        match path {
            [] => {}
            [last] => {
                self.members.remove(*last);
                self.children.remove(*last);
            }
            [first, rest @ ..] => {
                if let Some(child) = self.children.get_mut(*first) {
                    child.remove(rest);
                    if child.is_empty() {
                        self.children.remove(*first);
                    }
                }
            }
        }
    }

    /// Encodes the set as `fieldsV1`.
    pub(super) fn to_value(&self) -> Value {
        let mut map = Map::new();
        for step in &self.members {
            map.insert(step.clone(), Value::Object(Map::new()));
        }
        for (step, child) in &self.children {
            let mut value = child.to_value();
            if let (true, Some(members)) = (self.members.contains(step), value.as_object_mut()) {
                members.insert(".".to_owned(), Value::Object(Map::new()));
            }
            map.insert(step.clone(), value);
        }
        Value::Object(map)
    }

    /// Decodes `fieldsV1`. Returns `None` if it is invalid.
    pub(super) fn from_value(value: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (step, below) in value.as_object()? {
            if step == "." {
                continue;
            }
            let step = canonical(step)?;
            let map = below.as_object()?;
            if map.is_empty() || map.contains_key(".") {
                set.members.insert(step.clone());
            }
            set.add_child(step, Self::from_value(below)?);
        }
        Some(set)
    }

    /// All paths as in messages: `.spec.containers[name="web"].image`.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    fn collect(&self, prefix: &str, into: &mut Vec<String>) {
        let steps: BTreeSet<&String> = self.members.iter().chain(self.children.keys()).collect();
        for step in steps {
            let path = format!("{prefix}{}", display_step(step));
            if let Some(child) = self.children.get(step) {
                child.collect(&path, into);
            }
            if self.members.contains(step) {
                into.push(path);
            }
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
    format!("f:{name}")
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
