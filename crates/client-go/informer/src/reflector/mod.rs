//! Follows a source: lists, watches, and when it must, lists again.

mod course;

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures_util::StreamExt;
use kcm_api::{ApiError, ObjectKey};
use kcm_clock::{Clock, Random, Sleep, jitter};

use self::course::{Course, Outcome, Pause, Request};
use crate::{
    InformerMetrics, ListOptions, ListWatch, Object, Snapshot, Undecodable, WatchEvent, WatchOptions,
    WatchStream, backoff::Backoff, delivery::Delivery, relist::Relists,
};

/// How long a watch is asked to last: this, and up to as much again (US-2.1).
const WATCH_TIMEOUT: Duration = Duration::from_secs(300);

/// How much longer than asked for a watch may last before it is taken for dead.
const WATCH_GRACE: Duration = Duration::from_secs(30);

/// An end this soon, with nothing told, is no good end.
const BRIEF: Duration = Duration::from_secs(1);

/// Time that a requested relist waits for the first event of a streaming list. An API server whose watch cache is behind
/// takes up to 3 s.
const FIRST_EVENT: Duration = Duration::from_secs(5);

/// How often to say that initial events are missing.
const INITIAL_EVENTS_WARNING: Duration = Duration::from_secs(10);

/// Keeps a store in step with a source.
///
/// Upstream counterpart: `cache.Reflector`. A connection that is silent because it is dead is for the transport
/// to notice; it then yields an error, or ends. Should it not, the watch still ends here, soon after the time
/// that the server was asked to end it.
pub(crate) struct Reflector<K> {
    name: String,
    source: Arc<dyn ListWatch<K>>,
    delivery: Arc<Delivery<K>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    metrics: Arc<dyn InformerMetrics>,
    backoff: Backoff,
    course: Course,
    relists: Arc<Relists>,
    /// Number of the last relist that was taken up.
    relist: u64,
}

impl<K: Object> Reflector<K> {
    pub(crate) fn new(
        name: String,
        source: Arc<dyn ListWatch<K>>,
        delivery: Arc<Delivery<K>>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        metrics: Arc<dyn InformerMetrics>,
        relists: Arc<Relists>,
    ) -> Self {
        let backoff = Backoff::new(Arc::clone(&clock), Arc::clone(&random));
        let course = Course::new();
        Self { name, source, delivery, clock, random, metrics, backoff, course, relists, relist: 0 }
    }

    /// Fills the store by list requests from now on.
    pub(crate) fn disable_streaming_lists(&mut self) {
        self.course.disable_streaming_lists();
    }

    /// Runs for ever. Dropping the future stops it between two changes of the store.
    pub(crate) async fn run(&mut self) -> Infallible {
        let relists = Arc::clone(&self.relists);
        let mut requested = relists.requested();
        loop {
            let relist = *requested.borrow_and_update();
            if relist > self.relist {
                self.relist = relist;
                self.course.relist();
            }
            tokio::select! {
                biased;
                // The connection of a watch under way may be dead, and what a list under way shows may be older.
                _ = requested.changed() => {}
                () = self.step() => {}
            }
        }
    }

    /// Sends the next request, handles the answer until it ends, and waits as long as necessary before the next one.
    async fn step(&mut self) {
        let request = self.course.request(self.delivery.store().last_sync_resource_version());
        let verb = verb(&request);
        let from = from(&request);
        tracing::debug!(informer = self.name, resource_version = from, "Starting to {verb}");
        let closed = match request {
            Request::List { from } => match self.list(from).await {
                Ok(()) => return,
                Err(error) => Closed::by(error),
            },
            Request::StreamingList { from } => self.watch(from, Some(self.delivery.snapshot())).await,
            Request::Watch { from } => self.watch(from, None).await,
        };
        if let Some(error) = &closed.error {
            self.metrics.request_failed(&self.name, error);
        }
        let pause = self.course.step(Outcome::Closed { error: closed.error.as_ref(), brief: closed.brief });
        let wait = match pause {
            Pause::No => None,
            Pause::BackOff { at_least } => Some(self.backoff.next().max(at_least)),
        };
        self.report(verb, &closed, wait);
        match wait {
            Some(wait) => self.clock.sleep(wait).await,
            // A source that answers without ever waiting must still leave room for a cancellation.
            None => tokio::task::yield_now().await,
        }
    }

