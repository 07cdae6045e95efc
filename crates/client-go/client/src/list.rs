//! Lists in pages.

use http_body_util::BodyExt;
use kcm_api::{
    ApiError, ErrorCause,
    list::{ListError, ListItem, ListMeta, ListSplitter},
};
use kcm_informer::{List, ListSink};
use serde_json::value::RawValue;
use tower::BoxError;

use crate::{
    api::{Api, ListParams, Page},
    api_client::ReadBody,
    decode::{decode_message_or_identify, decode_or_identify},
    request::{Query, Request},
    transport::ResponseBody,
};

/// Lists objects, page by page, and adds them to `sink` while they arrive. Returns the resource version of the list.
///
/// `resource_version` is the freshness of the list.
pub(crate) async fn list<K: Send + Sync + 'static>(
    api: &Api<K>,
    params: &ListParams,
    resource_version: Option<&str>,
    sink: &mut dyn ListSink<K>,
) -> Result<String, ApiError> {
    // API servers ignore `limit` if they may answer from the watch cache. As upstream, it is not sent then.
    let mut limit = if resource_version.is_none() { params.limit } else { 0 };
    let mut next: Option<String> = None;
    let mut is_whole = false;
    loop {
        let request = page_request(api, params, resource_version, limit, next.as_deref());
        match read_page(api, &request, next.is_some(), sink).await {
            // What was decoded from JSON and from protobuf is not mixed.
            Ok(PageEnd::FallsBack) => next = None,
            Ok(PageEnd::Complete(meta)) => {
                // All pages have the same version.
                let version = meta.resource_version.clone();
                next = meta.next_page();
                if next.is_none() {
                    return Ok(version);
                }
                continue;
            }
            // The continue token has expired. The pages so far are useless, because the rest would have another
            // version.
            Err(error) if next.is_some() && !is_whole && error.is_expired() => {
                let resource = &*api.resource().plural;
                tracing::debug!(resource, err = %error, "List took too long to page through, reading it whole");
                (next, limit, is_whole) = (None, 0, true);
            }
            Err(error) => return Err(error),
        }
        sink.clear();
    }
}

/// Lists one page.
pub(crate) async fn page<K: Send + Sync + 'static>(
    api: &Api<K>,
    params: &ListParams,
    continue_token: Option<&str>,
) -> Result<Page<K>, ApiError> {
    let mut list = List::default();
    let meta = loop {
        let request =
            page_request(api, params, params.resource_version.as_deref(), params.limit, continue_token);
        match read_page(api, &request, false, &mut list).await? {
            PageEnd::Complete(meta) => break meta,
            PageEnd::FallsBack => list.clear(),
        }
    };
    let remaining_item_count = meta.remaining_item_count;
    list.resource_version.clone_from(&meta.resource_version);
    Ok(Page { list, continue_token: meta.next_page(), remaining_item_count })
}

fn page_request<K: 'static>(
    api: &Api<K>,
    params: &ListParams,
    resource_version: Option<&str>,
    limit: u32,
    next: Option<&str>,
) -> Request {
    let mut query = Query::new(api.collection_path());
    params.add_selectors(&mut query);
    if limit > 0 {
        query.add("limit", &limit.to_string());
    }
    if let Some(next) = next {
        query.add("continue", next);
    } else if let Some(version) = resource_version {
        query.add("resourceVersion", version);
    }
    let mut request = Request::get(query.into_path());
    request.accept = api.accept_list(params.metadata_only);
    request
}

/// Result of the request of a page.
enum PageEnd {
    /// The page is complete.
    Complete(ListMeta),
    /// An object must be requested in JSON.
    FallsBack,
}

