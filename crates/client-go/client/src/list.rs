//! Lists in pages.

use bytes::Bytes;
use kcm_api::{
    ApiError,
    protobuf::{self, ListPage},
};
use kcm_informer::{List, Undecodable};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    api::{Api, ListParams, Page},
    decode::{decode_message_or_identify, decode_or_identify},
    request::{Query, Request},
};

/// Lists objects, page by page. `resource_version` is the freshness of the list.
pub(crate) async fn list<K: Send + Sync + 'static>(
    api: &Api<K>,
    params: &ListParams,
    resource_version: Option<&str>,
) -> Result<List<K>, ApiError> {
    // API servers ignore `limit` if they may answer from the watch cache. As upstream, it is not sent then.
    let limit = if resource_version.is_none() { params.limit } else { 0 };
    let client = api.client();
    let mut so_far = Collected::default();
    let mut next: Option<String> = None;
    loop {
        let request = page_request(api, params, resource_version, limit, next.as_deref());
        let body = match client.send(&request).await {
            Ok(body) => body,
            // The continue token has expired. The pages so far are useless, because the rest would have another
            // version.
            Err(error) if next.is_some() && error.is_expired() => {
                let resource = &*api.resource().plural;
                tracing::debug!(resource, err = %error, "List took too long to page through, reading it whole");
                so_far = Collected::default();
                let whole = client.send(&page_request(api, params, resource_version, 0, None)).await?;
                so_far.add_page(api, &request, &whole)?;
                if so_far.falls_back {
                    (so_far, next) = (Collected::default(), None);
                    continue;
                }
                return Ok(so_far.into_list());
            }
            Err(error) => return Err(error),
        };
        next = so_far.add_page(api, &request, &body)?.next_page();
        if so_far.falls_back {
            // What was decoded from JSON and from protobuf is not mixed.
            (so_far, next) = (Collected::default(), None);
        } else if next.is_none() {
            return Ok(so_far.into_list());
        }
    }
}

/// Lists one page.
pub(crate) async fn page<K: Send + Sync + 'static>(
    api: &Api<K>,
    params: &ListParams,
    continue_token: Option<&str>,
) -> Result<Page<K>, ApiError> {
    let (collected, meta) = loop {
        let request =
            page_request(api, params, params.resource_version.as_deref(), params.limit, continue_token);
        let body = api.client().send(&request).await?;
        let mut collected = Collected::default();
        let meta = collected.add_page(api, &request, &body)?;
        if !collected.falls_back {
            break (collected, meta);
        }
    };
    let remaining_item_count = meta.remaining_item_count;
    Ok(Page { list: collected.into_list(), continue_token: meta.next_page(), remaining_item_count })
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

/// Objects of the pages so far.
struct Collected<K> {
    items: Vec<K>,
    undecodable: Vec<Undecodable>,
    resource_version: String,
    /// `true` if an object must be requested in JSON.
    falls_back: bool,
}

impl<K> Default for Collected<K> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            undecodable: Vec::new(),
            resource_version: String::new(),
            falls_back: false,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePage<'a> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
    remaining_item_count: Option<u64>,
}

impl PageMeta {
    /// Returns the continue token, if there are more pages.
    fn next_page(self) -> Option<String> {
        self.next.filter(|next| !next.is_empty())
    }
}

impl<K: Send + Sync + 'static> Collected<K> {
    /// Adds a page. Returns its metadata.
    fn add_page(&mut self, api: &Api<K>, request: &Request, body: &Bytes) -> Result<PageMeta, ApiError> {
        let not_a_list = |error: &dyn std::fmt::Display| {
            ApiError::Decode(format!("{}: not a list: {error}", api.client().describe(request)))
        };
        if protobuf::is_enveloped(body) {
            let message = protobuf::open_envelope(body).map_err(|error| not_a_list(&error))?;
            let page = ListPage::read(message).map_err(|error| not_a_list(&error))?;
            return Ok(self.add_messages(api, &page));
        }
        let text = std::str::from_utf8(body).map_err(|error| not_a_list(&error))?;
        let mut page: WirePage<'_> = serde_json::from_str(text).map_err(|error| not_a_list(&error))?;
        let items = page.items.unwrap_or_default();
        self.items.reserve(items.len());
        for item in items {
            match decode_or_identify(&**api.decoder(), &api.resource().kind, item.get()) {
                Ok(object) => self.items.push(object),
                Err(undecodable) => self.undecodable.push(undecodable),
            }
        }
        // All pages have the same version.
        self.resource_version = std::mem::take(&mut page.metadata.resource_version);
        Ok(page.metadata)
    }

    /// Adds a page in protobuf. Returns its metadata.
    fn add_messages(&mut self, api: &Api<K>, page: &ListPage<'_>) -> PageMeta {
        self.items.reserve(page.items.len());
        for message in &page.items {
            match decode_message_or_identify(&**api.decoder(), &api.resource().kind, message) {
                Ok(object) => self.items.push(object),
                Err(undecodable) if api.fall_back_to_json(&undecodable.error) => self.falls_back = true,
                Err(undecodable) => self.undecodable.push(undecodable),
            }
        }
        page.resource_version.clone_into(&mut self.resource_version);
        PageMeta {
            resource_version: String::new(),
            next: Some(page.continue_token.to_owned()),
            remaining_item_count: page.remaining_item_count.and_then(|count| count.try_into().ok()),
        }
    }

    fn into_list(self) -> List<K> {
        let Self { items, undecodable, resource_version, falls_back: _ } = self;
        List { items, undecodable, resource_version }
    }
}
