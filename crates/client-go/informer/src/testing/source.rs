use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::stream;
use kcm_clock::{Clock, Sleep};
use kcm_meta::{ObjectKey, SetResourceVersion};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::{
    error::{ListWatchError, ListWatchErrorKind},
    source::{ListOptions, ListSink, ListWatch, Undecodable, WatchEvent, WatchOptions, WatchStream},
};

/// Request sent to a [`FakeSource`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FakeRequest {
    /// List request.
    List(ListOptions),
    /// Watch request.
    Watch(WatchOptions),
}

/// Form in which a [`FakeSource`] reports that the resource version of a watch is expired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExpiredAs {
    /// The first event of the watch is the error, as sent by an API server.
    #[default]
    Event,
    /// The response to the request is the error, as a proxy may send it.
    Response,
}

/// Fake API server for the objects of one type. Clones share the same state.
///
/// Objects have resource versions and a history, as on an API server: a watch from an older version first gets the
/// changes since, a [compacted](Self::compact) version is expired, the initial events of a streaming list end with a
/// bookmark, and a watch ends after its timeout.
///
/// Upstream counterpart: `FakeControllerSource`.
pub struct FakeSource<K> {
    state: Arc<Mutex<State<K>>>,
    clock: Arc<dyn Clock>,
}

type EventSender<K> = mpsc::UnboundedSender<Result<WatchEvent<K>, ListWatchError>>;
type EventReceiver<K> = mpsc::UnboundedReceiver<Result<WatchEvent<K>, ListWatchError>>;

struct State<K> {
    version: u64,
    objects: BTreeMap<ObjectKey, Stored<K>>,
    history: Vec<(u64, Change<K>)>,
    /// Watches from versions below this one are expired.
    compacted: u64,
    watchers: Vec<EventSender<K>>,
    /// Open watches that get no events.
    silenced: Vec<EventSender<K>>,
    hold_watches: bool,
    requests: Vec<FakeRequest>,
    list_errors: VecDeque<ListWatchError>,
    watch_errors: VecDeque<ListWatchError>,
    expired_as: ExpiredAs,
    streaming_lists: bool,
    initial_bookmarks: bool,
    timeouts: bool,
    delay: Duration,
}

#[derive(Clone)]
struct Stored<K> {
    object: K,
    decodable: bool,
}

#[derive(Clone)]
struct Change<K> {
    kind: ChangeKind,
    stored: Stored<K>,
}

#[derive(Clone, Copy)]
enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