/// Reads one page. `is_continued` is `true` if `sink` contains the objects of other pages.
async fn read_page<K: Send + Sync + 'static>(
    api: &Api<K>,
    request: &Request,
    is_continued: bool,
    sink: &mut dyn ListSink<K>,
) -> Result<PageEnd, ApiError> {
    let is_protobuf = api.uses_protobuf();
    let mut page =
        PageDecoder { api, sink, is_protobuf, is_continued, added: 0, skipped: 0, falls_back: false };
    let meta = api.client().send_and_read(request, &mut PageBody(&mut page)).await?;
    let falls_back = page.falls_back;
    match meta {
        Ok(_) if falls_back => Ok(PageEnd::FallsBack),
        Ok(meta) => Ok(PageEnd::Complete(meta)),
        Err(error) => {
            let text = format!("{}: not a list: {error}", api.client().describe(request));
            Err(ApiError::Decode(ErrorCause::new(text, error)))
        }
    }
}

/// Receiver of the encoded objects of a page.
trait PageSink: Send {
    /// Starts a response. The one before, if any, is incomplete.
    fn start(&mut self);

    fn add(&mut self, item: ListItem<'_>) -> Result<(), ListError>;
}

/// Passes the objects of a page to a sink while they arrive.
struct PageBody<'a>(&'a mut dyn PageSink);

impl ReadBody for PageBody<'_> {
    type Output = Result<ListMeta, ListError>;

    async fn read(
        &mut self,
        mut body: ResponseBody,
        received: &mut usize,
    ) -> Result<Result<ListMeta, ListError>, BoxError> {
        self.0.start();
        let mut splitter = ListSplitter::new();
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame?.into_data() else { continue };
            *received += piece.len();
            let mut piece = &*piece;
            loop {
                let added = match splitter.next(&mut piece) {
                    Ok(Some(item)) => self.0.add(item),
                    Ok(None) => break,
                    Err(error) => Err(error),
                };
                if let Err(error) = added {
                    return Ok(Err(error));
                }
                // Much of a list can have arrived. Other tasks of the thread run in between.
                tokio::task::consume_budget().await;
            }
        }
        Ok(splitter.finish())
    }
}

/// Decodes the objects of a page.
struct PageDecoder<'a, K> {
    api: &'a Api<K>,
    sink: &'a mut dyn ListSink<K>,
    /// `true` if protobuf was requested. A server that sends it in response to a request for JSON would do so again.
    is_protobuf: bool,
    is_continued: bool,
    /// Number of objects of this page in the sink.
    added: usize,
    /// Number of objects of this response that an earlier one has added.
    skipped: usize,
    /// `true` if an object must be requested in JSON.
    falls_back: bool,
}

impl<K: Send + Sync + 'static> PageSink for PageDecoder<'_, K> {
    fn start(&mut self) {
        if self.is_continued {
            // A continue token determines the objects and their order.
            self.skipped = self.added;
        } else if self.added > 0 {
            self.sink.clear();
            self.added = 0;
        }
    }

    fn add(&mut self, item: ListItem<'_>) -> Result<(), ListError> {
        if self.skipped > 0 {
            self.skipped -= 1;
            return Ok(());
        }
        let (decoder, kind) = (&**self.api.decoder(), &*self.api.resource().kind);
        let decoded = match item {
            ListItem::Json(text) => decode_or_identify(decoder, kind, text),
            ListItem::Protobuf(message) => decode_message_or_identify(decoder, kind, message),
        };
        self.added += 1;
        match (decoded, item) {
            (Ok(object), _) => self.sink.add(object),
            (Err(undecodable), ListItem::Json(text)) => {
                // Invalid JSON makes the whole list invalid.
                serde_json::from_str::<&RawValue>(text)?;
                self.sink.add_undecodable(undecodable);
            }
            (Err(undecodable), ListItem::Protobuf(_))
                if self.is_protobuf && self.api.fall_back_to_json(&undecodable.error) =>
            {
                self.falls_back = true;
            }
            (Err(undecodable), ListItem::Protobuf(_)) => self.sink.add_undecodable(undecodable),
        }
        Ok(())
    }
}
