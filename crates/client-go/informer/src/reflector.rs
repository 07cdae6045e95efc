//! Lists and watches a source, and writes the results to the store.

mod backoff;
mod state;

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use futures_util::StreamExt;
use kcm_clock::{Clock, Random, Sleep, jitter};
use kcm_meta::{Object, ObjectKey};

use self::{
    backoff::Backoff,
    state::{ReflectorState, Request, Retry},
};
use crate::{
    error::{ListWatchError, ListWatchErrorKind},
    handler_fanout::HandlerFanout,
    informer::Transform,
    metrics::InformerMetrics,
    relist::Relists,
    source::{ListOptions, ListSink, ListWatch, Undecodable, WatchEvent, WatchOptions, WatchStream},
    store::Snapshot,
};

/// Minimum timeout that a watch requests of the server. The timeout is random, less than twice this (US-2.1).
const WATCH_TIMEOUT: Duration = Duration::from_secs(300);

/// Time after its timeout at which a watch is dropped that the server has not ended.
const WATCH_GRACE: Duration = Duration::from_secs(30);

/// A watch that ends sooner and without an event counts as failed. Upstream: `very short watch`.
const VERY_SHORT_WATCH: Duration = Duration::from_secs(1);

/// Time that a requested relist waits for the first event of a streaming list. An API server whose watch cache is behind
/// takes up to 3 s.
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of the warning that a streaming list does not progress.
const INITIAL_EVENTS_WARNING: Duration = Duration::from_secs(10);

/// Keeps a store up to date with a source.
///
/// The transport detects dead connections and returns an error. A watch that it does not end is dropped
/// [some time](WATCH_GRACE) after its timeout.
///
/// Upstream counterpart: `cache.Reflector`.
pub(crate) struct Reflector<K> {
    name: String,
    /// Namespace of the objects. `None`: all namespaces.
    namespace: Option<Arc<str>>,
    source: Arc<dyn ListWatch<K>>,
    transform: Option<Transform<K>>,
    fanout: Arc<HandlerFanout<K>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    metrics: Arc<dyn InformerMetrics>,
    backoff: Backoff,
    state: ReflectorState,
    relists: Arc<Relists>,
    /// Number of the last relist that was started.
    relist: u64,
    /// `true` once a list is complete.
    listed: bool,
}

/// Dependencies of a [`Reflector`].
pub(crate) struct ReflectorConfig<K> {
    pub(crate) name: String,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) source: Arc<dyn ListWatch<K>>,
    pub(crate) transform: Option<Transform<K>>,
    pub(crate) fanout: Arc<HandlerFanout<K>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) metrics: Arc<dyn InformerMetrics>,
    pub(crate) relists: Arc<Relists>,
}

impl<K: Object> Reflector<K> {
    pub(crate) fn new(config: ReflectorConfig<K>) -> Self {
        let ReflectorConfig { name, namespace, source, transform, fanout, clock, random, metrics, relists } =
            config;
        Self {
            name,
            namespace,
            source,
            transform,
            fanout,
            backoff: Backoff::new(Arc::clone(&clock), Arc::clone(&random)),
            clock,
            random,
            metrics,
            state: ReflectorState::new(),
            relists,
            relist: 0,
            listed: false,
        }
    }

    /// Replaces streaming lists with plain lists.
    pub(crate) fn disable_streaming_lists(&mut self) {
        self.state.disable_streaming_lists();
    }

    /// Runs until the future is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not interrupt a change of the store.
    pub(crate) async fn run(&mut self) -> Infallible {
        let relists = Arc::clone(&self.relists);
        let mut requested = relists.requested();
        loop {
            let relist = *requested.borrow_and_update();
            if relist > self.relist {
                self.relist = relist;
                self.state.relist();
            }
            tokio::select! {
                biased;
                // The connection of a watch in progress may be dead, and the result of a list in progress too old.
                _ = requested.changed() => {}
                () = self.step() => {}
            }
        }
    }

    /// Sends the next request, handles the response until it ends, and waits for the back-off if there is one.
    async fn step(&mut self) {
        let request = self.state.request(self.last_version());
        let verb = verb(&request);
        let (informer, namespace) = (&self.name, self.namespace.as_deref());
        tracing::debug!(informer, namespace, resourceVersion = from(&request), "Starting to {verb}");
        let end = match request {
            Request::List { from } => match self.list(from).await {
                Ok(()) => return,
                Err(error) => RequestEnd::failed(error),
            },
            Request::StreamingList { from } => {
                let snapshot = self.snapshot();
                self.watch(from, Some(snapshot)).await
            }
            Request::Watch { from } => self.watch(from, None).await,
        };
        if let Some(error) = &end.error {
            self.metrics.request_failed(&self.name, error);
        }
        let delay = match self.state.request_ended(end.error.as_ref(), end.very_short) {
            Retry::Immediately => None,
            Retry::AfterBackoff { at_least } => Some(self.backoff.next().max(at_least)),
        };
        self.log_end(verb, &end, delay);
        match delay {
            Some(delay) => self.clock.timer("watch back-off", delay).await,
            // Without it, a source that always answers at once would prevent cancellation.
            None => tokio::task::yield_now().await,
        }
    }

