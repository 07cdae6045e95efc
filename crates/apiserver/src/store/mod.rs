//! Where objects are kept: one lock, one revision for every write, a bounded history, watchers.
//!
//! Upstream counterpart: `apiserver/pkg/storage` with etcd behind it and the watch cache before it.
//!
//! The store knows revisions and keys. It knows of Kubernetes only that an object has a resource, labels for
//! its watchers' selectors, a uid and owners. A revision is assigned and its event published in one critical
//! section, so a watcher can never see a gap (kine#759 is what happens otherwise). Nothing awaits under the
//! lock, and nothing is serialised or freed under it that need not be.

mod history;
mod list;
mod watcher;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
};

use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    ApiStatus, Object, Resource,
    json::{estimated_len, set},
};

use history::{Change, History};

pub use history::HistoryLimits;
pub use list::ObjectList;
pub use watcher::{WatchEvent, WatchStart, Watcher};

/// `namespace/name`, or the name alone for what is in no namespace. Lists are in the bytewise order of these.
pub(crate) type Key = Arc<str>;

/// The key of an object.
pub(crate) fn key(namespace: &str, name: &str) -> Key {
    if namespace.is_empty() { name.into() } else { format!("{namespace}/{name}").into() }
}

/// The keys of a namespace, or with an empty one all keys.
fn keys_in(namespace: &str) -> (Bound<String>, Bound<String>) {
    if namespace.is_empty() {
        (Bound::Unbounded, Bound::Unbounded)
    } else {
        // '0' is the character after '/'.
        (Bound::Included(format!("{namespace}/")), Bound::Excluded(format!("{namespace}0")))
    }
}

/// The objects, behind the lock. Cheap to clone: clones share everything.
#[derive(Clone)]
pub(crate) struct Store(Arc<Shared>);

struct Shared {
    state: RwLock<State>,
    /// The last revision of each resource, and of any; what wakes watchers.
    signals: Vec<watch::Sender<u64>>,
    any: watch::Sender<u64>,
}

/// What the lock protects. Guards of a commit see it by reference.
pub(crate) struct State {
    revision: u64,
    objects: Vec<BTreeMap<Key, Arc<Object>>>,
    uids: HashMap<Box<str>, (Resource, Key)>,
    /// Owner's uid → what it owns.
    dependents: HashMap<Box<str>, BTreeSet<(Resource, Key)>>,
    history: History,
}

/// What to do with an object, decided from its present state.
pub(crate) enum Decision {
    /// Leave it as it is.
    Keep,
    /// Store this.
    Put(Value),
    /// Remove it; this is its last state.
    Remove(Value),
}

/// What came of a decision.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing was written; this is the object as it is.
    Kept(Option<Arc<Object>>),
    /// Stored.
    Put(Arc<Object>),
    /// Removed; this is the last state, with the revision of the removal.
    Removed(Arc<Object>),
}

/// Whether a decision is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    Real,
    /// Say what would come of it.
    Dry,
}

impl Store {
    /// An empty store whose next write gets revision `revision + 1`.
    pub(crate) fn new(revision: u64, limits: HistoryLimits) -> Self {
        let resources = Resource::all().len();
        Self(Arc::new(Shared {
            state: RwLock::new(State {
                revision,
                objects: vec![BTreeMap::new(); resources],
                uids: HashMap::new(),
                dependents: HashMap::new(),
                history: History::new(revision, limits, resources),
            }),
            signals: (0..resources).map(|_| watch::Sender::new(revision)).collect(),
            any: watch::Sender::new(revision),
        }))
    }

    /// The revision of the newest write.
    pub(crate) fn revision(&self) -> u64 {
        self.0.state.read().revision
    }

    pub(crate) fn get(&self, resource: Resource, key: &str) -> Option<Arc<Object>> {
        self.0.state.read().get(resource, key).cloned()
    }

    pub(crate) fn by_uid(&self, uid: &str) -> Option<Arc<Object>> {
        let state = self.0.state.read();
        let (resource, key) = state.uids.get(uid)?;
        state.get(*resource, key).cloned()
    }

    pub(crate) fn dependents(&self, uid: &str) -> Vec<Arc<Object>> {
        let state = self.0.state.read();
        let keys = state.dependents.get(uid).into_iter().flatten();
        keys.filter_map(|(resource, key)| state.get(*resource, key).cloned()).collect()
    }

