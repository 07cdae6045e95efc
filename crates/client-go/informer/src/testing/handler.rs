use std::{collections::BTreeMap, fmt, sync::Arc};

use kcm_api::ObjectKey;
use parking_lot::Mutex;

use crate::{Deleted, EventHandler, Object};

/// One call of an [`EventHandler`].
#[derive(Debug)]
pub enum Recorded<K> {
    /// [`EventHandler::on_add`]
    Added {
        /// The object.
        object: Arc<K>,
        /// Whether it was there before.
        initial: bool,
    },
    /// [`EventHandler::on_update`]
    Updated {
        /// The object as it was.
        old: Arc<K>,
        /// The object as it is.
        new: Arc<K>,
    },
    /// [`EventHandler::on_delete`]
    Deleted(Deleted<K>),
}

impl<K> Clone for Recorded<K>
where
    Deleted<K>: Clone,
{
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial } => Self::Added { object: Arc::clone(object), initial: *initial },
            Self::Updated { old, new } => Self::Updated { old: Arc::clone(old), new: Arc::clone(new) },
            Self::Deleted(deleted) => Self::Deleted(deleted.clone()),
        }
    }
}

/// In a word and a key, with versions: `add ns/name@1 (initial)`, `update ns/name@1->2`, `delete ns/name@3`,
/// `delete ns/name@2 (unseen)`. Good to compare whole stories by.
impl<K: Object> fmt::Display for Recorded<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { object, initial } => {
                write!(f, "add {}@{}", object.key(), object.resource_version())?;
                if *initial { f.write_str(" (initial)") } else { Ok(()) }
            }
            Self::Updated { old, new } => {
                write!(f, "update {}@{}->{}", new.key(), old.resource_version(), new.resource_version())?;
                if old.uid() == new.uid() { Ok(()) } else { f.write_str(" (another)") }
            }
            Self::Deleted(deleted) => {
                let object = deleted.object();
                write!(f, "delete {}@{}", object.key(), object.resource_version())?;
                if matches!(deleted, Deleted::Unseen(_)) { f.write_str(" (unseen)") } else { Ok(()) }
            }
        }
    }
}

/// Keeps what it is told.
#[derive(Debug)]
pub struct RecordingHandler<K> {
    calls: Mutex<Vec<Recorded<K>>>,
}

impl<K: Object> RecordingHandler<K> {
    /// A handler that was told nothing yet.
    pub const fn new() -> Self {
        Self { calls: Mutex::new(Vec::new()) }
    }

    /// What it was told since it was last asked.
    pub fn take(&self) -> Vec<Recorded<K>> {
        std::mem::take(&mut self.calls.lock())
    }

    /// As [`take`](Self::take), each call as its text.
    pub fn take_texts(&self) -> Vec<String> {
        self.take().iter().map(ToString::to_string).collect()
    }

    /// The objects that there must be, by what it was told since it was last asked.
    ///
    /// # Errors
    ///
    /// The first call that contradicts those before it: an add of what is there, an update or a delete of what
    /// is not there, or from another object than the one that was told last.
    pub fn replay(&self) -> Result<BTreeMap<ObjectKey, Arc<K>>, String> {
        let mut objects = BTreeMap::<ObjectKey, Arc<K>>::new();
        for call in &*self.calls.lock() {
            let (key, expected, now) = match call {
                Recorded::Added { object, .. } => (object.key(), None, Some(object)),
                Recorded::Updated { old, new } => (new.key(), Some(old), Some(new)),
                // The last state may be newer than the one that was told last, but it is of the same object.
                Recorded::Deleted(deleted) => {
                    let key = deleted.object().key();
                    let known = objects.get(&key).cloned();
                    if known.is_none_or(|known| known.uid() != deleted.object().uid()) {
                        return Err(format!("{call}: it is not there"));
                    }
                    objects.remove(&key);
                    continue;
                }
            };
            let before = match now {
                Some(now) => objects.insert(key, Arc::clone(now)),
                None => objects.remove(&key),
            };
            let consistent = match (&before, expected) {
                (None, None) => true,
                (Some(before), Some(expected)) => Arc::ptr_eq(before, expected),
                _ => false,
            };
            if !consistent {
                let before = before.map(|before| before.resource_version().to_owned());
                return Err(format!("{call}: told last was {before:?}"));
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
            Deleted::Seen(object) => Deleted::Seen(Arc::clone(object)),
            Deleted::Unseen(object) => Deleted::Unseen(Arc::clone(object)),
        }));
    }
}
