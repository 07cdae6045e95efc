//! Common parts of the recorded cases: filled caches, and the requests of a recording client.

use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use kcm_api::{ApiError, ObjectKey, Pod, ReplicaSet, Time};
use kcm_clock::{Clock, FakeClock, SeededRandom, Timestamp};
use kcm_controller_util::{pod_indexers, replica_set_indexers};
use kcm_informer::{
    Indexers, InformerConfig, ListOptions, ListSink, ListWatch, ListWatchError, Object, SharedInformer,
    WatchEvent, WatchOptions, WatchStream,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// List-watcher with fixed objects and no changes.
struct FixedObjects<K>(Vec<K>);

/// Resource version of the lists; no case depends on it.
const RESOURCE_VERSION: &str = "1000000";

#[async_trait]
impl<K: Object + Clone> ListWatch<K> for FixedObjects<K> {
    async fn list_into(
        &self,
        _options: &ListOptions,
        sink: &mut dyn ListSink<K>,
    ) -> Result<String, ListWatchError> {
        self.0.iter().cloned().for_each(|object| sink.add(object));
        Ok(RESOURCE_VERSION.to_owned())
    }

    async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<K>, ListWatchError> {
        let mut events = Vec::new();
        if options.send_initial_events {
            events.extend(self.0.iter().cloned().map(|object| Ok(WatchEvent::Added(object))));
            let resource_version = RESOURCE_VERSION.to_owned();
            events.push(Ok(WatchEvent::Bookmark { resource_version, initial_events_end: true }));
        }
        Ok(stream::iter(events).chain(stream::pending()).boxed())
    }
}

/// Returns an informer with a store of `objects`.
pub(super) fn informer<K: Object + Clone>(
    name: &str,
    objects: Vec<K>,
    indexers: Indexers<K>,
    clock: &FakeClock,
) -> SharedInformer<K> {
    let random = Arc::new(SeededRandom::new(0));
    let config = InformerConfig::new(name, Arc::new(FixedObjects(objects)), Arc::new(clock.clone()), random);
    SharedInformer::new(InformerConfig { indexers, ..config })
}

/// Informers that both controllers use.
pub(super) struct Caches {
    pub(super) pods: SharedInformer<Pod>,
    pub(super) replica_sets: SharedInformer<ReplicaSet>,
}

impl Caches {
    pub(super) fn new(pods: Vec<Pod>, replica_sets: Vec<ReplicaSet>, clock: &FakeClock) -> Self {
        Self {
            pods: informer("pods", pods, pod_indexers(), clock),
            replica_sets: informer("replicasets", replica_sets, replica_set_indexers(), clock),
        }
    }

    /// Runs both informers until they have synced.
    pub(super) async fn fill(&self) {
        fill(&self.replica_sets).await;
        fill(&self.pods).await;
    }
}

/// Runs `informer` until it has synced.
pub(super) async fn fill<K: Object>(informer: &SharedInformer<K>) {
    let stop = CancellationToken::new();
    let filled = async {
        informer.wait_for_sync(&stop).await;
        stop.cancel();
    };
    tokio::join!(informer.run(stop.clone()), filled);
}

/// Decodes a list; absent and null are empty.
pub(super) fn list<T, E>(value: &Value, decode: impl FnMut(&Value) -> Result<T, E>) -> Result<Vec<T>, E> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(decode).collect()
}

/// Runs `sync` and returns its output, or the error as `unanswered`.
pub(super) fn answer_with<F>(sync: F) -> Value
where
    F: Future<Output = Result<Value, Box<dyn Error>>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let result = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(sync));
    result.unwrap_or_else(|error| json!({ "unanswered": error.to_string() }))
}

/// Clock at the time of the case.
pub(super) fn clock_of(case: &Value) -> FakeClock {
    let now = case["now"].as_str().and_then(|now| now.parse::<Timestamp>().ok());
    FakeClock::new(now.unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Requests in the form of `output.actions`, in order.
#[derive(Default)]
pub(super) struct Actions(Mutex<Vec<Value>>);

impl Actions {
    /// Records a request; `body` is the field name (`object` or `patch`) and its value.
    pub(super) fn record(&self, verb: &str, what: &str, name: &str, body: Option<(&str, Value)>) {
        let mut action = json!({ "verb": verb, "what": what, "name": name });
        if let Some((field, body)) = body {
            action[field] = body;
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(action);
    }

    pub(super) fn take(&self) -> Vec<Value> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Parses a patch.
pub(super) fn patch_body(patch: &str) -> Value {
    serde_json::from_str(patch).unwrap_or_else(|_| Value::from(patch))
}

/// Error of the API server for an absent object.
pub(super) fn not_found(resource: &str, key: &ObjectKey) -> ApiError {
    let message = format!("{resource} \"{}\" not found", key.name);
    ApiError::status(404, kcm_api::error::reason::NOT_FOUND, message)
}

/// Replaces every time within three seconds of the clock by `<now>`.
pub(super) fn mask_now(value: &mut Value, clock: &FakeClock) {
    match value {
        Value::String(text) => {
            let near = |time: Time| time.age(clock.now()).abs().as_secs() <= 3;
            if text.parse::<Time>().is_ok_and(near) {
                "<now>".clone_into(text);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| mask_now(value, clock)),
        Value::Object(fields) => fields.values_mut().for_each(|value| mask_now(value, clock)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
