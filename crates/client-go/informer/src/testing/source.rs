use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::stream;
use kcm_api::{
    ApiError, Deployment, ObjectKey, Pod, ReplicaSet, Status, StatusCause, StatusDetails, error::reason,
};
use kcm_clock::Clock;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::{List, ListOptions, ListWatch, Object, Undecodable, WatchEvent, WatchOptions, WatchStream};

/// An object that a [`FakeSource`] can hold: one whose version it can set.
pub trait FakeObject: Object + Clone {
    /// Makes the object be of this version.
    fn set_resource_version(&mut self, version: &str);
}

macro_rules! whole_object {
    ($($ty:ty),*) => { $(
        impl FakeObject for $ty {
            fn set_resource_version(&mut self, version: &str) {
                self.metadata.resource_version = version.to_owned();
            }
        }
    )* };
}

whole_object!(Deployment, ReplicaSet);

impl FakeObject for Pod {
    fn set_resource_version(&mut self, version: &str) {
        self.resource_version = version.into();
    }
}

/// A request that was made of a [`FakeSource`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FakeRequest {
    /// A list.
    List(ListOptions),
    /// A watch.
    Watch(WatchOptions),
}

/// How a source says that a version is gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Gone {
    /// As an API server does: the watch opens, and its first event is the error.
    #[default]
    InStream,
    /// As a proxy may: the request is answered with the error.
    AsAnswer,
}

/// A source of objects that does as it is told. Clones are the same source.
///
/// It keeps objects with versions and a history, as an API server does: a watch from an old version is told
/// what happened since, a version that was [forgotten](Self::forget_history) is answered with 410, a streaming
/// list ends its initial events with a bookmark, a watch ends when its time is up.
///
/// Upstream counterpart: `FakeControllerSource`.
pub struct FakeSource<K> {
    state: Arc<Mutex<State<K>>>,
    clock: Arc<dyn Clock>,
}

struct State<K> {
    version: u64,
    objects: BTreeMap<ObjectKey, Stored<K>>,
    history: Vec<(u64, Happened<K>)>,
    /// Watches from before this version are refused.
    compacted: u64,
    watchers: Vec<mpsc::UnboundedSender<Result<WatchEvent<K>, ApiError>>>,
    /// Watches that are open and get nothing.
    dead: Vec<mpsc::UnboundedSender<Result<WatchEvent<K>, ApiError>>>,
    hold_watches: bool,
    requests: Vec<FakeRequest>,
    list_errors: VecDeque<ApiError>,
    watch_errors: VecDeque<ApiError>,
    gone: Gone,
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

#[derive(Clone, Copy)]
enum Kind {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone)]
struct Happened<K> {
    kind: Kind,
    stored: Stored<K>,
}

