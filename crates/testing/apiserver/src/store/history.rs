use std::{collections::VecDeque, sync::Arc};

use super::Key;
use crate::{Object, Resource};

/// Limits of the history from which watches and older lists are served. Requests for older revisions fail with 410.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Maximum number of events.
    pub events: usize,
    /// Approximate maximum size in bytes of the JSON of versions that only the history refers to.
    pub bytes: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { events: 100_000, bytes: 64 << 20 }
    }
}

/// A write.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) key: Key,
    /// Version before the write, if the object existed.
    pub(super) old: Option<Arc<Object>>,
    /// Version after the write. For a removal, the last version under the removal's revision.
    pub(super) object: Arc<Object>,
    pub(super) removed: bool,
}

impl Change {
    pub(super) fn resource(&self) -> Resource {
        self.object.resource()
    }

    /// Bytes that only the history refers to: the replaced version, and for a removal the last version.
    fn size(&self) -> usize {
        let last = if self.removed { self.object.size() } else { 0 };
        self.old.as_ref().map_or(0, |old| old.size()) + last
    }
}

/// Recent writes without gaps: the change of revision `r` has index `r - first`.
pub(super) struct History {
    changes: VecDeque<Change>,
    /// Revision of the first change, or of the next one if there are none.
    first: u64,
    bytes: usize,
    limits: HistoryLimits,
    /// Last evicted revision of each resource. A watcher of one resource does not expire because of evicted changes of
    /// other resources. A custom resource is added with its first eviction.
    forgotten: Vec<u64>,
    /// Revision at the start. Earlier changes are unavailable.
    start: u64,
}

impl History {
    pub(super) fn new(revision: u64, limits: HistoryLimits, resources: usize) -> Self {
        Self {
            changes: VecDeque::new(),
            first: revision + 1,
            bytes: 0,
            limits,
            forgotten: vec![revision; resources],
            start: revision,
        }
    }

    /// Appends `change` and returns the evicted changes.
    pub(super) fn push(&mut self, change: Change) -> Vec<Change> {
        self.bytes += change.size();
        self.changes.push_back(change);
        let mut gone = Vec::new();
        while self.changes.len() > self.limits.events || self.bytes > self.limits.bytes {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.first = oldest.revision + 1;
            self.bytes -= oldest.size();
            let index = oldest.resource().index();
            if index >= self.forgotten.len() {
                self.forgotten.resize(index + 1, self.start);
            }
            self.forgotten[index] = oldest.revision;
            gone.push(oldest);
        }
        gone
    }

    /// Oldest revision after which no change of `resource` (or with `None` of any resource) was evicted.
    pub(super) fn oldest(&self, resource: Option<Resource>) -> u64 {
        match resource {
            Some(resource) => self.forgotten.get(resource.index()).copied().unwrap_or(self.start),
            None => self.first - 1,
        }
    }

    /// Changes after `revision` that are in the history, oldest first.
    pub(super) fn after(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Change> {
        let skipped = (revision + 1).saturating_sub(self.first);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX).min(self.changes.len());
        self.changes.range(skipped..)
    }
}
