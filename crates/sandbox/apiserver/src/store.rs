//! Storage of objects: one lock, a revision per write, a bounded history, watchers.
//!
//! Upstream counterpart: `apiserver/pkg/storage` (etcd storage and watch cache).
//!
//! A revision is assigned and its event is published in one critical section, so watchers see no gaps (see
//! kine#759). No code awaits while the lock is held. Serialization and deallocation happen outside of it.
//!
//! The store is independent of the kinds. Of an object it reads the resource, key, labels, UID and owner references.
//!
//! Objects are stored as compact JSON text ([`Version`]), of which parts are shared between objects and between versions.
//! Readers get an [`Object`], which decodes on demand. The decoded forms of [recent](Recent) objects are kept.
//! With a [`Disk`] a write is durable before it is published ([`durable`]). The program implements it.

mod cache;
mod durable;
mod history;
mod list;
mod recent;
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
    encoded::SharedTexts,
    json::{remove, set},
    object::Version,
};

use durable::Durable;
use history::{Change, History};
use recent::Recent;
use signal::Signal;

pub(crate) use cache::WatchCache;
pub use cache::WatchCacheLag;
pub use durable::{Disk, Row};
pub use history::HistoryLimits;
pub use list::ObjectList;
pub(crate) use list::check_continue;
pub use watcher::{WatchEvent, WatchStart, Watcher};

/// Maximum number of attempts of an update.
///
/// An attempt fails only if another write of the same object succeeds. The limit exceeds the number of concurrent
/// writes that kube-apiserver admits by default (200, `--max-mutating-requests-inflight`).
const MAX_ATTEMPTS: usize = 256;

const RESOURCE_VERSION: &[&str] = &["metadata", "resourceVersion"];

/// `namespace/name`, or `name` for cluster-scoped objects. Lists are in bytewise order of keys.
pub(crate) type Key = Arc<str>;

/// Returns the key of an object.
pub(crate) fn key(namespace: &str, name: &str) -> Key {
    if namespace.is_empty() { name.into() } else { format!("{namespace}/{name}").into() }
}

/// Returns the key of a stored object.
pub(crate) fn key_of(object: &Object) -> Key {
    key(object.namespace(), object.name())
}

/// Returns the range of keys of a namespace. The range of `""` contains all keys.
fn keys_in(namespace: &str) -> (Bound<String>, Bound<String>) {
    if namespace.is_empty() {
        (Bound::Unbounded, Bound::Unbounded)
    } else {
        // '0' follows '/' in ASCII.
        (Bound::Included(format!("{namespace}/")), Bound::Excluded(format!("{namespace}0")))
    }
}

/// Store of objects. Clones share the state.
#[derive(Clone)]
pub(crate) struct Store(Arc<Shared>);

struct Shared {
    state: RwLock<State>,
    /// Wakes the watchers of a built-in resource, in the order of resource indexes.
    signals: Vec<Signal>,
    /// Wakes the watchers of all resources and of custom resources.
    any: Signal,
    /// Disk and queue of writes. `None` for a store in memory.
    durable: Option<Durable>,
    texts: SharedTexts,
    recent: Arc<Recent>,
}

/// Objects of a store at one time, in the order of their revisions.
#[derive(Clone)]
pub struct Backup(Vec<Arc<Version>>);

impl std::fmt::Debug for Backup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backup").field("objects", &self.0.len()).finish()
    }
}

/// State protected by the lock.
pub(crate) struct State {
    revision: u64,
    /// Number of restored backups.
    restores: u64,
    objects: Vec<BTreeMap<Key, Arc<Version>>>,
    uids: HashMap<Arc<str>, (Resource, Key)>,
    /// Owner's UID → keys of its dependents.
    dependents: HashMap<Box<str>, BTreeSet<(Resource, Key)>>,
    history: History,
    recent: Arc<Recent>,
}

/// Change of an object, decided from its current state.
pub(crate) enum Decision {
    /// Leaves the object unchanged.
    Keep,
    /// Stores this value.
    Put(Value),
    /// Removes the object. This is its last state.
    Remove(Value),
}

/// Result of an update.
#[derive(Debug)]
pub(crate) enum UpdateResult {
    /// Nothing was written. Contains the current object, if any.
    Unchanged(Option<Arc<Object>>),
    /// The object was stored.
    Put(Arc<Object>),
    /// The object was removed. Contains its last state with the revision of the removal.
    Removed(Arc<Object>),
}

