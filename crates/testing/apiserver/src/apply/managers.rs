//! `metadata.managedFields`, decoded.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use super::{Conflicts, set::Set};
use crate::json::{at, str_at};

/// How many managers that do not apply are remembered one by one.
const MAX_UPDATERS: usize = 10;
/// Stands for the older ones.
const ANCIENT: &str = "ancient-changes";

/// Who owns fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Manager {
    pub(super) name: String,
    /// By applying, rather than by any other write.
    pub(super) applied: bool,
    pub(super) api_version: String,
    /// Or empty.
    pub(super) subresource: String,
}

impl Manager {
    /// Whether both are one manager. One that applies stays itself when it changes the version it applies.
    fn is(&self, other: &Self) -> bool {
        self.name == other.name
            && self.applied == other.applied
            && self.subresource == other.subresource
            && (self.applied || self.api_version == other.api_version)
    }
}

/// As messages about conflicts have it.
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
    /// Of the last change, or empty.
    time: String,
    fields: Set,
}

/// All managers of an object, with what each owns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Managers(Vec<Entry>);

impl Managers {
    /// Reads `metadata.managedFields`; `None` if something in it cannot be read.
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

    /// The JSON, in upstream's order; `None` if nobody owns anything.
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

    /// What is left to compare when times do not matter.
    pub(super) fn without_times(mut self) -> Self {
        self.0.iter_mut().for_each(|entry| entry.time.clear());
        self.0.sort_by(|a, b| a.manager.cmp(&b.manager));
        self
    }

    fn find(&mut self, manager: &Manager) -> Option<&mut Entry> {
        self.0.iter_mut().find(|entry| entry.manager.is(manager))
    }

    /// What a manager owns.
    pub(super) fn fields(&self, manager: &Manager) -> Option<&Set> {
        self.0.iter().find(|entry| entry.manager.is(manager)).map(|entry| &entry.fields)
    }

    /// What anybody owns.
    pub(super) fn all_fields(&self) -> Set {
        self.0.iter().fold(Set::default(), |all, entry| all.union(&entry.fields))
    }

    /// Gives fields to a manager, besides what it has.
    pub(super) fn add(&mut self, manager: Manager, fields: &Set, time: &str) {
        match self.find(&manager) {
            Some(entry) => {
                entry.fields = entry.fields.union(fields);
                time.clone_into(&mut entry.time);
            }
            None => self.0.push(Entry { manager, time: time.to_owned(), fields: fields.clone() }),
        }
    }

    /// Gives fields to a manager, instead of what it has. The time of its last change stays.
    pub(super) fn replace(&mut self, manager: Manager, fields: Set) {
        let time = self.find(&manager).map(|entry| std::mem::take(&mut entry.time)).unwrap_or_default();
        self.0.retain(|entry| !entry.manager.is(&manager));
        self.0.push(Entry { manager, time, fields });
    }

    /// Notes that a manager has changed something now.
    pub(super) fn set_time(&mut self, manager: &Manager, time: &str) {
        if let Some(entry) = self.find(manager) {
            time.clone_into(&mut entry.time);
        }
    }

    /// Who, besides `applier`, owns some of `fields`; by name.
    pub(super) fn owners(&self, applier: &Manager, fields: &Set) -> Conflicts {
        let others = self.0.iter().filter(|entry| !entry.manager.is(applier));
        let mut owners: Conflicts = others
            .map(|entry| (entry.manager.clone(), entry.fields.intersection(fields)))
            .filter(|(_, common)| !common.is_empty())
            .collect();
        owners.sort_by(|(a, _), (b, _)| a.cmp(b));
        owners
    }

    /// Takes fields from all but `keeper`, and forgets those who have none left.
    pub(super) fn take_from_others(&mut self, keeper: Option<&Manager>, fields: &Set) {
        for entry in &mut self.0 {
            if keeper.is_none_or(|keeper| !entry.manager.is(keeper)) {
                entry.fields = entry.fields.difference(fields);
            }
        }
        self.0.retain(|entry| !entry.fields.is_empty());
    }

    /// Puts the oldest of too many managers together, one entry per version.
    ///
    /// Upstream counterpart: `capManagersManager`.
    pub(super) fn cap(&mut self) {
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
