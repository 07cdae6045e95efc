use std::{collections::VecDeque, fmt, sync::Arc};

use super::{
    Store, WatchCache, as_str, history::Change, keys_in, list::objects_at, recent::Recent, signal::Listener,
};
use crate::{ApiStatus, Object, Resource, Selection, StatusReason, object::Version};

/// Maximum number of events that a watcher buffers, and of changes that it scans for them under the lock.
const BATCH: usize = 256;
const SCAN: usize = 4096;

/// Start of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStart {
    /// [`Added`](WatchEvent::Added) for every existing object, then [`InitialEventsEnd`](WatchEvent::InitialEventsEnd),
    /// then changes.
    Initial,
    /// Changes from now on.
    Now,
    /// Changes after this revision of a list or an object.
    After(u64),
}

/// Event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// The object was created or now matches the selection.
    Added(Arc<Object>),
    /// The object was changed and matched before.
    Modified(Arc<Object>),
    /// The object was removed or no longer matches. Contains the last matching version with the event's revision.
    Deleted(Arc<Object>),
    /// All initial objects have been reported, as of this revision.
    InitialEventsEnd(u64),
}

impl WatchEvent {
    /// Object of the event, if any.
    pub fn object(&self) -> Option<&Arc<Object>> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => Some(object),
            Self::InitialEventsEnd(_) => None,
        }
    }

    /// Revision of the event.
    pub fn revision(&self) -> u64 {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => object.revision(),
            Self::InitialEventsEnd(revision) => *revision,
        }
    }
}

/// A buffered event. The object is not decoded, so a watcher that is not read uses little memory.
enum Pending {
    Added(Arc<Version>),
    Modified(Arc<Version>),
    Deleted(Arc<Version>),
    InitialEventsEnd(u64),
}

impl Pending {
    fn into_event(self, recent: &Recent) -> WatchEvent {
        match self {
            Self::Added(version) => WatchEvent::Added(recent.get(&version)),
            Self::Modified(version) => WatchEvent::Modified(recent.get(&version)),
            // May be an earlier version under the revision of a later one.
            Self::Deleted(version) => WatchEvent::Deleted(recent.peek(&version)),
            Self::InitialEventsEnd(revision) => WatchEvent::InitialEventsEnd(revision),
        }
    }
}

/// Reader of watch events.
///
/// A watcher reads the store's history at its own position, so a slow watcher does not delay others. If its position
/// is evicted from the history, the watch fails with 410.
///
/// Upstream counterpart: `watch.Interface`.
pub struct Watcher {
    store: Store,
    resource: Option<Resource>,
    namespace: Box<str>,
    selection: Selection,
    /// Number of restored backups at the start of the watch.
    restores: u64,
    /// Revision up to which changes are in `pending` or were returned.
    position: u64,
    /// Revision up to which changes were returned. 0 before the end of the initial events.
    reported: u64,
    pending: VecDeque<Pending>,
    signal: Listener,
    /// Source of the events. `None` for the store.
    cache: Option<Arc<WatchCache>>,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher")
            .field("resource", &self.resource)
            .field("namespace", &self.namespace)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Watches a resource, or with `None` all resources, in `namespace`. `""` watches all namespaces.
    pub(crate) fn watch(
        &self,
        resource: Option<Resource>,
        namespace: &str,
        selection: Selection,
        start: WatchStart,
    ) -> Watcher {
        self.watch_from(None, resource, namespace, selection, start)
    }

    /// As [`watch`](Self::watch). If there is a `cache`, its state and events are observed.
    pub(crate) fn watch_from(
        &self,
        cache: Option<Arc<WatchCache>>,
        resource: Option<Resource>,
        namespace: &str,
        selection: Selection,
        start: WatchStart,
    ) -> Watcher {
        let signal = self.0.signal(resource).listen();
        let mut pending = VecDeque::new();
        let state = self.0.state.read();
        let mut initial: Vec<Arc<Version>> = Vec::new();
        let position = match start {
            WatchStart::Initial => {
                let resources =
                    resource.map_or_else(|| state.resources(), |resource| vec![resource]).into_iter();
                let newest = cache.as_ref().map_or(state.revision, |cache| cache.revision_in(&state));
                let (from, to) = keys_in(namespace);
                let bounds = (as_str(&from), as_str(&to));
                initial.extend(
                    resources.flat_map(|resource| objects_at(&state, resource, newest, bounds)).cloned(),
                );
                newest
            }
            WatchStart::Now => state.revision,
            WatchStart::After(revision) => revision,
        };
        // A revision from before a restore. Upstream waits until it is reached.
        let restores = if position > state.revision { u64::MAX } else { state.restores };
        drop(state);
        if start == WatchStart::Initial {
            initial.retain(|version| selection.matches(&Object::new(Arc::clone(version))));
            pending.extend(initial.into_iter().map(Pending::Added));
            pending.push_back(Pending::InitialEventsEnd(position));
        }
        let reported = if start == WatchStart::Initial { 0 } else { position };
        Watcher {
            reported,
            store: self.clone(),
            resource,
            namespace: namespace.into(),
            selection,
            restores,
            position,
            pending,
            signal,
            cache,
        }
    }
}