/// Mode of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    Real,
    /// Computes the result without storing it.
    Dry,
}

impl Store {
    /// Creates an empty store in memory. The first write gets revision `revision + 1`.
    pub(crate) fn new(revision: u64, limits: HistoryLimits) -> Self {
        Self::with(State::new(revision, limits), SharedTexts::default(), None)
    }

    /// Opens a store on `disk`, which contains `rows`. The history starts empty: older revisions are expired.
    ///
    /// # Errors
    ///
    /// Returns the name of an invalid row.
    pub(crate) fn open(
        disk: Box<dyn Disk>,
        rows: Vec<Row>,
        revision: u64,
        limits: HistoryLimits,
    ) -> Result<Self, String> {
        let texts = SharedTexts::default();
        let mut state = State::new(revision, limits);
        for version in durable::decode(rows, &texts)? {
            state.restore(version);
        }
        let durable = Durable::new(&state, disk);
        Ok(Self::with(state, texts, Some(durable)))
    }

    fn with(state: State, texts: SharedTexts, durable: Option<Durable>) -> Self {
        Self(Arc::new(Shared {
            recent: Arc::clone(&state.recent),
            texts,
            state: RwLock::new(state),
            signals: Resource::all().map(|_| Signal::default()).collect(),
            any: Signal::default(),
            durable,
        }))
    }

    /// `true` if writes wait for a disk.
    pub(crate) fn is_durable(&self) -> bool {
        self.0.durable.is_some()
    }

    /// Revision of the latest write.
    pub(crate) fn revision(&self) -> u64 {
        self.0.state.read().revision
    }

    pub(crate) fn get(&self, resource: Resource, key: &str) -> Option<Arc<Object>> {
        self.0.state.read().get(resource, key)
    }

    pub(crate) fn by_uid(&self, uid: &str) -> Option<Arc<Object>> {
        let state = self.0.state.read();
        let (resource, key) = state.uids.get(uid)?;
        state.get(*resource, key)
    }

    pub(crate) fn dependents(&self, uid: &str) -> Vec<Arc<Object>> {
        let state = self.0.state.read();
        let keys = state.dependents.get(uid).into_iter().flatten();
        keys.filter_map(|(resource, key)| state.version(*resource, key))
            .map(|version| state.recent.peek(version))
            .collect()
    }