impl<K: SetResourceVersion + Clone> FakeSource<K> {
    /// Creates a source without objects, at version 1. `clock` determines the timeouts of watches and delays.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = State {
            version: 1,
            objects: BTreeMap::new(),
            history: Vec::new(),
            compacted: 0,
            watchers: Vec::new(),
            silenced: Vec::new(),
            hold_watches: false,
            requests: Vec::new(),
            list_errors: VecDeque::new(),
            watch_errors: VecDeque::new(),
            expired_as: ExpiredAs::default(),
            streaming_lists: true,
            initial_bookmarks: true,
            timeouts: true,
            delay: Duration::ZERO,
        };
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    /// Creates or replaces an object. Returns its resource version.
    pub fn apply(&self, object: K) -> u64 {
        self.state.lock().put(Stored { object, decodable: true })
    }

    /// Creates or replaces an object in a form that clients cannot decode. Returns its resource version.
    pub fn apply_undecodable(&self, object: K) -> u64 {
        self.state.lock().put(Stored { object, decodable: false })
    }

    /// Deletes an object. Returns the resource version of the deletion, or `None` if there is no such object.
    pub fn delete(&self, key: &ObjectKey) -> Option<u64> {
        self.state.lock().delete(key)
    }

    /// Increments the resource version, as a change of an object of another type does. Returns the new version.
    pub fn advance(&self) -> u64 {
        let mut state = self.state.lock();
        state.version += 1;
        state.version
    }

    /// Returns the newest resource version.
    pub fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// Returns an object, also if clients cannot decode it.
    pub fn get(&self, key: &ObjectKey) -> Option<K> {
        self.state.lock().objects.get(key).map(|stored| stored.object.clone())
    }

    /// Returns the objects that clients can decode, sorted by key.
    pub fn objects(&self) -> Vec<K> {
        let state = self.state.lock();
        state.objects.values().filter(|stored| stored.decodable).map(|stored| stored.object.clone()).collect()
    }

    /// Sends a bookmark to every watch.
    pub fn bookmark(&self) {
        let mut state = self.state.lock();
        let resource_version = state.version.to_string();
        state.send(|| {
            let resource_version = resource_version.clone();
            Ok(WatchEvent::Bookmark { resource_version, initial_events_end: false })
        });
    }

    /// Ends every watch without an error, as a server does that shuts down.
    pub fn end_watches(&self) {
        self.state.lock().watchers.clear();
    }

    /// Sends no more events to the open watches and keeps them open, as if their connections were dead.
    pub fn silence_watches(&self) {
        let mut state = self.state.lock();
        let silenced = std::mem::take(&mut state.watchers);
        state.silenced.extend(silenced);
    }

    /// If `held`, watch requests and streaming lists get no response.
    pub fn hold_watches(&self, held: bool) {
        self.state.lock().hold_watches = held;
    }

    /// Ends every watch with `error`.
    pub fn break_watches(&self, error: &ListWatchError) {
        let mut state = self.state.lock();
        state.send(|| Err(error.clone()));
        state.watchers.clear();
    }

    /// Compacts the history: all versions up to the current one are expired.
    pub fn compact(&self) {
        let mut state = self.state.lock();
        state.version += 1;
        state.compacted = state.version;
        state.history.clear();
    }

    /// Rejects the next `times` list requests with `error`.
    pub fn fail_lists(&self, error: &ListWatchError, times: usize) {
        self.state.lock().list_errors.extend(std::iter::repeat_n(error, times).cloned());
    }

    /// Rejects the next `times` watch requests, including streaming lists, with `error`.
    pub fn fail_watches(&self, error: &ListWatchError, times: usize) {
        self.state.lock().watch_errors.extend(std::iter::repeat_n(error, times).cloned());
    }

    /// Sets the form in which expired versions are reported.
    pub fn set_expired_as(&self, expired_as: ExpiredAs) {
        self.state.lock().expired_as = expired_as;
    }

    /// Sets whether streaming lists are supported. Default: `true`.
    pub fn set_streaming_lists(&self, supported: bool) {
        self.state.lock().streaming_lists = supported;
    }

    /// Sets whether the bookmark is sent that ends initial events. Default: `true`.
    pub fn set_initial_bookmarks(&self, sent: bool) {
        self.state.lock().initial_bookmarks = sent;
    }

    /// Sets whether watches end after their timeout. Default: `true`.
    pub fn set_timeouts(&self, enabled: bool) {
        self.state.lock().timeouts = enabled;
    }

    /// Sets the time until a request is handled. Default: zero.
    pub fn set_delay(&self, delay: Duration) {
        self.state.lock().delay = delay;
    }

    /// Ends all faults that delay, withhold or reject responses. Keeps the support for streaming lists and the history.
    pub fn recover(&self) {
        let mut state = self.state.lock();
        state.list_errors.clear();
        state.watch_errors.clear();
        state.initial_bookmarks = true;
        state.timeouts = true;
        state.hold_watches = false;
        state.delay = Duration::ZERO;
    }

    /// Returns the number of open watches.
    pub fn watchers(&self) -> usize {
        self.state.lock().watchers.iter().filter(|watcher| !watcher.is_closed()).count()
    }

    /// Returns and removes the recorded requests.
    pub fn take_requests(&self) -> Vec<FakeRequest> {
        std::mem::take(&mut self.state.lock().requests)
    }

    async fn receive(&self, request: FakeRequest) {
        let delay = {
            let mut state = self.state.lock();
            state.requests.push(request);
            state.delay
        };
        self.clock.sleep(delay).await;
    }
}

#[async_trait]
impl<K: SetResourceVersion + Clone> ListWatch<K> for FakeSource<K> {
    async fn list_into(
        &self,
        options: &ListOptions,
        sink: &mut dyn ListSink<K>,
    ) -> Result<String, ListWatchError> {
        self.receive(FakeRequest::List(options.clone())).await;
        let mut state = self.state.lock();
        if let Some(error) = state.list_errors.pop_front() {
            return Err(error);
        }
        state.parse_version(options.resource_version.as_deref())?;
        for stored in state.objects.values() {
            if stored.decodable {
                sink.add(stored.object.clone());
            } else {
                sink.add_undecodable(stored.undecodable());
            }
        }
        Ok(state.version.to_string())
    }