    async fn list(&mut self, from: Option<String>) -> Result<(), ApiError> {
        let list = self.source.list(&ListOptions { resource_version: from }).await?;
        let mut snapshot = self.delivery.snapshot();
        for object in list.items {
            snapshot.insert(object);
        }
        for undecodable in list.undecodable {
            self.note(&undecodable);
            snapshot.keep(key_of(&undecodable));
        }
        self.complete(snapshot, &list.resource_version);
        Ok(())
    }

    /// Watches, and if there is an `initial` snapshot, fills that first.
    async fn watch(&mut self, from: Option<String>, mut initial: Option<Snapshot<K>>) -> Closed {
        let started = self.clock.monotonic();
        let timeout = jitter(&*self.random, WATCH_TIMEOUT, 1.0);
        let options =
            WatchOptions { resource_version: from, send_initial_events: initial.is_some(), timeout };
        let mut deadline = self.clock.sleep(timeout + WATCH_GRACE);
        let relists = initial.is_some() && self.relists.is_pending();
        let mut first_event = relists.then(|| self.clock.sleep(FIRST_EVENT));
        let opened = tokio::select! {
            biased;
            () = &mut deadline => Err(ApiError::Timeout(format!("watch of {}", self.name))),
            () = expired(&mut first_event) => Err(self.no_first_event()),
            opened = self.source.watch(&options) => opened,
        };
        let mut stream: WatchStream<K> = match opened {
            Ok(stream) => stream,
            Err(error) => return Closed::by(error),
        };
        self.metrics.watch_started(&self.name);

        let mut warning = self.clock.sleep(INITIAL_EVENTS_WARNING);
        let (mut events, mut events_at_warning) = (0_u64, 0);
        let error = loop {
            let event = tokio::select! {
                biased;
                () = &mut deadline => break None,
                () = expired(&mut first_event), if events == 0 => break Some(self.no_first_event()),
                () = &mut warning, if initial.is_some() => {
                    if events == events_at_warning {
                        tracing::warn!(informer = self.name, events, "Still waiting for the end of initial events");
                    }
                    events_at_warning = events;
                    warning = self.clock.sleep(INITIAL_EVENTS_WARNING);
                    continue;
                }
                event = stream.next() => event,
            };
            match event {
                None => break None,
                Some(Err(error)) => break Some(error),
                Some(Ok(event)) => {
                    events += 1;
                    match initial.take() {
                        Some(snapshot) => initial = self.initial_event(snapshot, event),
                        None => self.timed(|this| this.event(event)),
                    }
                }
            }
        };
        let lasted = self.clock.monotonic().saturating_sub(started);
        self.metrics.watch_ended(&self.name, lasted, events);
        let brief = events == 0 && lasted < BRIEF;
        Closed { error, brief }
    }