    /// Returns the version up to which the store contains all changes of this source.
    fn last_version(&self) -> Option<String> {
        let store = self.fanout.store();
        match &self.namespace {
            Some(namespace) => store.last_sync_resource_version_in(namespace),
            None => store.last_sync_resource_version(),
        }
    }

    fn snapshot(&self) -> Snapshot<K> {
        self.fanout.snapshot(self.namespace.clone())
    }

    fn transformed(&self, mut object: K) -> K {
        if let Some(transform) = &self.transform {
            transform(&mut object);
        }
        object
    }

    async fn list(&mut self, from: Option<String>) -> Result<(), ListWatchError> {
        let mut listed = Listed { reflector: self, snapshot: self.snapshot(), undecodable: Vec::new() };
        let options = ListOptions { resource_version: from };
        let resource_version = self.source.list_into(&options, &mut listed).await?;
        let Listed { mut snapshot, undecodable, .. } = listed;
        for undecodable in undecodable {
            self.report_undecodable(&undecodable);
            snapshot.keep(key_of(&undecodable));
        }
        self.complete_list(snapshot, &resource_version);
        Ok(())
    }

    /// Watches. With an `initial` snapshot this is a streaming list, whose objects complete the snapshot first.
    async fn watch(&mut self, from: Option<String>, mut initial: Option<Snapshot<K>>) -> RequestEnd {
        let started = self.clock.monotonic();
        let timeout = jitter(&*self.random, WATCH_TIMEOUT, 1.0);
        let options =
            WatchOptions { resource_version: from, send_initial_events: initial.is_some(), timeout };
        let mut deadline = self.clock.sleep(timeout + WATCH_GRACE);
        let is_relist = initial.is_some() && self.relists.is_pending();
        let mut first_event = is_relist.then(|| self.clock.sleep(FIRST_EVENT_TIMEOUT));
        let opened = tokio::select! {
            biased;
            () = &mut deadline => Err(timeout_error(format_args!("watch of {}", self.name))),
            () = expired(&mut first_event) => Err(self.first_event_timeout()),
            opened = self.source.watch(&options) => opened,
        };
        let mut stream: WatchStream<K> = match opened {
            Ok(stream) => stream,
            Err(error) => return RequestEnd::failed(error),
        };
        self.metrics.watch_started(&self.name);

        let mut warning = initial.is_some().then(|| self.clock.sleep(INITIAL_EVENTS_WARNING));
        let (mut events, mut events_at_warning) = (0_u64, 0);
        let error = loop {
            let event = tokio::select! {
                biased;
                // The timers are polled after the last event that has arrived, not once per event.
                event = stream.next() => event,
                () = &mut deadline => break None,
                () = expired(&mut first_event) => break Some(self.first_event_timeout()),
                () = expired(&mut warning) => {
                    if events == events_at_warning {
                        tracing::warn!(
                            informer = self.name,
                            namespace = self.namespace.as_deref(),
                            events,
                            "Awaiting required bookmark event for initial events stream, no events received"
                        );
                    }
                    events_at_warning = events;
                    warning = Some(self.clock.sleep(INITIAL_EVENTS_WARNING));
                    continue;
                }
            };
            match event {
                None => break None,
                Some(Err(error)) => break Some(error),
                Some(Ok(event)) => {
                    events += 1;
                    first_event = None;
                    match initial.take() {
                        Some(snapshot) => {
                            initial = self.handle_initial_event(snapshot, event);
                            warning = warning.filter(|_| initial.is_some());
                        }
                        None => self.timed(|this| this.handle_event(event)),
                    }
                }
            }
        };
        let duration = self.clock.monotonic().saturating_sub(started);
        self.metrics.watch_ended(&self.name, duration, events);
        RequestEnd { error, very_short: events == 0 && duration < VERY_SHORT_WATCH }
    }

