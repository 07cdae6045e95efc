use std::{collections::VecDeque, sync::Arc};

use crate::{Resource, object::Version};

/// Approximate memory in bytes of a change without the versions that it refers to.
const CHANGE: usize = size_of::<Change>() + 32;

/// Limits of the history from which watches and older lists are served. Requests for older revisions fail with 410.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Maximum number of events.
    pub events: usize,
    /// Approximate maximum memory in bytes of the history: of the events, and of the versions and parts of objects that
    /// only they refer to.
    pub bytes: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { events: 100_000, bytes: 32 << 20 }
    }
}

/// A write.
#[derive(Clone)]
pub(super) struct Change {
    /// Version before the write, if the object existed.
    pub(super) old: Option<Arc<Version>>,
    /// Version after the write. For a removal, the last version under the removal's revision.
    pub(super) object: Arc<Version>,
    pub(super) removed: bool,
}

impl Change {
    pub(super) fn resource(&self) -> Resource {
        self.object.resource()
    }

    pub(super) fn revision(&self) -> u64 {
        self.object.revision()
    }

    /// Approximate memory in bytes that only the history uses: for the event, for the replaced version without the parts
    /// that the new version contains, too, and for the last version of a removed object.
    ///
    /// A part of a removed object is counted although other objects may contain it, so the limit is never exceeded.
    fn size(&self) -> usize {
        let replaced = self.old.as_ref().map_or(0, |old| old.memory(Some(&self.object)));
        let last = if self.removed { self.object.memory(None) } else { 0 };
        CHANGE + replaced + last
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

    pub(super) fn limits(&self) -> HistoryLimits {
        self.limits
    }

    /// Appends `change` and returns the evicted changes.
    pub(super) fn push(&mut self, change: Change) -> Vec<Change> {
        self.bytes += change.size();
        self.changes.push_back(change);
        let mut gone = Vec::new();
        while self.changes.len() > self.limits.events || self.bytes > self.limits.bytes {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.first = oldest.revision() + 1;
            self.bytes -= oldest.size();
            let index = oldest.resource().index();
            if index >= self.forgotten.len() {
                self.forgotten.resize(index + 1, self.start);
            }
            self.forgotten[index] = oldest.revision();
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
