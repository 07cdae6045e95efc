//! Decoded `metadata.managedFields`.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use super::{Conflicts, set::Set};
use crate::json::{at, str_at};

/// Maximum number of separate entries for Update operations.
const MAX_UPDATERS: usize = 10;
/// Manager of the merged older entries.
const ANCIENT: &str = "ancient-changes";

/// Identity of a field manager.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Manager {
    pub(super) name: String,
    /// `true` for operation Apply, `false` for operation Update.
    pub(super) applied: bool,
    pub(super) api_version: String,
    /// Subresource, or empty.
    pub(super) subresource: String,
}

impl Manager {
    /// `true` if both are the same manager. An applier remains the same when it applies another API version.
    fn is(&self, other: &Self) -> bool {
        self.name == other.name
            && self.applied == other.applied
            && self.subresource == other.subresource
            && (self.applied || self.api_version == other.api_version)
    }
}

/// Formats the manager as in conflict messages.
impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        if self.applied { Ok(()) } else { write!(f, " using {}", self.api_version) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    manager: Manager,
    /// Time of the last change, or empty.
    time: String,
    fields: Set,
}

/// Managers of an object with the fields that each owns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Managers(Vec<Entry>);

impl Managers {
    /// Decodes `metadata.managedFields`. Returns `None` if an entry is invalid.
    pub(super) fn decode(list: &Value) -> Option<Self> {
        let entries = list.as_array()?.iter().map(|entry| {
            let applied = match str_at(entry, &["operation"]) {
                "Apply" => true,
                "Update" => false,
                _ => return None,
            };
            let text = |key| str_at(entry, &[key]).to_owned();
            let manager = Manager {
                name: text("manager"),
                applied,
                api_version: text("apiVersion"),
                subresource: text("subresource"),
            };
            let fields = at(entry, &["fieldsV1"]).map_or_else(|| Some(Set::default()), Set::from_value)?;
            Some(Entry { manager, time: text("time"), fields })
        });
        let mut managers = Self::default();
        for entry in entries {
            let entry = entry?;
            managers.add(entry.manager, &entry.fields, &entry.time);
        }
        Some(managers)
    }

    /// Encodes the managers in upstream's order. Returns `None` if there are none.
    pub(super) fn encode(&self) -> Option<Value> {
        let mut entries: Vec<&Entry> = self.0.iter().filter(|entry| !entry.fields.is_empty()).collect();
        let order = |entry: &Entry| (!entry.manager.applied, entry.time.clone(), entry.manager.clone());
        entries.sort_by_cached_key(|entry| order(entry));
        let list: Vec<Value> = entries
            .into_iter()
            .map(|Entry { manager, time, fields }| {
                let mut value = json!({
                    "manager": manager.name,
                    "operation": if manager.applied { "Apply" } else { "Update" },
                    "apiVersion": manager.api_version,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": fields.to_value(),
                });
                for (key, text) in [("time", time), ("subresource", &manager.subresource)] {
                    if !text.is_empty() {
                        value[key] = json!(text);
                    }
                }
                value
            })
            .collect();
        (!list.is_empty()).then_some(Value::Array(list))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Entries without times, for comparison.
    pub(super) fn without_times(mut self) -> Self {
        self.0.iter_mut().for_each(|entry| entry.time.clear());
        self.0.sort_by(|a, b| a.manager.cmp(&b.manager));
        self
    }

    fn find(&mut self, manager: &Manager) -> Option<&mut Entry> {
        self.0.iter_mut().find(|entry| entry.manager.is(manager))
    }

    /// Fields of a manager.
    pub(super) fn fields(&self, manager: &Manager) -> Option<&Set> {
        self.0.iter().find(|entry| entry.manager.is(manager)).map(|entry| &entry.fields)
    }

    /// Fields of all managers.
    pub(super) fn all_fields(&self) -> Set {
        self.0.iter().fold(Set::default(), |all, entry| all.union(&entry.fields))
    }

    /// Adds fields to a manager.
    pub(super) fn add(&mut self, manager: Manager, fields: &Set, time: &str) {
        match self.find(&manager) {
            Some(entry) => {
                entry.fields = entry.fields.union(fields);
                time.clone_into(&mut entry.time);
            }
            None => self.0.push(Entry { manager, time: time.to_owned(), fields: fields.clone() }),
        }
    }

    /// Replaces the fields of a manager. The time of its last change stays the same.
    pub(super) fn replace(&mut self, manager: Manager, fields: Set) {
        let time = self.find(&manager).map(|entry| std::mem::take(&mut entry.time)).unwrap_or_default();
        self.0.retain(|entry| !entry.manager.is(&manager));
        self.0.push(Entry { manager, time, fields });
    }

    /// Sets the time of a manager's last change.
    pub(super) fn set_time(&mut self, manager: &Manager, time: &str) {
        if let Some(entry) = self.find(manager) {
            time.clone_into(&mut entry.time);
        }
    }

    /// Managers other than `applier` that own any of `fields`, sorted by name.
    pub(super) fn owners(&self, applier: &Manager, fields: &Set) -> Conflicts {
        let others = self.0.iter().filter(|entry| !entry.manager.is(applier));
        let mut owners: Conflicts = others
            .map(|entry| (entry.manager.clone(), entry.fields.intersection(fields)))
            .filter(|(_, common)| !common.is_empty())
            .collect();
        owners.sort_by(|(a, _), (b, _)| a.cmp(b));
        owners
    }

    /// Removes fields from all managers but `keeper`. Managers without fields are removed.
    pub(super) fn remove_from_others(&mut self, keeper: Option<&Manager>, fields: &Set) {
        for entry in &mut self.0 {
            if keeper.is_none_or(|keeper| !entry.manager.is(keeper)) {
                entry.fields = entry.fields.difference(fields);
            }
        }
        self.0.retain(|entry| !entry.fields.is_empty());
    }

    /// Merges the oldest Update entries of each API version if there are too many.
    ///
    /// Upstream counterpart: `capManagersManager`.
    pub(super) fn cap_updaters(&mut self) {
        let mut updaters: Vec<(String, Manager)> = self
            .0
            .iter()
            .filter(|entry| !entry.manager.applied)
            .map(|entry| (entry.time.clone(), entry.manager.clone()))
            .collect();
        let mut count = updaters.len();
        updaters.sort();
        let mut firsts: BTreeMap<String, Manager> = BTreeMap::new();
        for (_, manager) in updaters {
            if count <= MAX_UPDATERS {
                return;
            }
            let bucket = Manager {
                name: ANCIENT.to_owned(),
                applied: false,
                api_version: manager.api_version.clone(),
                subresource: String::new(),
            };
            let Some(first) = firsts.get(&manager.api_version).cloned() else {
                firsts.insert(manager.api_version.clone(), manager);
                continue;
            };
            for old in [first, manager] {
                self.fold(&old, &bucket);
            }
            count -= 1;
        }
    }

    fn fold(&mut self, old: &Manager, bucket: &Manager) {
        if old.is(bucket) {
            return;
        }
        if let Some(index) = self.0.iter().position(|entry| entry.manager.is(old)) {
            let entry = self.0.remove(index);
            self.add(bucket.clone(), &entry.fields, &entry.time);
        }
    }
}