impl<K: FakeObject> FakeSource<K> {
    /// A source without objects, at version 1, that behaves well. Its watches end, and its answers are late, by
    /// `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = State {
            version: 1,
            objects: BTreeMap::new(),
            history: Vec::new(),
            compacted: 0,
            watchers: Vec::new(),
            dead: Vec::new(),
            hold_watches: false,
            requests: Vec::new(),
            list_errors: VecDeque::new(),
            watch_errors: VecDeque::new(),
            gone: Gone::default(),
            streaming_lists: true,
            initial_bookmarks: true,
            timeouts: true,
            delay: Duration::ZERO,
        };
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    /// Creates `object`, or changes the one at its key. Returns the new version.
    pub fn apply(&self, object: K) -> u64 {
        self.state.lock().put(Stored { object, decodable: true })
    }

    /// As [`apply`](Self::apply), but whoever looks cannot decode what is there now.
    pub fn apply_undecodable(&self, object: K) -> u64 {
        self.state.lock().put(Stored { object, decodable: false })
    }

    /// Deletes what is at `key`, if there is something. Returns the version of that.
    pub fn delete(&self, key: &ObjectKey) -> Option<u64> {
        self.state.lock().delete(key)
    }

    /// Counts the version up as a change of something else does that nobody watches here.
    pub fn advance(&self) -> u64 {
        let mut state = self.state.lock();
        state.version += 1;
        state.version
    }

    /// The newest version.
    pub fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// The object at `key`, whether or not it can be decoded.
    pub fn get(&self, key: &ObjectKey) -> Option<K> {
        self.state.lock().objects.get(key).map(|stored| stored.object.clone())
    }

    /// All objects that can be decoded, by key.
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

    /// Ends every watch, as a server does that restarts in good order.
    pub fn end_watches(&self) {
        self.state.lock().watchers.clear();
    }

    /// Sends no more events to the watches that are open, and does not end them: their connections are dead.
    pub fn lose_events(&self) {
        let mut state = self.state.lock();
        let dead = std::mem::take(&mut state.watchers);
        state.dead.extend(dead);
    }

    /// Sets whether it leaves watches, streaming lists among them, without an answer.
    pub fn hold_watches(&self, held: bool) {
        self.state.lock().hold_watches = held;
    }

    /// Breaks every watch with `error`, which goes through the stream.
    pub fn break_watches(&self, error: &ApiError) {
        let mut state = self.state.lock();
        state.send(|| Err(error.clone()));
        state.watchers.clear();
    }

    /// Forgets what has happened so far: whoever wants to watch from any version known by now gets a 410.
    pub fn forget_history(&self) {
        let mut state = self.state.lock();
        state.version += 1;
        state.compacted = state.version;
        state.history.clear();
    }

    /// Answers the next `times` lists with `error`.
    pub fn fail_lists(&self, error: &ApiError, times: usize) {
        self.state.lock().list_errors.extend(std::iter::repeat_n(error, times).cloned());
    }

    /// Answers the next `times` watches, streaming lists among them, with `error`.
    pub fn fail_watches(&self, error: &ApiError, times: usize) {
        self.state.lock().watch_errors.extend(std::iter::repeat_n(error, times).cloned());
    }

    /// Sets how it says that a version is gone.
    pub fn set_gone(&self, gone: Gone) {
        self.state.lock().gone = gone;
    }

    /// Sets whether it has streaming lists. It has, by default; else it answers 422, as a server does that knows
    /// of them but does not offer them.
    pub fn set_streaming_lists(&self, offered: bool) {
        self.state.lock().streaming_lists = offered;
    }

    /// Sets whether initial events end with the bookmark that says so, as they do by default.
    pub fn set_initial_bookmarks(&self, sent: bool) {
        self.state.lock().initial_bookmarks = sent;
    }

    /// Sets whether a watch ends when its time is up, as it does by default.
    pub fn set_timeouts(&self, kept: bool) {
        self.state.lock().timeouts = kept;
    }

    /// Sets how long it takes to answer a request. What the answer says is decided after that.
    pub fn set_delay(&self, delay: Duration) {
        self.state.lock().delay = delay;
    }

    /// Ends all misbehaviour that has been set: from now on answers come at once, and no error is left over.
    /// What it offers and what it has forgotten stays so.
    pub fn recover(&self) {
        let mut state = self.state.lock();
        state.list_errors.clear();
        state.watch_errors.clear();
        state.initial_bookmarks = true;
        state.timeouts = true;
        state.hold_watches = false;
        state.delay = Duration::ZERO;
    }

    /// How many watches are open.
    pub fn watchers(&self) -> usize {
        self.state.lock().watchers.iter().filter(|watcher| !watcher.is_closed()).count()
    }

    /// The requests that were made since this was last asked.
    pub fn take_requests(&self) -> Vec<FakeRequest> {
        std::mem::take(&mut self.state.lock().requests)
    }

    async fn wait(&self, request: FakeRequest) {
        let delay = {
            let mut state = self.state.lock();
            state.requests.push(request);
            state.delay
        };
        self.clock.sleep(delay).await;
    }
}

#[async_trait]
impl<K: FakeObject> ListWatch<K> for FakeSource<K> {
    async fn list(&self, options: &ListOptions) -> Result<List<K>, ApiError> {
        self.wait(FakeRequest::List(options.clone())).await;
        let mut state = self.state.lock();
        if let Some(error) = state.list_errors.pop_front() {
            return Err(error);
        }
        state.parse(options.resource_version.as_deref())?;
        let mut list =
            List { items: Vec::new(), undecodable: Vec::new(), resource_version: state.version.to_string() };
        for stored in state.objects.values() {
            if stored.decodable {
                list.items.push(stored.object.clone());
            } else {
                list.undecodable.push(stored.undecodable());
            }
        }
        Ok(list)
    }