    /// Calls `read` under the lock. `read` must be short.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.0.state.read())
    }

    /// Changes an object atomically.
    ///
    /// `decide` receives the current version and runs outside the lock. It is called again if the object was changed
    /// concurrently. `guard` runs under the lock before the write and may reject it. It must be short.
    ///
    /// Upstream counterpart: `storage.Interface.GuaranteedUpdate`. DEVIATION: the number of attempts is limited. Upstream
    /// retries until the request times out.
    ///
    /// # Errors
    ///
    /// Those of `decide` and `guard`, 409 after [`MAX_ATTEMPTS`] conflicts, 500 if the disk fails.
    pub(crate) fn update(
        &self,
        resource: Resource,
        key: &Key,
        commit: Commit,
        now: Timestamp,
        mut decide: impl FnMut(Option<&Arc<Object>>) -> Result<Decision, ApiStatus>,
        guard: impl Fn(&State) -> Result<(), ApiStatus>,
    ) -> Result<UpdateResult, ApiStatus> {
        for _ in 0..MAX_ATTEMPTS {
            let old = self.get(resource, key);
            let (mut value, removed) = match decide(old.as_ref())? {
                Decision::Keep => return Ok(UpdateResult::Unchanged(old)),
                Decision::Put(value) => (value, false),
                Decision::Remove(value) => (value, true),
            };
            let result =
                |object| if removed { UpdateResult::Removed(object) } else { UpdateResult::Put(object) };
            let old = old.as_ref().map(|old| old.version());
            // The revision of a write is not known before it. A created object has none in a dry run.
            let revision = old.map_or(0, |old| old.revision());
            if commit == Commit::Dry && old.is_none() {
                remove(&mut value, RESOURCE_VERSION);
            } else {
                set(&mut value, RESOURCE_VERSION, revision.to_string());
            }
            let version = Version::new(resource, key, &value, old.map(AsRef::as_ref), now, &self.0.texts);
            if commit == Commit::Dry {
                self.read(&guard)?;
                let version = Arc::new(version.with_revision(revision));
                return Ok(result(Arc::new(Object::with_value(version, value))));
            }
            let write = Write { resource, key, old: old.cloned(), version, value, removed };
            let written = match &self.0.durable {
                None => self.0.commit(write, &guard)?,
                Some(durable) => durable.commit(&self.0, write, &guard)?,
            };
            if let Some(object) = written {
                return Ok(result(object));
            }
        }
        let name = key.rsplit('/').next().unwrap_or_default();
        Err(ApiStatus::modified(resource, name))
    }

    /// Returns a copy of all objects.
    pub(crate) fn back_up(&self) -> Backup {
        let state = self.0.state.read();
        let mut objects: Vec<_> = state.objects.iter().flat_map(BTreeMap::values).cloned().collect();
        objects.sort_by_key(|version| version.revision());
        Backup(objects)
    }

    /// Replaces all objects with those of `backup`, with revisions from 1 on.
    pub(crate) fn restore_backup(&self, backup: &Backup) {
        let mut state = self.0.state.write();
        let revision = backup.0.len() as u64;
        let mut restored = State::new(revision, state.history.limits());
        restored.restores = state.restores + 1;
        restored.recent = Arc::clone(&state.recent);
        for (version, revision) in backup.0.iter().zip(1..) {
            restored.restore(Arc::new(Version::clone(version).with_revision(revision)));
        }
        let replaced = std::mem::replace(&mut *state, restored);
        self.0.signals.iter().chain([&self.0.any]).for_each(Signal::send);
        drop(state);
        drop(replaced);
    }

    /// Returns the first `limit` objects of `resource` in `namespace` (empty for all) whose keys follow `after`.
    pub(crate) fn scan(
        &self,
        resource: Resource,
        namespace: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Vec<Arc<Object>> {
        let (from, to) = keys_in(namespace);
        let from = after.map_or(from, |after| Bound::Excluded(after.to_string()));
        let state = self.0.state.read();
        let objects = state.versions(resource).into_iter();
        let range = objects.flat_map(|objects| objects.range::<str, _>((as_str(&from), as_str(&to))));
        range.take(limit).map(|(_, version)| state.recent.peek(version)).collect()
    }
}

/// A write based on the version `old`.
struct Write<'a> {
    resource: Resource,
    key: &'a Key,
    old: Option<Arc<Version>>,
    /// Encoded `value`, without its revision.
    version: Version,
    value: Value,
    removed: bool,
}

impl Shared {
    /// Performs a write. Returns `None` if the object is no longer at version `old`.
    fn commit(
        &self,
        write: Write<'_>,
        guard: &impl Fn(&State) -> Result<(), ApiStatus>,
    ) -> Result<Option<Arc<Object>>, ApiStatus> {
        let mut state = self.state.write();
        if !state.is_current(&write) {
            return Ok(None);
        }
        guard(&state)?;
        let (change, object) = state.next_change(write);
        // Before watchers are woken, so that they share the decoded form.
        self.recent.insert(&object);
        let forgotten = self.publish(&mut state, change);
        drop(state);
        drop(forgotten);
        Ok(Some(object))
    }

    /// Installs a change and wakes watchers. Returns the evicted history, to be deallocated after the lock is released.
    fn publish(&self, state: &mut State, change: Change) -> Vec<Change> {
        let resource = change.resource();
        let forgotten = state.install(change);
        // Sent under the lock, so that signals are in the order of revisions.
        if let Some(signal) = self.signals.get(resource.index()) {
            signal.send();
        }
        self.any.send();
        forgotten
    }

    /// Returns the signal for watchers of a resource, or with `None` of all resources.
    fn signal(&self, resource: Option<Resource>) -> &Signal {
        resource.and_then(|resource| self.signals.get(resource.index())).unwrap_or(&self.any)
    }
}

impl State {
    fn new(revision: u64, limits: HistoryLimits) -> Self {
        let resources = Resource::all().len();
        Self {
            revision,
            restores: 0,
            objects: vec![BTreeMap::new(); resources],
            uids: HashMap::new(),
            dependents: HashMap::new(),
            history: History::new(revision, limits, resources),
            recent: Arc::default(),
        }
    }

