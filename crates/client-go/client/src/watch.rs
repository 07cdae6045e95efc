//! Watches.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::{HeaderValue, Response, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use kcm_api::{
    ApiError, ProtobufError, Status,
    protobuf::{self, Identity, WatchFrame},
};
use kcm_clock::Sleep;
use kcm_informer::{WatchEvent, WatchOptions};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    api::{Api, ListParams},
    causes,
    decode::{decode_message_or_identify, decode_or_identify},
    frames::Frames,
    lines::{Lines, TooLong},
    request::{Query, Request},
    transport::ResponseBody,
};

/// Maximum length of an event. The limit of etcd is far lower.
const MAX_EVENT_SIZE: usize = 32 << 20;

/// Timeout of a watch if its options contain none.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(5);

/// Time after the requested timeout at which a watch is closed by the client.
///
/// DEVIATION: upstream waits for the API server to answer and end the watch.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(30);

/// Annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Bookmarks of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bookmarks {
    /// The API server may send bookmarks.
    Allowed,
    /// The API server sends no bookmarks.
    None,
}

/// Opens a watch.
pub(crate) async fn watch<K: Send + Sync + 'static>(
    api: &Api<K>,
    params: &ListParams,
    options: &WatchOptions,
    bookmarks: Bookmarks,
) -> Result<impl Stream<Item = Result<WatchEvent<K>, ApiError>> + Send + use<K>, ApiError> {
    let client = api.client();
    let timeout = if options.timeout.is_zero() { DEFAULT_TIMEOUT } else { options.timeout };
    let request = watch_request(api, params, &WatchOptions { timeout, ..options.clone() }, bookmarks);
    let limit = timeout.saturating_add(TIMEOUT_MARGIN);
    let deadline = client.clock().sleep(limit);
    let answer = client.open(&request, limit).await?;
    let watching = Watching::<K> {
        what: client.describe(&request),
        events: Events::of(&answer),
        body: answer,
        deadline,
        api: api.clone(),
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

fn watch_request<K: 'static>(
    api: &Api<K>,
    params: &ListParams,
    options: &WatchOptions,
    bookmarks: Bookmarks,
) -> Request {
    let mut query = Query::new(api.collection_path());
    query.add("watch", "true");
    if bookmarks == Bookmarks::Allowed {
        query.add("allowWatchBookmarks", "true");
    }
    params.add_selectors(&mut query);
    if let Some(version) = &options.resource_version {
        query.add("resourceVersion", version);
    }
    if options.send_initial_events {
        query.add("sendInitialEvents", "true");
        query.add("resourceVersionMatch", "NotOlderThan");
    }
    query.add("timeoutSeconds", &options.timeout.as_secs().to_string());
    let mut request = Request::get(query.into_path());
    request.accept = api.accept(params.metadata_only);
    request
}

struct Watching<K> {
    what: String,
    body: Response<ResponseBody>,
    events: Events,
    deadline: Sleep,
    api: Api<K>,
    over: bool,
}

impl<K: 'static> Watching<K> {
    async fn next(&mut self) -> Option<Result<WatchEvent<K>, ApiError>> {
        loop {
            match self.events.next() {
                Ok(Some(event)) => return Some(self.decode(&event)),
                Ok(None) if self.over => return self.rest(),
                Ok(None) => {}
                Err(_) => {
                    let what = &self.what;
                    return Some(Err(ApiError::Decode(format!(
                        "{what}: an event of over {MAX_EVENT_SIZE} bytes"
                    ))));
                }
            }
            let frame = tokio::select! {
                biased;
                frame = self.body.body_mut().frame() => frame,
                // Pings detect a dead connection. This detects a server that does not end the watch.
                () = &mut self.deadline => return Some(Err(ApiError::Timeout(self.what.clone()))),
            };
            match frame {
                None => self.over = true,
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.events.push(&piece);
                    }
                }
                Some(Err(error)) => {
                    let cause = causes::describe(&*error);
                    return Some(Err(ApiError::Transport(format!("{}: {cause}", self.what))));
                }
            }
        }
    }

    /// Returns an error if the stream ended within an event.
    fn rest(&self) -> Option<Result<WatchEvent<K>, ApiError>> {
        let cut = || Err(ApiError::Transport(format!("{}: the stream ended within an event", self.what)));
        self.events.has_rest().then(cut)
    }

    fn decode(&self, event: &[u8]) -> Result<WatchEvent<K>, ApiError> {
        match self.events {
            Events::Json(_) => self.line(event),
            Events::Protobuf(_) => self.frame(event),
        }
    }

    fn not_an_event(&self, error: &dyn std::fmt::Display) -> ApiError {
        ApiError::Decode(format!("{}: not an event: {error}", self.what))
    }

    fn frame(&self, frame: &[u8]) -> Result<WatchEvent<K>, ApiError> {
        let not_an_event = |error: ProtobufError| self.not_an_event(&error);
        let WatchFrame { type_, object } = WatchFrame::read(frame).map_err(not_an_event)?;
        let object = protobuf::open_envelope(object).map_err(not_an_event)?;
        let decode = || {
            let decoded =
                decode_message_or_identify(&**self.api.decoder(), &self.api.resource().kind, object);
            match decoded {
                // The next watch resumes before this event.
                Err(undecodable) if self.api.fall_back_to_json(&undecodable.error) => {
                    Err(ApiError::Transport(format!("{}: {}", self.what, undecodable.error)))
                }
                decoded => Ok(decoded),
            }
        };
        match type_ {
            "ADDED" => Ok(decode()?.map_or_else(WatchEvent::Undecodable, WatchEvent::Added)),
            "MODIFIED" => Ok(decode()?.map_or_else(WatchEvent::Undecodable, WatchEvent::Modified)),
            "DELETED" => Ok(decode()?.map_or_else(WatchEvent::UndecodableDeleted, WatchEvent::Deleted)),
            "BOOKMARK" => {
                let identity = Identity::read(object).map_err(not_an_event)?;
                Ok(WatchEvent::Bookmark {
                    resource_version: identity.resource_version.to_owned(),
                    initial_events_end: identity.annotations.contains(&(INITIAL_EVENTS_END, "true")),
                })
            }
            "ERROR" => {
                let status = Status::decode_protobuf(object).map_err(not_an_event)?;
                Err(ApiError::Status(Box::new(status)))
            }
            other => Err(self.not_an_event(&format_args!("unknown type {other:?}"))),
        }
    }

    fn line(&self, line: &[u8]) -> Result<WatchEvent<K>, ApiError> {
        let not_an_event = |error: &dyn std::fmt::Display| self.not_an_event(error);
        let line = std::str::from_utf8(line).map_err(|error| not_an_event(&error))?;
        if let Some(event) = self.usual_event(line) {
            return Ok(event);
        }
        let Line { type_, object } = serde_json::from_str(line).map_err(|error| not_an_event(&error))?;
        let object = object.get();
        let decode = || decode_or_identify(&**self.api.decoder(), &self.api.resource().kind, object);
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

    /// Decodes an event in the exact form that API servers write, without parsing it twice. Returns `None` for any
    /// other form, and for objects that cannot be decoded.
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
        self.api.decoder().decode(object).ok().map(event)
    }
}

/// Splits the stream of a watch into events.
enum Events {
    Json(Lines),
    Protobuf(Frames),
}

impl Events {
    /// The encoding of the response determines the separation of events.
    fn of(response: &Response<ResponseBody>) -> Self {
        let content_type = response.headers().get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
        if content_type.starts_with(protobuf::CONTENT_TYPE.as_bytes()) {
            Self::Protobuf(Frames::new(MAX_EVENT_SIZE))
        } else {
            Self::Json(Lines::new(MAX_EVENT_SIZE))
        }
    }

    fn push(&mut self, piece: &[u8]) {
        match self {
            Self::Json(lines) => lines.push(piece),
            Self::Protobuf(frames) => frames.push(piece),
        }
    }

    fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        match self {
            Self::Json(lines) => lines.next(),
            Self::Protobuf(frames) => frames.next(),
        }
    }

    fn has_rest(&self) -> bool {
        match self {
            Self::Json(lines) => lines.has_rest(),
            Self::Protobuf(frames) => frames.has_rest(),
        }
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
