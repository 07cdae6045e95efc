//! Watches, event by event.

use std::{borrow::Cow, time::Duration};

use futures_util::{Stream, stream};
use http::Response;
use http_body_util::BodyExt;
use kcm_api::{ApiError, Status};
use kcm_clock::Sleep;
use kcm_informer::{WatchEvent, WatchOptions};
use kube_client::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;

use crate::{
    ApiClient, failure,
    kind::{Kind, decode_or_identify},
    lines::Lines,
    request::{Query, Request, collection_path},
};

/// No event is longer: etcd refuses objects far below this.
const LONGEST_EVENT: usize = 32 << 20;

/// How much longer than asked for a watch may last until it counts as dead.
const OVERTIME: Duration = Duration::from_secs(30);

/// The annotation on the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Opens a watch on all objects of a type.
pub(crate) async fn watch<K: Kind>(
    client: &ApiClient,
    decoder: Arc<K::Decoder>,
    options: &WatchOptions,
) -> Result<impl Stream<Item = Result<WatchEvent<K>, ApiError>> + Send + use<K>, ApiError> {
    watch_at(client, decoder, &watch_request::<K>(options), options.timeout).await
}

/// Opens a watch at `request`, which asks the server to end it after `timeout`.
pub(crate) async fn watch_at<K: Kind>(
    client: &ApiClient,
    decoder: Arc<K::Decoder>,
    request: &Request,
    timeout: Duration,
) -> Result<impl Stream<Item = Result<WatchEvent<K>, ApiError>> + Send + use<K>, ApiError> {
    let answer = client.open(request).await?;
    let watching = Watching::<K> {
        what: client.describe(request),
        body: answer,
        lines: Lines::new(LONGEST_EVENT),
        deadline: client.clock().sleep(timeout.saturating_add(OVERTIME)),
        decoder,
        over: false,
    };
    // An error ends the stream.
    let events = stream::unfold(Some(watching), |watching| async move {
        let mut watching = watching?;
        let event = watching.next().await?;
        let rest = event.is_ok().then_some(watching);
        Some((event, rest))
    });
    Ok(events)
}

fn watch_request<K: Kind>(options: &WatchOptions) -> Request {
    let mut query = Query::new(collection_path(K::API_VERSION, K::PLURAL));
    query.add("watch", "true");
    query.add("allowWatchBookmarks", "true");
    if let Some(version) = &options.resource_version {
        query.add("resourceVersion", version);
    }
    if options.send_initial_events {
        query.add("sendInitialEvents", "true");
        query.add("resourceVersionMatch", "NotOlderThan");
    }
    query.add("timeoutSeconds", &options.timeout.as_secs().to_string());
    Request::get(query.into_path())
}

struct Watching<K: Kind> {
    what: String,
    body: Response<Body>,
    lines: Lines,
    deadline: Sleep,
    decoder: Arc<K::Decoder>,
    over: bool,
}

impl<K: Kind> Watching<K> {
    async fn next(&mut self) -> Option<Result<WatchEvent<K>, ApiError>> {
        loop {
            match self.lines.next() {
                Ok(Some(line)) => return Some(self.event(&line)),
                Ok(None) if self.over => return self.rest(),
                Ok(None) => {}
                Err(_) => {
                    let what = &self.what;
                    return Some(Err(ApiError::Decode(format!(
                        "{what}: an event of over {LONGEST_EVENT} bytes"
                    ))));
                }
            }
            let frame = tokio::select! {
                biased;
                frame = self.body.body_mut().frame() => frame,
                // Pings find a dead connection. This finds a server that lives and has forgotten the watch.
                () = &mut self.deadline => return Some(Err(ApiError::Timeout(self.what.clone()))),
            };
            match frame {
                None => self.over = true,
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.lines.push(&piece);
                    }
                }
                Some(Err(error)) => {
                    let cause = failure::describe(&error);
                    return Some(Err(ApiError::Transport(format!("{}: {cause}", self.what))));
                }
            }
        }
    }

    /// A stream may end between two events, not within one.
    fn rest(&self) -> Option<Result<WatchEvent<K>, ApiError>> {
        let cut = || Err(ApiError::Transport(format!("{}: the stream ended within an event", self.what)));
        self.lines.has_rest().then(cut)
    }

    fn event(&self, line: &[u8]) -> Result<WatchEvent<K>, ApiError> {
        let not_an_event =
            |error: &dyn std::fmt::Display| ApiError::Decode(format!("{}: not an event: {error}", self.what));
        let line = std::str::from_utf8(line).map_err(|error| not_an_event(&error))?;
        if let Some(event) = self.usual_event(line) {
            return Ok(event);
        }
        let Line { type_, object } = serde_json::from_str(line).map_err(|error| not_an_event(&error))?;
        let object = object.get();
        let decode = || decode_or_identify::<K>(&self.decoder, object);
        match &*type_ {
            "ADDED" => Ok(decode().map_or_else(WatchEvent::Undecodable, WatchEvent::Added)),
            "MODIFIED" => Ok(decode().map_or_else(WatchEvent::Undecodable, WatchEvent::Modified)),
            "DELETED" => Ok(decode().map_or_else(WatchEvent::UndecodableDeleted, WatchEvent::Deleted)),
            "BOOKMARK" => bookmark(object).map_err(|error| not_an_event(&error)),
            "ERROR" => {
                let status: Status = serde_json::from_str(object).map_err(|error| not_an_event(&error))?;
                Err(ApiError::Status(Box::new(status)))
            }
            other => Err(not_an_event(&format_args!("unknown type {other:?}"))),
        }
    }

    /// What servers send, to the letter, needs no parser to find the object: that saves going over it twice. Anything
    /// else, faults included, is left to the caller.
    fn usual_event(&self, line: &str) -> Option<WatchEvent<K>> {
        let rest = line.strip_prefix(r#"{"type":""#)?;
        let (type_, rest) = rest.split_once(r#"","object":"#)?;
        let object = rest.trim_end().strip_suffix('}')?;
        let event = match type_ {
            "ADDED" => WatchEvent::Added,
            "MODIFIED" => WatchEvent::Modified,
            "DELETED" => WatchEvent::Deleted,
            _ => return None,
        };
        K::decode(&self.decoder, object).ok().map(event)
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    type_: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct BookmarkObject {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
    annotations: Option<kcm_api::Annotations>,
}

fn bookmark<K>(object: &str) -> Result<WatchEvent<K>, serde_json::Error> {
    let BookmarkObject { metadata: BookmarkMeta { resource_version, annotations } } =
        serde_json::from_str(object)?;
    let initial_events_end = annotations
        .is_some_and(|annotations| annotations.get(INITIAL_EVENTS_END).is_some_and(|end| end == "true"));
    Ok(WatchEvent::Bookmark { resource_version, initial_events_end })
}
