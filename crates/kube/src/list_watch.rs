use std::{borrow::Cow, collections::BTreeMap, fmt, io, marker::PhantomData, pin::pin, sync::Arc};

use async_trait::async_trait;
use futures_util::{AsyncBufReadExt, StreamExt, stream};
use http::{HeaderValue, Request, header};
use kcm_api::{
    ApiError, Status,
    list::{ListError, ListItem, ListMeta, ListSplitter},
    object_name,
};
use kcm_informer::{
    InformerOptions, ListOptions, ListSink, ListWatch, ListWatchError, Sources, Undecodable, WatchEvent,
    WatchOptions, WatchStream,
};
use kube_client::{Api, Client};
use kube_core::{Resource, params::ListParams};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::error::{api_error, list_watch_error};

/// Objects per page of a list that is a consistent read.
const PAGE_SIZE: u32 = 500;

/// Annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Returns the source of the objects of `api`, for an informer.
///
/// Of `params`, only the selectors and the page size (`limit`, 500 by default) are used. The scope is that of `api`. For
/// `Api<PartialObjectMeta<K>>`, only metadata is read.
///
/// An object that cannot be decoded does not prevent others from being read.
pub fn list_watch<K>(api: Api<K>, params: ListParams) -> Arc<dyn ListWatch<K>>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    Arc::new(ApiListWatch {
        path: api.resource_url().to_owned(),
        client: api.into_client(),
        params,
        kind: PhantomData,
    })
}

/// Returns the sources of the objects that `options` describe. `resource` is `&()` for types that are known at compile
/// time.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kcm_clock::{RealClock, SeededRandom};
/// use kcm_informer::{InformerConfig, InformerOptions, SharedInformer, SharedInformerFactory, drop_managed_fields};
///
/// fn settings(factory: &SharedInformerFactory, client: &kube_client::Client) -> SharedInformer<ConfigMap> {
///     let options = InformerOptions::new("configmaps").namespace("team-a").namespace("team-b").labels("app=web");
///     factory.informer(&options, || {
///         let sources = kcm_kube::sources(client, &(), &options);
///         let (clock, random) = (Arc::new(RealClock::new()), Arc::new(SeededRandom::from_entropy()));
///         SharedInformer::new(InformerConfig {
///             transform: Some(Arc::new(drop_managed_fields)),
///             ..InformerConfig::with_sources("configmaps", sources, clock, random)
///         })
///     })
/// }
/// ```
pub fn sources<K>(client: &Client, resource: &K::DynamicType, options: &InformerOptions) -> Sources<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let selector = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let params = ListParams {
        label_selector: selector(&options.label_selector),
        field_selector: selector(&options.field_selector),
        ..ListParams::default()
    };
    Sources::of(options.namespaces.iter().cloned(), |namespace| {
        let path = K::url_path(resource, namespace);
        Arc::new(ApiListWatch { path, client: client.clone(), params: params.clone(), kind: PhantomData })
    })
}

/// Lists and watches a collection with a kube client.
struct ApiListWatch<K> {
    client: Client,
    path: String,
    params: ListParams,
    kind: PhantomData<fn() -> K>,
}

impl<K: Resource + DeserializeOwned> ApiListWatch<K> {
    fn request(&self, list: bool, query: &[(&str, &str)]) -> Result<Request<Vec<u8>>, ApiError> {
        let mut uri = form_urlencoded::Serializer::for_suffix(format!("{}?", self.path), self.path.len() + 1);
        let selectors =
            [("labelSelector", &self.params.label_selector), ("fieldSelector", &self.params.field_selector)];
        for (name, selector) in selectors {
            if let Some(selector) = selector {
                uri.append_pair(name, selector);
            }
        }
        uri.extend_pairs(query);
        let accept = match (K::metadata_api(), list) {
            (false, _) => "application/json",
            (true, true) => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            (true, false) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        };
        let request = Request::get(uri.finish()).header(header::ACCEPT, accept).body(Vec::new());
        request.map_err(|error| ApiError::InvalidRequest(error.to_string()))
    }

    /// Adds the objects of a page to `sink` while they arrive.
    async fn page(&self, query: &[(&str, &str)], sink: &mut dyn ListSink<K>) -> Result<ListMeta, ApiError> {
        let not_a_list = |error: ListError| ApiError::Decode(error.to_string());
        let body = self.client.request_stream(self.request(true, query)?).await.map_err(api_error)?;
        let (mut body, mut splitter) = (pin!(body), ListSplitter::new());
        loop {
            let mut piece = body.fill_buf().await.map_err(|error| read_error(&error))?;
            let len = piece.len();
            if len == 0 {
                return splitter.finish().map_err(not_a_list);
            }
            while let Some(item) = splitter.next(&mut piece).map_err(not_a_list)? {
                let ListItem::Json(text) = item else { continue };
                match decode(text) {
                    Ok(object) => sink.add(object),
                    Err(undecodable) => {
                        // Invalid JSON makes the whole list invalid.
                        serde_json::from_str::<&RawValue>(text).map_err(|error| not_a_list(error.into()))?;
                        sink.add_undecodable(undecodable);
                    }
                }
            }
            body.consume_unpin(len);
        }
    }

