//! Lists in pages.

use bytes::Bytes;
use kcm_api::{ApiError, ObjectKey};
use kcm_informer::{List, ListOptions, Undecodable};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    ApiClient,
    kind::{Kind, decode_or_identify},
    request::{Query, Request, collection_path, namespaced_path},
};

/// Objects per page. A page is in memory as text and as objects at the same time, so this limits the peak.
const PAGE: &str = "500";

/// Objects to list.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scope<'a> {
    /// All objects.
    Cluster,
    /// The object with this key.
    One(&'a ObjectKey),
}

/// Lists the objects of a kind.
///
/// Upstream counterpart: `pager.ListPager`.
pub(crate) async fn list<K: Kind>(
    client: &ApiClient,
    decoder: &K::Decoder,
    scope: Scope<'_>,
    options: &ListOptions,
) -> Result<List<K>, ApiError> {
    // API servers ignore `limit` if they may answer from the watch cache. As upstream, it is not sent then.
    let paged = options.resource_version.is_none();
    let mut so_far = Collected::default();
    let mut next = None;
    loop {
        let request = page_request::<K>(scope, options, paged, next.as_deref());
        let body = match client.send(&request).await {
            Ok(body) => body,
            // The continue token has expired. The pages so far are useless, because the rest would have another
            // version.
            Err(error) if next.is_some() && error.is_expired() => {
                tracing::debug!(resource = K::PLURAL, err = %error, "List took too long to page through, reading it whole");
                so_far = Collected::default();
                let whole = client.send(&page_request::<K>(scope, options, false, None)).await?;
                so_far.add_page(client, &request, decoder, &whole)?;
                return Ok(so_far.into_list());
            }
            Err(error) => return Err(error),
        };
        next = so_far.add_page(client, &request, decoder, &body)?;
        if next.is_none() {
            return Ok(so_far.into_list());
        }
    }
}

fn page_request<K: Kind>(
    scope: Scope<'_>,
    options: &ListOptions,
    paged: bool,
    next: Option<&str>,
) -> Request {
    let mut query = match scope {
        Scope::Cluster => Query::new(collection_path(K::API_VERSION, K::PLURAL)),
        Scope::One(key) => {
            let mut query = Query::new(namespaced_path(K::API_VERSION, K::PLURAL, &key.namespace));
            query.add("fieldSelector", &format!("metadata.name={}", key.name));
            query
        }
    };
    if paged {
        query.add("limit", PAGE);
    }
    if let Some(next) = next {
        query.add("continue", next);
    } else if let Some(version) = &options.resource_version {
        query.add("resourceVersion", version);
    }
    Request::get(query.into_path())
}

/// Objects of the pages so far.
struct Collected<K> {
    items: Vec<K>,
    undecodable: Vec<Undecodable>,
    resource_version: String,
}

impl<K> Default for Collected<K> {
    fn default() -> Self {
        Self { items: Vec::new(), undecodable: Vec::new(), resource_version: String::new() }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
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
}

impl<K: Kind> Collected<K> {
    /// Adds a page. Returns the continue token, if there are more pages.
    fn add_page(
        &mut self,
        client: &ApiClient,
        request: &Request,
        decoder: &K::Decoder,
        body: &Bytes,
    ) -> Result<Option<String>, ApiError> {
        let not_a_list = |error: &dyn std::fmt::Display| {
            ApiError::Decode(format!("{}: not a list: {error}", client.describe(request)))
        };
        let text = std::str::from_utf8(body).map_err(|error| not_a_list(&error))?;
        let page: Page<'_> = serde_json::from_str(text).map_err(|error| not_a_list(&error))?;
        let items = page.items.unwrap_or_default();
        self.items.reserve(items.len());
        for item in items {
            match decode_or_identify::<K>(decoder, item.get()) {
                Ok(object) => self.items.push(object),
                Err(undecodable) => self.undecodable.push(undecodable),
            }
        }
        // All pages have the same version.
        self.resource_version = page.metadata.resource_version;
        Ok(page.metadata.next.filter(|next| !next.is_empty()))
    }

    fn into_list(self) -> List<K> {
        let Self { items, undecodable, resource_version } = self;
        List { items, undecodable, resource_version }
    }
}
