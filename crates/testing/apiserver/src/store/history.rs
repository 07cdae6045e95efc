use std::{collections::VecDeque, sync::Arc};

use super::Key;
use crate::{Object, Resource};

/// How much history the server keeps for watches and for older states of lists. Whoever asks for more gets
/// 410 and starts over; set it low to see that happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// At most this many events.
    pub events: usize,
    /// At most about this many bytes of JSON that only history holds on to.
    pub bytes: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { events: 100_000, bytes: 64 << 20 }
    }
}

/// One write.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) key: Key,
    /// The state before, if there was one.
    pub(super) old: Option<Arc<Object>>,
    /// The state after; for a removal the last state, under the removal's revision.
    pub(super) object: Arc<Object>,
    pub(super) removed: bool,
}

impl Change {
    pub(super) fn resource(&self) -> Resource {
        self.object.resource()
    }

    /// What this change keeps in memory that would be free otherwise: the state that it replaced.
    fn size(&self) -> usize {
        let last = if self.removed { self.object.size() } else { 0 };
        self.old.as_ref().map_or(0, |old| old.size()) + last
    }
}

/// The last writes, in order and without a gap: the change of revision `r` stands at `r - first`.
pub(super) struct History {
    changes: VecDeque<Change>,
    /// The revision of the front, or of the next change if there is none.
    first: u64,
    bytes: usize,
    limits: HistoryLimits,
    /// For each resource the last revision that was forgotten. A watcher of pods does not suffer from a flood
    /// of leases: as long as no change of a pod was forgotten, it may go on from wherever it is.
    forgotten: Vec<u64>,
}

impl History {
    pub(super) fn new(revision: u64, limits: HistoryLimits, resources: usize) -> Self {
        Self {
            changes: VecDeque::new(),
            first: revision + 1,
            bytes: 0,
            limits,
            // What was before the start is not known.
            forgotten: vec![revision; resources],
        }
    }

    /// Remembers `change` and returns what had to go for it.
    pub(super) fn push(&mut self, change: Change) -> Vec<Change> {
        self.bytes += change.size();
        self.changes.push_back(change);
        let mut gone = Vec::new();
        while self.changes.len() > self.limits.events || self.bytes > self.limits.bytes {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.first = oldest.revision + 1;
            self.bytes -= oldest.size();
            if let Some(forgotten) = self.forgotten.get_mut(oldest.resource().index()) {
                *forgotten = oldest.revision;
            }
            gone.push(oldest);
        }
        gone
    }

    /// The oldest revision after which every change of `resource` (or with `None` of all) is remembered.
    pub(super) fn oldest(&self, resource: Option<Resource>) -> u64 {
        match resource {
            Some(resource) => self.forgotten.get(resource.index()).copied().unwrap_or_default(),
            None => self.first - 1,
        }
    }

    /// The changes after `revision` that are remembered, oldest first.
    pub(super) fn after(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Change> {
        let skipped = (revision + 1).saturating_sub(self.first);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX).min(self.changes.len());
        self.changes.range(skipped..)
    }
}
