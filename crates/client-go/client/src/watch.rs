//! Watches.

use std::{borrow::Cow, time::Duration};

use futures_util::{Stream, stream};
use http::{HeaderValue, Response, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use kcm_api::{
    ApiError, ErrorCause, Status,
    protobuf::{self, Identity, WatchFrame},
};
use kcm_clock::Sleep;
use kcm_informer::{Undecodable, WatchEvent, WatchOptions};
use serde::Deserialize;
use serde_json::value::RawValue;
use tower::BoxError;

use crate::{
    api::{Api, ListParams},
    decode::{decode_message_or_identify, decode_or_identify},
    failure,
    framing::{Frames, Framing, TooLong},
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
        events: Frames::new(framing(&answer), MAX_EVENT_SIZE),
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
    events: Frames,
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
                Err(TooLong) => {
                    let error = format!("{}: an event of over {MAX_EVENT_SIZE} bytes", self.what);
                    return Some(Err(ApiError::Decode(error.into())));
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
                    return Some(Err(failure::connection_error(&self.what, error)));
                }
            }
        }
    }

    /// Returns an error if the stream ended within an event.
    fn rest(&self) -> Option<Result<WatchEvent<K>, ApiError>> {
        let cut = || format!("{}: the stream ended within an event", self.what);
        self.events.has_rest().then(|| Err(ApiError::Transport(cut().into())))
    }

    fn decode(&self, event: &[u8]) -> Result<WatchEvent<K>, ApiError> {
        if self.events.framing() == Framing::Lengths {
            let WatchFrame { type_, object } =
                WatchFrame::read(event).map_err(|error| self.not_an_event(error))?;
            let object = protobuf::open_envelope(object).map_err(|error| self.not_an_event(error))?;
            return self.event(type_, Raw::Protobuf(object));
        }
        let line = std::str::from_utf8(event).map_err(|error| self.not_an_event(error))?;
        if let Some((type_, object)) = usual_form(line) {
            match self.event(type_, Raw::Json(object)) {
                // Perhaps the line has another form.
                Ok(WatchEvent::Undecodable(_) | WatchEvent::UndecodableDeleted(_))
                | Err(ApiError::Decode(_)) => {}
                event => return event,
            }
        }
        let Line { type_, object } = serde_json::from_str(line).map_err(|error| self.not_an_event(error))?;
        self.event(&type_, Raw::Json(object.get()))
    }

    fn event(&self, type_: &str, object: Raw<'_>) -> Result<WatchEvent<K>, ApiError> {
        Ok(match type_ {
            "ADDED" => self.object(object)?.map_or_else(WatchEvent::Undecodable, WatchEvent::Added),
            "MODIFIED" => self.object(object)?.map_or_else(WatchEvent::Undecodable, WatchEvent::Modified),
            "DELETED" => {
                self.object(object)?.map_or_else(WatchEvent::UndecodableDeleted, WatchEvent::Deleted)
            }
            "BOOKMARK" => object.bookmark().map_err(|error| self.not_an_event(error))?,
            "ERROR" => {
                let status = object.status().map_err(|error| self.not_an_event(error))?;
                return Err(ApiError::Status(Box::new(status)));
            }
            other => return Err(self.not_an_event(format!("unknown type {other:?}"))),
        })
    }

    fn object(&self, object: Raw<'_>) -> Result<Result<K, Undecodable>, ApiError> {
        let (decoder, kind) = (&**self.api.decoder(), &*self.api.resource().kind);
        let message = match object {
            Raw::Json(text) => return Ok(decode_or_identify(decoder, kind, text)),
            Raw::Protobuf(message) => message,
        };
        match decode_message_or_identify(decoder, kind, message) {
            // The next watch resumes before this event.
            Err(undecodable) if self.api.fall_back_to_json(&undecodable.error) => {
                Err(ApiError::Transport(format!("{}: {}", self.what, undecodable.error).into()))
            }
            decoded => Ok(decoded),
        }
    }

    fn not_an_event(&self, error: impl Into<BoxError>) -> ApiError {
        let error = error.into();
        ApiError::Decode(ErrorCause::new(format!("{}: not an event: {error}", self.what), error))
    }
}

/// Type and object of an event in the exact form that API servers write. Its object is parsed once, while decoding
/// another form parses it twice.
fn usual_form(line: &str) -> Option<(&str, &str)> {
    let (type_, rest) = line.strip_prefix(r#"{"type":""#)?.split_once(r#"","object":"#)?;
    Some((type_, rest.trim_end().strip_suffix('}')?))
}

/// Object of an event in its encoding.
#[derive(Clone, Copy)]
enum Raw<'a> {
    Json(&'a str),
    /// Without envelope.
    Protobuf(&'a [u8]),
}

impl Raw<'_> {
    fn bookmark<K>(self) -> Result<WatchEvent<K>, BoxError> {
        match self {
            Self::Json(object) => {
                let BookmarkObject { metadata: BookmarkMeta { resource_version, annotations } } =
                    serde_json::from_str(object)?;
                let end = annotations.as_ref().and_then(|annotations| annotations.get(INITIAL_EVENTS_END));
                let initial_events_end = end.is_some_and(|end| end == "true");
                Ok(WatchEvent::Bookmark { resource_version, initial_events_end })
            }
            Self::Protobuf(object) => {
                let identity = Identity::read(object)?;
                Ok(WatchEvent::Bookmark {
                    resource_version: identity.resource_version.to_owned(),
                    initial_events_end: identity.annotations.contains(&(INITIAL_EVENTS_END, "true")),
                })
            }
        }
    }

    fn status(self) -> Result<Status, BoxError> {
        Ok(match self {
            Self::Json(object) => serde_json::from_str(object)?,
            Self::Protobuf(object) => Status::decode_protobuf(object)?,
        })
    }
}

/// The encoding of the response determines the separation of events.
fn framing(response: &Response<ResponseBody>) -> Framing {
    let content_type = response.headers().get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    let is_protobuf = content_type.starts_with(protobuf::CONTENT_TYPE.as_bytes());
    if is_protobuf { Framing::Lengths } else { Framing::Lines }
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
