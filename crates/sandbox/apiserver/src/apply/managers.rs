//! Decoded `metadata.managedFields`.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use super::{
    Changes, Conflicts,
    set::{self, Set},
};
use crate::json::str_at;

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
    /// The manager in a version of another kind.
    pub(super) fn in_version(self, api_version: &str) -> Self {
        Self { api_version: api_version.to_owned(), ..self }
    }

    /// `true` if both are the same manager. An applier remains the same when it applies another API version.
    pub(super) fn is(&self, other: &Self) -> bool {
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

/// Removes entries before others of the same manager, as upstream.
fn last_of_each(entries: Vec<Entry>) -> Vec<Entry> {
    let mut last: Vec<Entry> = Vec::new();
    for entry in entries.into_iter().rev() {
        if !last.iter().any(|later| later.manager.is(&entry.manager)) {
            last.push(entry);
        }
    }
    last.reverse();
    last
}

impl Managers {
    /// Reads a stored list.
    pub(super) fn read(list: Value) -> Self {
        let Value::Array(list) = list else { return Self::default() };
        let entries = list.into_iter().map(|mut entry| {
            let mut text = |key| match entry.get_mut(key).map(Value::take) {
                Some(Value::String(text)) => text,
                _ => String::new(),
            };
            let manager = Manager {
                name: text("manager"),
                applied: text("operation") == "Apply",
                api_version: text("apiVersion"),
                subresource: text("subresource"),
            };
            let time = text("time");
            let fields = match entry.get_mut("fieldsV1").map(Value::take) {
                Some(Value::Object(fields)) => fields,
                _ => Set::new(),
            };
            Entry { manager, time, fields }
        });
        let entries: Vec<Entry> = entries.collect();
        // An apply of a Scale adds an entry without a time beside that of the same manager.
        let has_two = entries.iter().any(|entry| entry.time.is_empty());
        Self(if has_two { last_of_each(entries) } else { entries })
    }

    /// Reads a list that a client sent. Returns `None` if an entry is invalid.
    pub(super) fn parse(mut list: Value) -> Option<Self> {
        /// Bound of work that is quadratic. Objects have at most 10 updaters and a few appliers.
        const MAX_ENTRIES: usize = 1000;
        if list.as_array()?.len() > MAX_ENTRIES {
            return None;
        }
        for entry in list.as_array_mut()? {
            let is_valid = matches!(str_at(entry, &["operation"]), "Apply" | "Update")
                && str_at(entry, &["fieldsType"]) == "FieldsV1"
                && !str_at(entry, &["apiVersion"]).is_empty();
            if !is_valid {
                return None;
            }
            if let Some(fields) = entry.get_mut("fieldsV1") {
                *fields = Value::Object(set::parse(fields)?);
            }
        }
        Some(Self(last_of_each(Self::read(list).0)))
    }

    /// Encodes the managers in upstream's order. Returns `None` if there are none.
    pub(super) fn encode(self) -> Option<Value> {
        let Self(mut entries) = self;
        entries.sort_by(|left, right| {
            let order = |entry: &Entry| (!entry.manager.applied, entry.time.clone());
            order(left).cmp(&order(right)).then_with(|| left.manager.cmp(&right.manager))
        });
        let encode = |Entry { manager, time, fields }| {
            let mut value = json!({
                "manager": manager.name,
                "operation": if manager.applied { "Apply" } else { "Update" },
                "apiVersion": manager.api_version,
                "fieldsType": "FieldsV1",
            });
            value["fieldsV1"] = Value::Object(fields);
            for (key, text) in [("time", time), ("subresource", manager.subresource)] {
                if !text.is_empty() {
                    value[key] = Value::String(text);
                }
            }
            value
        };
        (!entries.is_empty()).then(|| entries.into_iter().map(encode).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        let mut all = Set::new();
        self.0.iter().for_each(|entry| set::unite(&mut all, &entry.fields));
        all
    }

    /// `true` if a manager owns any of `fields`.
    pub(super) fn own_any(&self, fields: &Set) -> bool {
        self.0.iter().any(|entry| !set::intersection(&entry.fields, fields).is_empty())
    }

    /// Managers that own any of `fields`.
    pub(super) fn owners_of(&self, fields: &Set) -> Vec<Manager> {
        let owners = self.0.iter().filter(|entry| !set::intersection(&entry.fields, fields).is_empty());
        owners.map(|entry| entry.manager.clone()).collect()
    }

    /// Makes `owners` the only owners of fields, which a subresource writes.
    ///
    /// As upstream, an applier that owns them stays as it is. Other owners get an entry without a time, beside the one that
    /// they have.
    pub(super) fn give(&mut self, fields: &Set, mut owners: Vec<Manager>, api_version: &str) {
        self.0.retain_mut(|entry| {
            if set::intersection(&entry.fields, fields).is_empty() {
                return true;
            }
            let position = owners.iter().position(|owner| owner.applied && entry.manager.is(owner));
            if let Some(position) = position {
                owners.remove(position);
                return true;
            }
            set::subtract(&mut entry.fields, fields);
            !entry.fields.is_empty()
        });
        self.0.extend(owners.into_iter().map(|owner| Entry {
            manager: owner.in_version(api_version),
            time: String::new(),
            fields: fields.clone(),
        }));
    }

    /// Adds fields to a manager.
    pub(super) fn add(&mut self, manager: Manager, fields: Set, time: &str) {
        match self.find(&manager) {
            Some(entry) => {
                set::unite(&mut entry.fields, &fields);
                time.clone_into(&mut entry.time);
            }
            None => self.0.push(Entry { manager, time: time.to_owned(), fields }),
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

    /// Managers other than `applier` that own fields that are written, sorted by name.
    pub(super) fn owners(&self, applier: &Manager, changes: &mut Changes<'_>) -> Conflicts {
        let others = self.0.iter().filter(|entry| !entry.manager.is(applier));
        let mut owners: Conflicts = others
            .filter_map(|Entry { manager, fields, .. }| {
                let written = &changes.in_version(&manager.api_version)?.written;
                Some((manager.clone(), set::intersection(fields, written)))
            })
            .filter(|(_, common)| !common.is_empty())
            .collect();
        owners.sort_by(|(a, _), (b, _)| a.cmp(b));
        owners
    }

    /// Removes changed fields from all managers but `keeper`. Managers without fields are removed, and those whose version
    /// does not exist.
    pub(super) fn remove_from_others(&mut self, keeper: Option<&Manager>, changes: &mut Changes<'_>) {
        self.0.retain_mut(|Entry { manager, fields, .. }| {
            if keeper.is_some_and(|keeper| manager.is(keeper)) {
                return !fields.is_empty();
            }
            let Some(change) = changes.in_version(&manager.api_version) else { return false };
            set::subtract(fields, &change.written);
            set::subtract(fields, &change.removed);
            !fields.is_empty()
        });
    }

    /// Merges the oldest Update entries of each API version if there are too many.
    ///
    /// Upstream counterpart: `capManagersManager`.
    pub(super) fn cap_updaters(&mut self) {
        if self.0.len() <= MAX_UPDATERS {
            return;
        }
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
            self.add(bucket.clone(), entry.fields, &entry.time);
        }
    }
}