    async fn pages(&self, options: &ListOptions, sink: &mut dyn ListSink<K>) -> Result<String, ApiError> {
        let size = self.params.limit.unwrap_or(PAGE_SIZE).to_string();
        let whole: Vec<(&str, &str)> =
            options.resource_version.iter().map(|version| ("resourceVersion", version.as_str())).collect();
        // API servers ignore `limit` if they may answer from the watch cache.
        let first = if whole.is_empty() { vec![("limit", size.as_str())] } else { whole.clone() };
        let mut meta = self.page(&first, sink).await?;
        loop {
            let version = meta.resource_version.clone();
            let Some(token) = meta.next_page() else { return Ok(version) };
            meta = match self.page(&[("limit", &size), ("continue", &token)], sink).await {
                // The continue token has expired. The rest would have another version, so all is read again.
                Err(error) if error.is_expired() => {
                    sink.clear();
                    self.page(&whole, sink).await?
                }
                page => page?,
            };
        }
    }
}

fn decode<K: DeserializeOwned>(object: &str) -> Result<K, Undecodable> {
    serde_json::from_str(object).map_err(|error| {
        let (name, resource_version) = object_name(object);
        Undecodable { name, resource_version, error: error.to_string() }
    })
}

/// Line of a watch.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    type_: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Object of a bookmark.
#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Decodes a line of a watch.
fn event<K: DeserializeOwned>(line: &str) -> Result<WatchEvent<K>, ApiError> {
    let failed = |error: serde_json::Error| {
        let message = format!("cannot decode watch event: {error}");
        // The connection was lost within the line.
        if error.is_eof() { ApiError::Transport(message) } else { ApiError::Decode(message) }
    };
    let Line { type_, object } = serde_json::from_str(line).map_err(failed)?;
    match &*type_ {
        "ADDED" => Ok(decode(object.get()).map_or_else(WatchEvent::Undecodable, WatchEvent::Added)),
        "MODIFIED" => Ok(decode(object.get()).map_or_else(WatchEvent::Undecodable, WatchEvent::Modified)),
        "DELETED" => {
            Ok(decode(object.get()).map_or_else(WatchEvent::UndecodableDeleted, WatchEvent::Deleted))
        }
        "BOOKMARK" => {
            let Bookmark { metadata } = serde_json::from_str(object.get()).map_err(failed)?;
            let initial_events_end =
                metadata.annotations.get(INITIAL_EVENTS_END).is_some_and(|end| end == "true");
            Ok(WatchEvent::Bookmark { resource_version: metadata.resource_version, initial_events_end })
        }
        "ERROR" => {
            let status: Status = serde_json::from_str(object.get()).map_err(failed)?;
            Err(ApiError::Status(Box::new(status)))
        }
        other => Err(ApiError::Decode(format!("unknown type of watch event {other:?}"))),
    }
}

fn read_error(error: &io::Error) -> ApiError {
    let message = format!("failed to read response: {error}");
    match error.kind() {
        io::ErrorKind::TimedOut => ApiError::Timeout(message),
        _ => ApiError::Transport(message),
    }
}

#[async_trait]
impl<K> ListWatch<K> for ApiListWatch<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    async fn list_into(
        &self,
        options: &ListOptions,
        sink: &mut dyn ListSink<K>,
    ) -> Result<String, ListWatchError> {
        self.pages(options, sink).await.map_err(list_watch_error)
    }

    async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<K>, ListWatchError> {
        let timeout = options.timeout.as_secs().to_string();
        let mut query =
            vec![("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", &timeout)];
        query.extend(options.resource_version.iter().map(|version| ("resourceVersion", version.as_str())));
        if options.send_initial_events {
            query.extend([("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]);
        }
        let mut request = self.request(false, &query).map_err(list_watch_error)?;
        // A compressed stream is one gzip member per event since Kubernetes v1.37, and the client decodes only the first.
        request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let body = self.client.request_stream(request).await;
        let lines = body.map_err(|error| list_watch_error(api_error(error)))?.lines();
        let events = lines.map(|line| {
            line.map_err(|error| read_error(&error)).and_then(|line| event(&line)).map_err(list_watch_error)
        });
        // An error ends the stream.
        let until_error = stream::unfold(Some(events.boxed()), async |events| {
            let mut events = events?;
            let event = events.next().await?;
            let rest = event.is_ok().then_some(events);
            Some((event, rest))
        });
        Ok(until_error.boxed())
    }
}

impl<K> fmt::Debug for ApiListWatch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiListWatch")
            .field("path", &self.path)
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}