    /// Takes an event into the snapshot, and gives the snapshot back unless that has completed it.
    fn initial_event(&mut self, mut snapshot: Snapshot<K>, event: WatchEvent<K>) -> Option<Snapshot<K>> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => snapshot.insert(object),
            WatchEvent::Deleted(object) => snapshot.remove(&object.key()),
            WatchEvent::Undecodable(undecodable) => {
                self.note(&undecodable);
                snapshot.keep(key_of(&undecodable));
            }
            WatchEvent::UndecodableDeleted(undecodable) => {
                self.note(&undecodable);
                snapshot.remove(&key_of(&undecodable));
            }
            WatchEvent::Bookmark { resource_version, initial_events_end: true } => {
                self.complete(snapshot, &resource_version);
                return None;
            }
            WatchEvent::Bookmark { .. } => {}
        }
        Some(snapshot)
    }

    fn event(&self, event: WatchEvent<K>) {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => self.delivery.apply(object),
            WatchEvent::Deleted(object) => self.delivery.remove(object),
            WatchEvent::Bookmark { resource_version, .. } => self.delivery.bookmark(&resource_version),
            WatchEvent::Undecodable(undecodable) => {
                self.note(&undecodable);
                self.delivery.bookmark(undecodable.resource_version.as_deref().unwrap_or_default());
            }
            WatchEvent::UndecodableDeleted(undecodable) => {
                self.note(&undecodable);
                let version = undecodable.resource_version.as_deref();
                self.delivery.remove_unseen(&key_of(&undecodable), version);
            }
        }
    }

    fn complete(&mut self, snapshot: Snapshot<K>, resource_version: &str) {
        let relist = self.delivery.store().is_synced();
        let objects = snapshot.len();
        self.timed(|this| this.delivery.replace(snapshot, resource_version));
        self.course.step(Outcome::Complete);
        // Since the relist was taken up, each list was a consistent read.
        self.relists.complete(self.relist);
        self.metrics.listed(&self.name, relist);
        tracing::debug!(informer = self.name, objects, resource_version, relist, "Cache populated");
    }

    fn no_first_event(&self) -> ApiError {
        ApiError::Timeout(format!("first event of the streaming list of {}", self.name))
    }

    /// Does `what`, and tells how long it took if somebody wants to know.
    fn timed(&self, what: impl FnOnce(&Self)) {
        let started = self.metrics.wants_times().then(|| self.clock.monotonic());
        what(self);
        if let Some(started) = started {
            self.metrics.processed(&self.name, self.clock.monotonic().saturating_sub(started));
        }
    }

    fn note(&self, undecodable: &Undecodable) {
        self.metrics.undecodable(&self.name);
        tracing::error!(
            informer = self.name,
            object = undecodable.name,
            error = undecodable.error,
            "Cannot decode an object, going on without"
        );
    }

    /// Says what an operator should know: that nothing is heard for a while. What is asked again at once, or otherwise,
    /// is for those who look closer; should that fail, too, it is said then.
    fn report(&self, verb: &str, closed: &Closed, wait: Option<Duration>) {
        let informer = &self.name;
        match (&closed.error, wait) {
            (Some(err), Some(delay)) => {
                tracing::warn!(informer, %err, ?delay, "Failed to {verb}, will try again");
            }
            (Some(err), None) => tracing::debug!(informer, %err, "Failed to {verb}, going on at once"),
            (None, Some(delay)) => {
                tracing::warn!(informer, ?delay, "Watch ended at once, without an event");
            }
            (None, None) => tracing::debug!(informer, "Watch ended"),
        }
    }
}

/// Waits until `timer` expires; for ever if there is none.
async fn expired(timer: &mut Option<Sleep>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}

/// What is asked for, in a word.
const fn verb(request: &Request) -> &'static str {
    match request {
        Request::List { .. } | Request::StreamingList { .. } => "list",
        Request::Watch { .. } => "watch",
    }
}

/// From where on; empty for the newest.
fn from(request: &Request) -> &str {
    let (Request::List { from } | Request::StreamingList { from } | Request::Watch { from }) = request;
    from.as_deref().unwrap_or_default()
}

/// How a request came to its end.
struct Closed {
    error: Option<ApiError>,
    brief: bool,
}

impl Closed {
    /// There was no more than an error.
    const fn by(error: ApiError) -> Self {
        Self { error: Some(error), brief: true }
    }
}

/// Which object it would be.
fn key_of(undecodable: &Undecodable) -> ObjectKey {
    let (namespace, name) = undecodable.name.split_once('/').unwrap_or(("", &undecodable.name));
    ObjectKey::new(namespace, name)
}
