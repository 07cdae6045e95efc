//! Lists, page by page.

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

/// Objects a page. A page is held as text and as objects at the same time, so this bounds the peak.
const PAGE: &str = "500";

/// Which objects of a type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scope<'a> {
    /// All of them.
    Cluster,
    /// One of them, or none.
    One(&'a ObjectKey),
}

/// The objects of a type.
///
/// Upstream counterpart: `pager.ListPager`.
pub(crate) async fn list<K: Kind>(
    client: &ApiClient,
    decoder: &K::Decoder,
    scope: Scope<'_>,
    options: &ListOptions,
) -> Result<List<K>, ApiError> {
    // A server that may answer from its cache ignores `limit`, as upstream's reflector does not ask for pages then.
    let paged = options.resource_version.is_none();
    let mut so_far = Collected::default();
    let mut next = None;
    loop {
        let request = page_request::<K>(scope, options, paged, next.as_deref());
        let body = match client.send(&request).await {
            Ok(body) => body,
            // The rest of a list that took too long to read. What has been read is of no use without it.
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

/// What has been read of a list.
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
    /// Adds a page; answers with the token for the next, if there is one.
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
        // Every page is of the version of the first.
        self.resource_version = page.metadata.resource_version;
        Ok(page.metadata.next.filter(|next| !next.is_empty()))
    }

    fn into_list(self) -> List<K> {
        let Self { items, undecodable, resource_version } = self;
        List { items, undecodable, resource_version }
    }
}
