use std::{collections::BTreeMap, fmt, sync::Arc};

use kcm_meta::{Object, ObjectKey};
use parking_lot::Mutex;

use crate::handler::{Deleted, EventHandler};

/// Call of an [`EventHandler`].
///
/// Displays as verb, key and versions: `add ns/name@1 (initial)`, `update ns/name@1->2`, `update ns/name@1->2 (recreated)`
/// if the UIDs differ, `delete ns/name@3`, `delete ns/name@2 (final state unknown)`.
#[derive(Debug)]
pub enum Recorded<K> {
    /// [`EventHandler::on_add`]
    Added {
        /// Object.
        object: Arc<K>,
        /// `true` if the object existed before the handler was added or the informer was started.
        initial: bool,
    },
    /// [`EventHandler::on_update`]
    Updated {
        /// Object before the update.
        old: Arc<K>,
        /// Object after the update.
        new: Arc<K>,
    },
    /// [`EventHandler::on_delete`]
    Deleted(Deleted<K>),
}

impl<K: Object> fmt::Display for Recorded<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { object, initial } => {
                write!(f, "add {}@{}", object.key(), object.resource_version_str())?;
                if *initial { f.write_str(" (initial)") } else { Ok(()) }
            }
            Self::Updated { old, new } => {
                write!(
                    f,
                    "update {}@{}->{}",
                    new.key(),
                    old.resource_version_str(),
                    new.resource_version_str()
                )?;
                if old.uid_str() == new.uid_str() { Ok(()) } else { f.write_str(" (recreated)") }
            }
            Self::Deleted(deleted) => {
                let object = deleted.object();
                write!(f, "delete {}@{}", object.key(), object.resource_version_str())?;
                let is_unknown = matches!(deleted, Deleted::FinalStateUnknown(_));
                if is_unknown { f.write_str(" (final state unknown)") } else { Ok(()) }
            }
        }
    }
}

/// Handler that records its calls.
#[derive(Debug)]
pub struct RecordingHandler<K> {
    calls: Mutex<Vec<Recorded<K>>>,
}

impl<K: Object> RecordingHandler<K> {
    /// Creates a handler without calls.
    pub const fn new() -> Self {
        Self { calls: Mutex::new(Vec::new()) }
    }

    /// Returns and removes the recorded calls.
    pub fn take(&self) -> Vec<Recorded<K>> {
        std::mem::take(&mut self.calls.lock())
    }

    /// Returns and removes the recorded calls, as text.
    pub fn take_texts(&self) -> Vec<String> {
        self.take().iter().map(ToString::to_string).collect()
    }

    /// Returns the objects that result from the recorded calls.
    ///
    /// # Errors
    ///
    /// Returns the first call that contradicts those before it: an add of an existing object, an update or a deletion of
    /// a missing object, an update whose old state was not the last one reported, or a deletion with another UID.
    pub fn replay(&self) -> Result<BTreeMap<ObjectKey, Arc<K>>, String> {
        let mut objects = BTreeMap::<ObjectKey, Arc<K>>::new();
        for call in &*self.calls.lock() {
            let consistent = match call {
                Recorded::Added { object, .. } => objects.insert(object.key(), Arc::clone(object)).is_none(),
                Recorded::Updated { old, new } => {
                    let known = objects.insert(new.key(), Arc::clone(new));
                    known.is_some_and(|known| Arc::ptr_eq(&known, old))
                }
                // The final state may be newer than the last one reported.
                Recorded::Deleted(deleted) => {
                    let known = objects.remove(&deleted.object().key());
                    known.is_some_and(|known| known.uid_str() == deleted.object().uid_str())
                }
            };
            if !consistent {
                return Err(format!("{call} contradicts the calls before it"));
            }
        }
        Ok(objects)
    }

    fn record(&self, call: Recorded<K>) {
        self.calls.lock().push(call);
    }
}

impl<K: Object> Default for RecordingHandler<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Object> EventHandler<K> for RecordingHandler<K> {
    fn on_add(&self, object: &Arc<K>, initial: bool) {
        self.record(Recorded::Added { object: Arc::clone(object), initial });
    }

    fn on_update(&self, old: &Arc<K>, new: &Arc<K>) {
        self.record(Recorded::Updated { old: Arc::clone(old), new: Arc::clone(new) });
    }

    fn on_delete(&self, deleted: &Deleted<K>) {
        self.record(Recorded::Deleted(match deleted {
            Deleted::FinalState(object) => Deleted::FinalState(Arc::clone(object)),
            Deleted::FinalStateUnknown(object) => Deleted::FinalStateUnknown(Arc::clone(object)),
        }));
    }
}