    /// Reads under the lock; `read` must be quick.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.0.state.read())
    }

    /// Changes one object, atomically: `decide` sees the present state and runs outside the lock, and again if
    /// somebody else changed the object meanwhile. `guard` runs inside the critical section of a real commit
    /// and can still refuse; it must be quick.
    pub(crate) fn update(
        &self,
        resource: Resource,
        key: &Key,
        commit: Commit,
        now: Timestamp,
        mut decide: impl FnMut(Option<&Arc<Object>>) -> Result<Decision, ApiStatus>,
        guard: impl Fn(&State) -> Result<(), ApiStatus>,
    ) -> Result<Outcome, ApiStatus> {
        loop {
            let old = self.get(resource, key);
            let (value, removed) = match decide(old.as_ref())? {
                Decision::Keep => return Ok(Outcome::Kept(old)),
                Decision::Put(value) => (value, false),
                Decision::Remove(value) => (value, true),
            };
            let size = estimated_len(&value);
            let outcome = |object| if removed { Outcome::Removed(object) } else { Outcome::Put(object) };
            if commit == Commit::Dry {
                self.read(&guard)?;
                let revision = old.as_ref().map_or(0, |old| old.revision());
                return Ok(outcome(Arc::new(Object::new(resource, value, revision, now, size))));
            }

            let mut state = self.0.state.write();
            let unchanged = match (state.get(resource, key), &old) {
                (Some(current), Some(old)) => Arc::ptr_eq(current, old),
                (None, None) => true,
                _ => false,
            };
            if !unchanged {
                continue;
            }
            guard(&state)?;
            let (object, forgotten) = state.apply(resource, key, old.clone(), value, removed, now, size);
            let revision = state.revision;
            // Woken before the lock is let go, so that signals come in the order of revisions.
            self.sender(Some(resource)).send_replace(revision);
            self.0.any.send_replace(revision);
            drop(state);
            drop(forgotten);
            return Ok(outcome(object));
        }
    }

    /// What wakes the watchers of one resource, or of all.
    fn sender(&self, resource: Option<Resource>) -> &watch::Sender<u64> {
        resource.and_then(|resource| self.0.signals.get(resource.index())).unwrap_or(&self.0.any)
    }
}

impl State {
    pub(crate) fn get(&self, resource: Resource, key: &str) -> Option<&Arc<Object>> {
        self.objects(resource)?.get(key)
    }

    /// The objects of `resource` in `namespace` (empty for all), in the order of their keys.
    pub(crate) fn iter(&self, resource: Resource, namespace: &str) -> impl Iterator<Item = &Arc<Object>> {
        let (from, to) = keys_in(namespace);
        let objects = self.objects(resource).into_iter();
        objects
            .flat_map(move |objects| objects.range::<str, _>((as_str(&from), as_str(&to))))
            .map(|(_, object)| object)
    }

    fn objects(&self, resource: Resource) -> Option<&BTreeMap<Key, Arc<Object>>> {
        self.objects.get(resource.index())
    }

    /// Swaps the object in or out, keeps the indexes, and records the event. Returns what history forgot, to
    /// be freed after the lock.
    #[expect(clippy::too_many_arguments, reason = "one critical section, called once")]
    fn apply(
        &mut self,
        resource: Resource,
        key: &Key,
        old: Option<Arc<Object>>,
        mut value: Value,
        removed: bool,
        now: Timestamp,
        size: usize,
    ) -> (Arc<Object>, Vec<Change>) {
        self.revision += 1;
        set(&mut value, &["metadata", "resourceVersion"], self.revision.to_string());
        let object = Arc::new(Object::new(resource, value, self.revision, now, size));

        self.index(resource, key, old.as_deref(), (!removed).then_some(&object));
        if let Some(objects) = self.objects.get_mut(resource.index()) {
            if removed {
                objects.remove(key);
            } else {
                objects.insert(Arc::clone(key), Arc::clone(&object));
            }
        }
        let change = Change {
            revision: self.revision,
            key: Arc::clone(key),
            old,
            object: Arc::clone(&object),
            removed,
        };
        (object, self.history.push(change))
    }

    fn index(&mut self, resource: Resource, key: &Key, old: Option<&Object>, new: Option<&Arc<Object>>) {
        let uid = |object: Option<&Object>| object.map(Object::uid).unwrap_or_default().to_owned();
        let new = new.map(Arc::as_ref);
        if uid(old) != uid(new) {
            self.uids.remove(uid(old).as_str());
            if let Some(new) = new {
                self.uids.insert(new.uid().into(), (resource, Arc::clone(key)));
            }
        }
        let owners = |object: Option<&Object>| -> BTreeSet<Box<str>> {
            object
                .into_iter()
                .flat_map(|object| object.owner_references().map(|owner| owner.uid.into()))
                .collect()
        };
        let (before, after) = (owners(old), owners(new));
        for gone in before.difference(&after) {
            if let Some(owned) = self.dependents.get_mut(gone) {
                owned.remove(&(resource, Arc::clone(key)));
                if owned.is_empty() {
                    self.dependents.remove(gone);
                }
            }
        }
        for added in after.difference(&before) {
            self.dependents.entry(added.clone()).or_default().insert((resource, Arc::clone(key)));
        }
    }
}

fn as_str(bound: &Bound<String>) -> Bound<&str> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

#[cfg(test)]
mod tests;