    async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<K>, ApiError> {
        self.wait(FakeRequest::Watch(options.clone())).await;
        if self.state.lock().hold_watches {
            std::future::pending::<()>().await;
        }
        let mut state = self.state.lock();
        if let Some(error) = state.watch_errors.pop_front() {
            return Err(error);
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        // Sending fails only when the receiver is gone, and it is right here.
        let send = |event| drop(sender.send(event));
        let from = state.parse(options.resource_version.as_deref())?;
        if options.send_initial_events {
            if !state.streaming_lists {
                return Err(ApiError::status(
                    422,
                    reason::INVALID,
                    "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
                ));
            }
            state.initial_events().for_each(send);
            if state.initial_bookmarks {
                let resource_version = state.version.to_string();
                send(Ok(WatchEvent::Bookmark { resource_version, initial_events_end: true }));
            }
        } else if let Some(from) = from {
            if from < state.compacted {
                let error = expired(from, state.compacted);
                if state.gone == Gone::AsAnswer {
                    return Err(error);
                }
                send(Err(error));
                return Ok(into_stream(receiver, None));
            }
            let since = state.history.iter().filter(|(version, _)| *version > from);
            since.for_each(|(_, happened)| send(Ok(happened.event())));
        } else {
            state.initial_events().for_each(send);
        }
        state.watchers.push(sender);
        let timeout = state.timeouts.then(|| self.clock.sleep(options.timeout));
        Ok(into_stream(receiver, timeout))
    }
}

fn into_stream<K: Send + 'static>(
    receiver: mpsc::UnboundedReceiver<Result<WatchEvent<K>, ApiError>>,
    timeout: Option<kcm_clock::Sleep>,
) -> WatchStream<K> {
    let timeout = timeout.unwrap_or_else(|| Box::pin(std::future::pending()));
    Box::pin(stream::unfold((receiver, timeout), |(mut receiver, mut timeout)| async move {
        tokio::select! {
            biased;
            event = receiver.recv() => event.map(|event| (event, (receiver, timeout))),
            () = &mut timeout => None,
        }
    }))
}

impl<K: FakeObject> State<K> {
    fn put(&mut self, mut stored: Stored<K>) -> u64 {
        self.version += 1;
        stored.object.set_resource_version(&self.version.to_string());
        let old = self.objects.insert(stored.object.key(), stored.clone());
        let kind = if old.is_some() { Kind::Modified } else { Kind::Added };
        self.happened(Happened { kind, stored })
    }

    fn delete(&mut self, key: &ObjectKey) -> Option<u64> {
        let mut stored = self.objects.remove(key)?;
        self.version += 1;
        // The last state, at the version of the deletion.
        stored.object.set_resource_version(&self.version.to_string());
        Some(self.happened(Happened { kind: Kind::Deleted, stored }))
    }

    fn happened(&mut self, happened: Happened<K>) -> u64 {
        self.send(|| Ok(happened.event()));
        self.history.push((self.version, happened));
        self.version
    }

    fn send(&mut self, event: impl Fn() -> Result<WatchEvent<K>, ApiError>) {
        self.watchers.retain(|watcher| watcher.send(event()).is_ok());
    }

    fn initial_events(&self) -> impl Iterator<Item = Result<WatchEvent<K>, ApiError>> {
        let added = |stored: &Stored<K>| Happened { kind: Kind::Added, stored: stored.clone() }.event();
        self.objects.values().map(move |stored| Ok(added(stored)))
    }

    /// The version to start from, if it matters.
    fn parse(&self, version: Option<&str>) -> Result<Option<u64>, ApiError> {
        let Some(text) = version.filter(|version| !matches!(*version, "" | "0")) else { return Ok(None) };
        let version = text.parse::<u64>().map_err(|error| {
            ApiError::status(400, "BadRequest", format!("resourceVersion {text:?}: {error}"))
        })?;
        if version > self.version { Err(too_large(version, self.version)) } else { Ok(Some(version)) }
    }
}

impl<K: FakeObject> Happened<K> {
    fn event(&self) -> WatchEvent<K> {
        let object = || self.stored.object.clone();
        match (self.kind, self.stored.decodable) {
            (Kind::Added, true) => WatchEvent::Added(object()),
            (Kind::Modified, true) => WatchEvent::Modified(object()),
            (Kind::Deleted, true) => WatchEvent::Deleted(object()),
            (Kind::Added | Kind::Modified, false) => WatchEvent::Undecodable(self.stored.undecodable()),
            (Kind::Deleted, false) => WatchEvent::UndecodableDeleted(self.stored.undecodable()),
        }
    }
}

impl<K: FakeObject> Stored<K> {
    fn undecodable(&self) -> Undecodable {
        Undecodable {
            name: self.object.key().to_string(),
            resource_version: Some(self.object.resource_version().to_owned()),
            error: "invalid type: string, expected a map".to_owned(),
        }
    }
}

fn expired(asked: u64, oldest: u64) -> ApiError {
    ApiError::status(410, reason::EXPIRED, format!("too old resource version: {asked} ({oldest})"))
}

fn too_large(asked: u64, newest: u64) -> ApiError {
    let cause = StatusCause { reason: "ResourceVersionTooLarge".to_owned(), ..StatusCause::default() };
    ApiError::Status(Box::new(Status {
        status: "Failure".to_owned(),
        message: format!("Too large resource version: {asked}, current: {newest}"),
        reason: reason::TIMEOUT.to_owned(),
        details: Some(StatusDetails {
            causes: vec![cause],
            retry_after_seconds: Some(1),
            ..StatusDetails::default()
        }),
        code: 504,
    }))
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