    /// Copies the state without its history.
    fn without_history(&self) -> Self {
        let none = HistoryLimits { events: 0, bytes: 0 };
        Self {
            revision: self.revision,
            restores: self.restores,
            objects: self.objects.clone(),
            uids: self.uids.clone(),
            dependents: self.dependents.clone(),
            history: History::new(self.revision, none, self.objects.len()),
            recent: Arc::clone(&self.recent),
        }
    }

    pub(crate) fn get(&self, resource: Resource, key: &str) -> Option<Arc<Object>> {
        Some(self.recent.get(self.version(resource, key)?))
    }

    fn version(&self, resource: Resource, key: &str) -> Option<&Arc<Version>> {
        self.versions(resource)?.get(key)
    }

    /// Iterates over the objects of `resource` in `namespace` (empty for all) in key order.
    pub(crate) fn iter(&self, resource: Resource, namespace: &str) -> impl Iterator<Item = Arc<Object>> {
        let (from, to) = keys_in(namespace);
        let versions = self.versions(resource).into_iter();
        versions
            .flat_map(move |versions| versions.range::<str, _>((as_str(&from), as_str(&to))))
            .map(|(_, version)| self.recent.peek(version))
    }

    fn versions(&self, resource: Resource) -> Option<&BTreeMap<Key, Arc<Version>>> {
        self.objects.get(resource.index())
    }

    /// `true` if the object is still at the version that the write is based on.
    fn is_current(&self, write: &Write<'_>) -> bool {
        match (self.version(write.resource, write.key), &write.old) {
            (Some(current), Some(old)) => Arc::ptr_eq(current, old),
            (None, None) => true,
            _ => false,
        }
    }

    /// Returns the change that `write` makes to the current state, and the new version of the object.
    fn next_change(&self, write: Write<'_>) -> (Change, Arc<Object>) {
        let Write { old, version, mut value, removed, .. } = write;
        let revision = self.revision + 1;
        set(&mut value, RESOURCE_VERSION, revision.to_string());
        let version = Arc::new(version.with_revision(revision));
        let object = Arc::new(Object::with_value(Arc::clone(&version), value));
        (Change { old, object: version, removed }, object)
    }

    /// Applies a change to objects, indexes and history. Returns the evicted history.
    fn install(&mut self, change: Change) -> Vec<Change> {
        self.revision = change.revision();
        let new = (!change.removed).then_some(&*change.object);
        self.index(change.old.as_deref(), new);
        let objects = self.versions_mut(change.resource());
        if change.removed {
            objects.remove(change.object.key());
        } else {
            objects.insert(Arc::clone(change.object.key()), Arc::clone(&change.object));
        }
        self.history.push(change)
    }

    /// Inserts an object read from disk, without an event.
    fn restore(&mut self, version: Arc<Version>) {
        self.index(None, Some(&version));
        self.versions_mut(version.resource()).insert(Arc::clone(version.key()), version);
    }

    /// Returns the objects of a resource. The first object of a custom resource extends the table.
    fn versions_mut(&mut self, resource: Resource) -> &mut BTreeMap<Key, Arc<Version>> {
        let index = resource.index();
        if index >= self.objects.len() {
            self.objects.resize_with(index + 1, BTreeMap::new);
        }
        &mut self.objects[index]
    }

    /// All resources that have or had objects, and all built-in resources.
    fn resources(&self) -> Vec<Resource> {
        let mut resources: Vec<Resource> = (0..self.objects.len()).map(Resource::from_index).collect();
        // Indexes of custom resources depend on what else runs in the process.
        resources.sort_unstable();
        resources
    }

    fn index(&mut self, old: Option<&Version>, new: Option<&Version>) {
        let Some((resource, key)) = new.or(old).map(|version| (version.resource(), version.key())) else {
            return;
        };
        let uid = |version: Option<&Version>| version.map(|version| Arc::clone(&version.index().uid));
        let (old_uid, new_uid) = (uid(old), uid(new));
        if old_uid != new_uid {
            if let Some(old_uid) = old_uid {
                self.uids.remove(&old_uid);
            }
            if let Some(new_uid) = new_uid {
                self.uids.insert(new_uid, (resource, Arc::clone(key)));
            }
        }
        let owners = |version: Option<&Version>| -> BTreeSet<Box<str>> {
            version
                .into_iter()
                .flat_map(|version| version.index().owners().map(|(uid, _)| uid.into()))
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
