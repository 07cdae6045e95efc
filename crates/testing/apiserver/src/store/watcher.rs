use std::{collections::VecDeque, sync::Arc};

use super::{Store, WatchCache, as_str, history::Change, keys_in, list::then, signal::Listener};
use crate::{ApiStatus, Object, Reason, Resource, Selection, json::set};

/// At most how many events a watcher takes from history at a time, and how many it looks at for that.
const BATCH: usize = 256;
const SCAN: usize = 4096;

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStart {
    /// With an [`Added`](WatchEvent::Added) for everything there is, then an
    /// [`InitialEventsEnd`](WatchEvent::InitialEventsEnd), then what happens.
    Initial,
    /// With the next thing that happens.
    Now,
    /// With the first thing that happened after this revision, as lists and objects report it.
    After(u64),
}

/// One thing that happened to the watched objects.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// It came to be, or came to match the selection.
    Added(Arc<Object>),
    /// It changed, and matched before.
    Modified(Arc<Object>),
    /// It is gone, or no longer matches: the last state that matched, under the revision of the event.
    Deleted(Arc<Object>),
    /// Everything that was there when the watch began has been reported, at this revision.
    InitialEventsEnd(u64),
}

impl WatchEvent {
    /// The object, if the event is about one.
    pub fn object(&self) -> Option<&Arc<Object>> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => Some(object),
            Self::InitialEventsEnd(_) => None,
        }
    }

    /// The revision of the event.
    pub fn revision(&self) -> u64 {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => object.revision(),
            Self::InitialEventsEnd(revision) => *revision,
        }
    }
}

/// A reader of what happens. It holds a position in the server's history and filters for itself, so a slow one
/// costs the others nothing; one that is so slow that its position is forgotten ends with 410.
///
/// Upstream counterpart: `watch.Interface`.
pub struct Watcher {
    store: Store,
    resource: Option<Resource>,
    namespace: Box<str>,
    selection: Selection,
    /// Everything up to this revision is either in `pending` or has been handed out.
    position: u64,
    /// Everything up to this revision has been handed out; 0 before the end of the initial events.
    reported: u64,
    pending: VecDeque<WatchEvent>,
    signal: Listener,
    /// Cache that events come from. `None` if they come from the store as they happen.
    cache: Option<Arc<WatchCache>>,
}

impl Store {
    /// Watches one resource, or with `None` all of them, in one namespace or with an empty one everywhere.
    pub(crate) fn watch(
        &self,
        resource: Option<Resource>,
        namespace: &str,
        selection: Selection,
        start: WatchStart,
    ) -> Watcher {
        self.watch_from(None, resource, namespace, selection, start)
    }

    /// As [`watch`](Self::watch), with the state and the events of `cache` if there is one.
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
        let position = match start {
            WatchStart::Initial => {
                let resources =
                    Resource::all().filter(|candidate| resource.is_none_or(|only| only == *candidate));
                let newest = cache.as_ref().map_or(state.revision, |cache| cache.revision_in(&state));
                let (from, to) = keys_in(namespace);
                let bounds = (as_str(&from), as_str(&to));
                for (_, object) in resources.flat_map(|resource| then(&state, resource, newest, bounds)) {
                    if selection.matches(object) {
                        pending.push_back(WatchEvent::Added(Arc::clone(object)));
                    }
                }
                pending.push_back(WatchEvent::InitialEventsEnd(newest));
                newest
            }
            WatchStart::Now => state.revision,
            WatchStart::After(revision) => revision,
        };
        drop(state);
        let reported = if start == WatchStart::Initial { 0 } else { position };
        Watcher {
            reported,
            store: self.clone(),
            resource,
            namespace: namespace.into(),
            selection,
            position,
            pending,
            signal,
            cache,
        }
    }
}

impl Watcher {
    /// The next event; waits for one if none is there.
    ///
    /// # Errors
    ///
    /// [`Reason::Expired`] when events were missed because history is bounded; every further call says so too.
    /// List and watch again.
    ///
    /// # Cancel safety
    ///
    /// An event is taken only when the future completes.
    pub async fn next(&mut self) -> Result<WatchEvent, ApiStatus> {
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            if let Some(cache) = &self.cache {
                cache.wait_for(self.position + 1).await;
            } else if self.signal.changed().await.is_err() {
                return Err(ApiStatus::new(Reason::ServiceUnavailable, "the store is gone"));
            }
        }
    }

    /// The next event, if there is one already.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub fn try_next(&mut self) -> Result<Option<WatchEvent>, ApiStatus> {
        // Marked as seen before looking: a write in between wakes the wait that may follow.
        self.signal.mark_unchanged();
        while self.pending.is_empty() {
            if self.refill()? {
                break;
            }
        }
        let event = self.pending.pop_front();
        match &event {
            // Initial events come in the order of keys.
            Some(WatchEvent::InitialEventsEnd(revision)) => self.reported = *revision,
            Some(event) if self.reported > 0 => self.reported = event.revision(),
            _ => {}
        }
        if self.pending.is_empty() && self.reported > 0 {
            self.reported = self.position;
        }
        Ok(event)
    }

    /// The revision up to which everything has been handed out: what a bookmark may say, and where another
    /// watch can go on. 0 until the end of the initial events.
    pub fn revision(&self) -> u64 {
        self.reported
    }

    /// Takes events from history; says whether it has seen all there are.
    fn refill(&mut self) -> Result<bool, ApiStatus> {
        let Self { store, resource, namespace, selection, position, pending, cache, .. } = self;
        let state = store.0.state.read();
        let newest = cache.as_ref().map_or(state.revision, |cache| cache.revision_in(&state));
        let oldest = state.history.oldest(*resource);
        if *position < oldest {
            return Err(ApiStatus::expired(*position, oldest));
        }
        let visible = state.history.after(*position).take_while(|change| change.revision <= newest);
        for (scanned, change) in visible.enumerate() {
            if pending.len() == BATCH || scanned == SCAN {
                return Ok(false);
            }
            *position = change.revision;
            if resource.is_none_or(|resource| resource == change.resource())
                && (namespace.is_empty() || *change.object.namespace() == **namespace)
            {
                pending.extend(seen_through(change, selection));
            }
        }
        *position = (*position).max(newest);
        Ok(true)
    }
}

/// What a change looks like to a watcher with this selection.
fn seen_through(change: &Change, selection: &Selection) -> Option<WatchEvent> {
    let before = change.old.as_ref().filter(|old| selection.matches(old));
    let after = Some(&change.object).filter(|object| !change.removed && selection.matches(object));
    match (before, after) {
        (None, None) => None,
        (None, Some(new)) => Some(WatchEvent::Added(Arc::clone(new))),
        (Some(_), Some(new)) => Some(WatchEvent::Modified(Arc::clone(new))),
        (Some(_), None) if change.removed => Some(WatchEvent::Deleted(Arc::clone(&change.object))),
        (Some(old), None) => {
            // It left the selection: the last state that matched, but under the event's revision, from which
            // the client will go on.
            let mut last = old.value().clone();
            set(&mut last, &["metadata", "resourceVersion"], change.revision.to_string());
            let object = Object::new(old.resource(), last, change.revision, old.written(), old.size());
            Some(WatchEvent::Deleted(Arc::new(object)))
        }
    }
}