    async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<K>, ListWatchError> {
        self.receive(FakeRequest::Watch(options.clone())).await;
        if self.state.lock().hold_watches {
            std::future::pending::<()>().await;
        }
        let mut state = self.state.lock();
        if let Some(error) = state.watch_errors.pop_front() {
            return Err(error);
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        // Fails only if the receiver is dropped.
        let send = |event| drop(sender.send(event));
        let from = state.parse_version(options.resource_version.as_deref())?;
        if options.send_initial_events {
            if !state.streaming_lists {
                return Err(unsupported());
            }
            state.initial_events().for_each(send);
            if state.initial_bookmarks {
                let resource_version = state.version.to_string();
                send(Ok(WatchEvent::Bookmark { resource_version, initial_events_end: true }));
            }
        } else if let Some(from) = from {
            if from < state.compacted {
                let error = expired(from, state.compacted);
                if state.expired_as == ExpiredAs::Response {
                    return Err(error);
                }
                send(Err(error));
                return Ok(into_stream(receiver, None));
            }
            let since = state.history.iter().filter(|(version, _)| *version > from);
            since.for_each(|(_, change)| send(Ok(change.event())));
        } else {
            state.initial_events().for_each(send);
        }
        state.watchers.push(sender);
        let timeout = state.timeouts.then(|| self.clock.sleep(options.timeout));
        Ok(into_stream(receiver, timeout))
    }
}

fn into_stream<K: Send + 'static>(receiver: EventReceiver<K>, timeout: Option<Sleep>) -> WatchStream<K> {
    let timeout = timeout.unwrap_or_else(|| Box::pin(std::future::pending()));
    Box::pin(stream::unfold((receiver, timeout), |(mut receiver, mut timeout)| async move {
        tokio::select! {
            biased;
            event = receiver.recv() => event.map(|event| (event, (receiver, timeout))),
            () = &mut timeout => None,
        }
    }))
}

impl<K: SetResourceVersion + Clone> State<K> {
    fn put(&mut self, mut stored: Stored<K>) -> u64 {
        self.version += 1;
        stored.object.set_resource_version(&self.version.to_string());
        let old = self.objects.insert(stored.object.key(), stored.clone());
        let kind = if old.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.record(Change { kind, stored })
    }

    fn delete(&mut self, key: &ObjectKey) -> Option<u64> {
        let mut stored = self.objects.remove(key)?;
        self.version += 1;
        // The final state has the version of the deletion.
        stored.object.set_resource_version(&self.version.to_string());
        Some(self.record(Change { kind: ChangeKind::Deleted, stored }))
    }

    fn record(&mut self, change: Change<K>) -> u64 {
        self.send(|| Ok(change.event()));
        self.history.push((self.version, change));
        self.version
    }

    fn send(&mut self, event: impl Fn() -> Result<WatchEvent<K>, ListWatchError>) {
        self.watchers.retain(|watcher| watcher.send(event()).is_ok());
    }

    fn initial_events(&self) -> impl Iterator<Item = Result<WatchEvent<K>, ListWatchError>> {
        let added = |stored: &Stored<K>| Change { kind: ChangeKind::Added, stored: stored.clone() }.event();
        self.objects.values().map(move |stored| Ok(added(stored)))
    }

    /// Returns the version of a request; `None` if the request accepts any version.
    fn parse_version(&self, version: Option<&str>) -> Result<Option<u64>, ListWatchError> {
        let Some(text) = version.filter(|version| !matches!(*version, "" | "0")) else { return Ok(None) };
        let version = text.parse::<u64>().map_err(|error| {
            ListWatchError::new(
                ListWatchErrorKind::Unsupported,
                format!("invalid resourceVersion {text:?}: {error}"),
            )
        })?;
        if version > self.version { Err(too_large(version, self.version)) } else { Ok(Some(version)) }
    }
}

impl<K: SetResourceVersion + Clone> Change<K> {
    fn event(&self) -> WatchEvent<K> {
        let object = || self.stored.object.clone();
        match (self.kind, self.stored.decodable) {
            (ChangeKind::Added, true) => WatchEvent::Added(object()),
            (ChangeKind::Modified, true) => WatchEvent::Modified(object()),
            (ChangeKind::Deleted, true) => WatchEvent::Deleted(object()),
            (ChangeKind::Added | ChangeKind::Modified, false) => {
                WatchEvent::Undecodable(self.stored.undecodable())
            }
            (ChangeKind::Deleted, false) => WatchEvent::UndecodableDeleted(self.stored.undecodable()),
        }
    }
}

impl<K: SetResourceVersion> Stored<K> {
    fn undecodable(&self) -> Undecodable {
        Undecodable {
            name: self.object.key().to_string(),
            resource_version: Some(self.object.resource_version_str().to_owned()),
            error: "invalid type: string, expected a map".to_owned(),
        }
    }
}

fn unsupported() -> ListWatchError {
    ListWatchError::new(
        ListWatchErrorKind::Unsupported,
        "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
    )
}

fn expired(requested: u64, oldest: u64) -> ListWatchError {
    let message = format!("too old resource version: {requested} ({oldest})");
    ListWatchError::new(ListWatchErrorKind::Expired, message)
}

fn too_large(requested: u64, newest: u64) -> ListWatchError {
    let message = format!("Too large resource version: {requested}, current: {newest}");
    ListWatchError::new(ListWatchErrorKind::ResourceVersionTooLarge, message)
        .with_retry_after(Duration::from_secs(1))
}

impl<K> Clone for FakeSource<K> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), clock: Arc::clone(&self.clock) }
    }
}

impl<K> fmt::Debug for FakeSource<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("FakeSource")
            .field("version", &state.version)
            .field("objects", &state.objects.len())
            .finish_non_exhaustive()
    }
}