impl Watcher {
    /// Returns the next event. Waits until there is one.
    ///
    /// # Errors
    ///
    /// [`StatusReason::Expired`] if changes were evicted from the history before they were read. All further calls fail, too.
    /// The caller must list and watch again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Result<WatchEvent, ApiStatus> {
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            if let Some(cache) = &self.cache {
                cache.wait_for(self.position + 1).await;
            } else if self.signal.changed().await.is_err() {
                return Err(ApiStatus::new(StatusReason::ServiceUnavailable, "the store is gone"));
            }
        }
    }

    /// Returns the next event if there is one.
    pub fn try_next(&mut self) -> Result<Option<WatchEvent>, ApiStatus> {
        // Marked before reading: a concurrent write wakes the next wait.
        self.signal.mark_unchanged();
        while self.pending.is_empty() {
            if self.refill()? {
                break;
            }
        }
        let initial = self.reported == 0;
        let event = self.pending.pop_front().map(|pending| match pending {
            // Not kept, because there may be many.
            Pending::Added(version) if initial => WatchEvent::Added(self.store.0.recent.peek(&version)),
            pending => pending.into_event(&self.store.0.recent),
        });
        match &event {
            // Initial events are in key order, not in order of revisions.
            Some(WatchEvent::InitialEventsEnd(revision)) => self.reported = *revision,
            Some(event) if self.reported > 0 => self.reported = event.revision(),
            _ => {}
        }
        if self.pending.is_empty() && self.reported > 0 {
            self.reported = self.position;
        }
        Ok(event)
    }

    /// Revision up to which all events have been returned, for bookmarks and to resume the watch. 0 until the end of the
    /// initial events.
    pub fn revision(&self) -> u64 {
        self.reported
    }

    /// Buffers events from the history. Returns `true` if all changes were read.
    fn refill(&mut self) -> Result<bool, ApiStatus> {
        let Self { store, resource, namespace, selection, restores, position, pending, cache, .. } = self;
        let state = store.0.state.read();
        let newest = cache.as_ref().map_or(state.revision, |cache| cache.revision_in(&state));
        let oldest = state.history.oldest(*resource);
        if *position < oldest || *restores != state.restores {
            return Err(ApiStatus::expired(*position, oldest));
        }
        let visible = state.history.after(*position).take_while(|change| change.revision() <= newest);
        let (mut changes, mut complete) = (Vec::new(), true);
        for (scanned, change) in visible.enumerate() {
            if changes.len() == BATCH || scanned == SCAN {
                complete = false;
                break;
            }
            *position = change.revision();
            if resource.is_none_or(|resource| resource == change.resource())
                && (namespace.is_empty() || *change.object.namespace() == **namespace)
            {
                changes.push(change.clone());
            }
        }
        if complete {
            *position = (*position).max(newest);
        }
        drop(state);
        // Selected after the lock is released, because field selectors decode objects.
        let recent = &store.0.recent;
        pending.extend(changes.into_iter().filter_map(|change| watch_event(change, selection, recent)));
        Ok(complete)
    }
}

/// Returns the event of a change for a watcher with this selection.
fn watch_event(change: Change, selection: &Selection, recent: &Recent) -> Option<Pending> {
    let Change { old, object, removed } = change;
    let matches =
        |version: &Arc<Version>| selection.is_everything() || selection.matches(&recent.peek(version));
    let before = old.filter(matches);
    match (before, !removed && matches(&object)) {
        (None, false) => None,
        (None, true) => Some(Pending::Added(object)),
        (Some(_), true) => Some(Pending::Modified(object)),
        (Some(_), false) if removed => Some(Pending::Deleted(object)),
        // The object left the selection: the last matching version, with the revision of the change so that the client
        // resumes after it.
        (Some(old), false) => {
            let last = Version::clone(&old).with_revision(object.revision());
            Some(Pending::Deleted(Arc::new(last)))
        }
    }
}
