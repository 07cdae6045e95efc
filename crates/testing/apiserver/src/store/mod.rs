//! Where objects are kept: one lock, one revision for every write, a bounded history, watchers.
//!
//! Upstream counterpart: `apiserver/pkg/storage` with etcd behind it and the watch cache before it.
//!
//! The store knows revisions and keys. It knows of Kubernetes only that an object has a resource, labels for
//! its watchers' selectors, a uid and owners. A revision is assigned and its event published in one critical
//! section, so a watcher can never see a gap (kine#759 is what happens otherwise). Nothing awaits under the
//! lock, and nothing is serialised or freed under it that need not be.
//!
//! With a [`Disk`] a write is on it before anybody sees it ([`durable`]); without, none of that costs anything.

mod cache;
mod disk;
mod durable;
mod history;
mod list;
mod signal;
mod watcher;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
};

use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::Value;

use crate::{
    ApiStatus, Object, Resource,
    json::{estimated_len, set},
};

use durable::Durable;
use history::{Change, History};
use signal::Signal;

pub(crate) use cache::WatchCache;
pub use cache::WatchCacheLag;
pub use disk::DataError;
pub(crate) use disk::Disk;
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
    signals: Vec<Signal>,
    any: Signal,
    /// What stands between a write and its publication, if writes are to outlast the process.
    durable: Option<Durable>,
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
    /// An empty store in memory whose next write gets revision `revision + 1`.
    pub(crate) fn new(revision: u64, limits: HistoryLimits) -> Self {
        Self::with(State::new(revision, limits), None)
    }

    /// A store with what `disk` holds, whose writes are on the disk before anybody sees them. What happened
    /// before is not remembered: who asks for older revisions must start over.
    ///
    /// # Errors
    ///
    /// When the disk cannot be read, or holds what was not put there by a store.
    pub(crate) fn open(mut disk: Disk, revision: u64, limits: HistoryLimits) -> Result<Self, DataError> {
        let (last, objects) = disk.load()?;
        let mut state = State::new(revision.max(last), limits);
        for (key, object) in objects {
            state.restore(key, object);
        }
        let durable = Durable::new(&state, disk);
        Ok(Self::with(state, Some(durable)))
    }

    fn with(state: State, durable: Option<Durable>) -> Self {
        Self(Arc::new(Shared {
            state: RwLock::new(state),
            signals: Resource::all().map(|_| Signal::default()).collect(),
            any: Signal::default(),
            durable,
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

            let write = Write { resource, key, old, value, removed, now, size };
            let written = match &self.0.durable {
                None => self.0.commit(write, &guard)?,
                Some(durable) => durable.commit(&self.0, write, &guard)?,
            };
            if let Some(object) = written {
                return Ok(outcome(object));
            }
        }
    }
}

/// A write, decided from the state `old`.
struct Write<'a> {
    resource: Resource,
    key: &'a Key,
    old: Option<Arc<Object>>,
    value: Value,
    removed: bool,
    now: Timestamp,
    size: usize,
}

impl Shared {
    /// Carries out a write; `None` if somebody else changed the object meanwhile.
    fn commit(
        &self,
        write: Write<'_>,
        guard: &impl Fn(&State) -> Result<(), ApiStatus>,
    ) -> Result<Option<Arc<Object>>, ApiStatus> {
        let mut state = self.state.write();
        if !state.is_still_as_read(&write) {
            return Ok(None);
        }
        guard(&state)?;
        let change = state.next_change(write);
        let object = Arc::clone(&change.object);
        let forgotten = self.publish(&mut state, change);
        drop(state);
        drop(forgotten);
        Ok(Some(object))
    }

    /// Makes a change seen. Returns what history forgot, to be freed after the lock.
    fn publish(&self, state: &mut State, change: Change) -> Vec<Change> {
        let resource = change.resource();
        let forgotten = state.install(change);
        // Woken before the lock is let go, so that signals come in the order of revisions.
        self.signal(Some(resource)).send();
        self.any.send();
        forgotten
    }

    /// What wakes the watchers of one resource, or of all.
    fn signal(&self, resource: Option<Resource>) -> &Signal {
        resource.and_then(|resource| self.signals.get(resource.index())).unwrap_or(&self.any)
    }
}

impl State {
    fn new(revision: u64, limits: HistoryLimits) -> Self {
        let resources = Resource::all().len();
        Self {
            revision,
            objects: vec![BTreeMap::new(); resources],
            uids: HashMap::new(),
            dependents: HashMap::new(),
            history: History::new(revision, limits, resources),
        }
    }

    /// The same objects, without history.
    fn without_history(&self) -> Self {
        let none = HistoryLimits { events: 0, bytes: 0 };
        Self {
            revision: self.revision,
            objects: self.objects.clone(),
            uids: self.uids.clone(),
            dependents: self.dependents.clone(),
            history: History::new(self.revision, none, self.objects.len()),
        }
    }

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

    /// Whether the object is what it was when the write was decided.
    fn is_still_as_read(&self, write: &Write<'_>) -> bool {
        match (self.get(write.resource, write.key), &write.old) {
            (Some(current), Some(old)) => Arc::ptr_eq(current, old),
            (None, None) => true,
            _ => false,
        }
    }

    /// What comes next if `write` is carried out now.
    fn next_change(&self, write: Write<'_>) -> Change {
        let Write { resource, key, old, mut value, removed, now, size } = write;
        let revision = self.revision + 1;
        set(&mut value, &["metadata", "resourceVersion"], revision.to_string());
        let object = Arc::new(Object::new(resource, value, revision, now, size));
        Change { revision, key: Arc::clone(key), old, object, removed }
    }

    /// Swaps the object in or out, keeps the indexes, and records the event. Returns what history forgot.
    fn install(&mut self, change: Change) -> Vec<Change> {
        self.revision = change.revision;
        let resource = change.resource();
        let new = (!change.removed).then_some(&change.object);
        self.index(resource, &change.key, change.old.as_deref(), new);
        if let Some(objects) = self.objects.get_mut(resource.index()) {
            if change.removed {
                objects.remove(&change.key);
            } else {
                objects.insert(Arc::clone(&change.key), Arc::clone(&change.object));
            }
        }
        self.history.push(change)
    }

    /// Puts an object where it was before a restart, without an event.
    fn restore(&mut self, key: Key, object: Arc<Object>) {
        let resource = object.resource();
        self.index(resource, &key, None, Some(&object));
        if let Some(objects) = self.objects.get_mut(resource.index()) {
            objects.insert(key, object);
        }
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