    /// Adds an event to the snapshot. Returns the snapshot until the event that completes it.
    fn handle_initial_event(
        &mut self,
        mut snapshot: Snapshot<K>,
        event: WatchEvent<K>,
    ) -> Option<Snapshot<K>> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                snapshot.insert(self.transformed(object));
            }
            WatchEvent::Deleted(object) => snapshot.remove(&object.key()),
            WatchEvent::Undecodable(undecodable) => {
                self.report_undecodable(&undecodable);
                snapshot.keep(key_of(&undecodable));
            }
            WatchEvent::UndecodableDeleted(undecodable) => {
                self.report_undecodable(&undecodable);
                snapshot.remove(&key_of(&undecodable));
            }
            WatchEvent::Bookmark { resource_version, initial_events_end: true } => {
                self.complete_list(snapshot, &resource_version);
                return None;
            }
            WatchEvent::Bookmark { .. } => {}
        }
        Some(snapshot)
    }

    fn handle_event(&self, event: WatchEvent<K>) {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.fanout.apply(self.transformed(object));
            }
            WatchEvent::Deleted(object) => self.fanout.delete(self.transformed(object)),
            WatchEvent::Bookmark { resource_version, .. } => self.bookmark(&resource_version),
            WatchEvent::Undecodable(undecodable) => {
                self.report_undecodable(&undecodable);
                self.bookmark(undecodable.resource_version.as_deref().unwrap_or_default());
            }
            WatchEvent::UndecodableDeleted(undecodable) => {
                self.report_undecodable(&undecodable);
                let version = undecodable.resource_version.as_deref();
                self.fanout.delete_final_state_unknown(&key_of(&undecodable), version);
            }
        }
    }

    fn bookmark(&self, resource_version: &str) {
        self.fanout.bookmark(self.namespace.as_deref(), resource_version);
    }

    fn complete_list(&mut self, snapshot: Snapshot<K>, resource_version: &str) {
        let relist = std::mem::replace(&mut self.listed, true);
        let objects = snapshot.len();
        self.timed(|this| this.fanout.replace(snapshot, resource_version, !relist));
        self.state.list_completed();
        // Since the relist was started, each list was a consistent read.
        self.relists.complete(self.relist);
        self.metrics.listed(&self.name, relist);
        tracing::debug!(
            informer = self.name,
            namespace = self.namespace.as_deref(),
            objects,
            resourceVersion = resource_version,
            relist,
            "Caches populated"
        );
    }

    fn first_event_timeout(&self) -> ListWatchError {
        timeout_error(format_args!("first event of the streaming list of {}", self.name))
    }

    /// Calls `update`, and reports its duration if the metrics record it.
    fn timed(&self, update: impl FnOnce(&Self)) {
        let started = self.metrics.records_durations().then(|| self.clock.monotonic());
        update(self);
        if let Some(started) = started {
            self.metrics.processed(&self.name, self.clock.monotonic().saturating_sub(started));
        }
    }

    fn report_undecodable(&self, undecodable: &Undecodable) {
        self.metrics.undecodable(&self.name);
        tracing::error!(
            informer = self.name,
            object = undecodable.name,
            err = undecodable.error,
            "Failed to decode object"
        );
    }

    /// Logs the end of a request: as a warning if a delay follows, for which the store may fall behind, else for debugging.
    fn log_end(&self, verb: &str, end: &RequestEnd, delay: Option<Duration>) {
        let (informer, namespace) = (&self.name, self.namespace.as_deref());
        match (&end.error, delay) {
            (Some(err), Some(delay)) => {
                tracing::warn!(informer, namespace, %err, ?delay, "Failed to {verb}; retrying");
            }
            (Some(err), None) => {
                tracing::debug!(informer, namespace, %err, "Failed to {verb}; retrying immediately");
            }
            (None, Some(delay)) => {
                tracing::warn!(informer, namespace, ?delay, "Watch closed without events; retrying");
            }
            (None, None) => tracing::debug!(informer, namespace, "Watch closed"),
        }
    }
}

/// Objects of a list that is not complete. The store is not changed before the end of the list.
struct Listed<'a, K> {
    reflector: &'a Reflector<K>,
    snapshot: Snapshot<K>,
    undecodable: Vec<Undecodable>,
}

impl<K: Object> ListSink<K> for Listed<'_, K> {
    fn add(&mut self, object: K) {
        self.snapshot.insert(self.reflector.transformed(object));
    }

    fn add_undecodable(&mut self, object: Undecodable) {
        self.undecodable.push(object);
    }

    fn clear(&mut self) {
        self.snapshot = self.reflector.snapshot();
        self.undecodable.clear();
    }
}

/// Waits until `timer` expires; forever if there is none.
async fn expired(timer: &mut Option<Sleep>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}

fn timeout_error(request: fmt::Arguments<'_>) -> ListWatchError {
    ListWatchError::new(ListWatchErrorKind::Timeout, format!("{request}: request timed out"))
}

/// Returns the verb of a request for log messages.
const fn verb(request: &Request) -> &'static str {
    match request {
        Request::List { .. } | Request::StreamingList { .. } => "list",
        Request::Watch { .. } => "watch",
    }
}

/// Returns the resource version of a request; empty for a consistent read.
fn from(request: &Request) -> &str {
    let (Request::List { from } | Request::StreamingList { from } | Request::Watch { from }) = request;
    from.as_deref().unwrap_or_default()
}

/// End of a request.
struct RequestEnd {
    error: Option<ListWatchError>,
    /// `true` if the request ended within [`VERY_SHORT_WATCH`] and without an event.
    very_short: bool,
}

impl RequestEnd {
    /// End of a request without a response.
    const fn failed(error: ListWatchError) -> Self {
        Self { error: Some(error), very_short: true }
    }
}

/// Returns the key of an object that cannot be decoded.
fn key_of(undecodable: &Undecodable) -> ObjectKey {
    let (namespace, name) = undecodable.name.split_once('/').unwrap_or(("", &undecodable.name));
    ObjectKey::new(namespace, name)
}
