//! Reads, lists and watches.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use futures_util::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use kcm_api::ApiError;
use kcm_informer::{List, ListWatch, WatchEvent, WatchOptions};

use super::{Api, ListParams, ObjectName, Page};
use crate::{
    list,
    list_watch::Collection,
    request::Request,
    watch::{self, Bookmarks},
};

/// Duration of one watch on a single object.
const OBJECT_WATCH_TIMEOUT: Duration = Duration::from_mins(5);

/// Time to wait before a watch on a single object is opened again. It doubles with every watch that lasts less than
/// [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

impl<K: Send + Sync + 'static> Api<K> {
    /// Returns the newest state of an object. It is read from the API server, not from a cache.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kcm_client::ObjectKey;
    ///
    /// # run(async |client| {
    /// # client.api::<ConfigMap>().namespaced("shop").create(&config_map("web")).await?;
    /// // By key in all namespaces, or by name in one.
    /// let config_maps = client.api::<ConfigMap>();
    /// let by_key = config_maps.get(&ObjectKey::new("shop", "web")).await?;
    /// let by_name = config_maps.namespaced("shop").get("web").await?;
    /// assert_eq!(by_key, by_name);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`send`](crate::ApiClient::send), [`ApiError::Decode`] if the response is not such an object, and
    /// [`ApiError::InvalidRequest`] for a name without a namespace, if the resource has namespaces.
    pub async fn get(&self, name: impl Into<ObjectName<'_>>) -> Result<K, ApiError> {
        let mut request = Request::get(self.object_path(name.into())?);
        request.accept = self.accept(false);
        self.send_for_object(&request).await
    }

    /// Returns the newest state of an object, or `None` if it does not exist.
    ///
    /// It lists with a field selector, and requires the permission to list, which every informer requires, but not the
    /// permission to get.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// # run(async |client| {
    /// let config_maps = client.api::<ConfigMap>().namespaced("shop");
    /// assert!(config_maps.find("web").await?.is_none());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get).
    pub async fn find(&self, name: impl Into<ObjectName<'_>>) -> Result<Option<K>, ApiError> {
        let (namespace, name) = self.resolve(name.into())?;
        let params = ListParams::fields(format!("metadata.name={name}"));
        // Without a resource version, the API server does not answer from its watch cache.
        let mut list = List::default();
        list::list(&self.namespaced(namespace), &params, None, &mut list).await?;
        match list.undecodable.pop() {
            Some(object) => {
                let (kind, error) = (&self.resource.kind, object.error);
                Err(ApiError::Decode(format!("failed to decode {kind} {}: {error}", object.name).into()))
            }
            None => Ok(list.items.pop()),
        }
    }

    /// Lists all objects that `params` selects, page by page.
    ///
    /// If the list changes too much for its continue token to remain valid, all objects are read again in one page.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kcm_client::ListParams;
    ///
    /// # run(async |client| {
    /// let config_maps = client.api::<ConfigMap>();
    /// # config_maps.namespaced("shop").create(&config_map("web")).await?;
    /// let list = config_maps.list(&ListParams::fields("metadata.name=web")).await?;
    /// assert_eq!(list.items.len(), 1);
    /// assert!(list.undecodable.is_empty());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`send`](crate::ApiClient::send), and [`ApiError::Decode`] if a response is not a list. An object that
    /// cannot be decoded is no error; it is reported in the list.
    ///
    /// Upstream counterpart: `pager.ListPager`.
    pub async fn list(&self, params: &ListParams) -> Result<List<K>, ApiError> {
        let mut list = List::default();
        let resource_version = params.resource_version.as_deref();
        list.resource_version = list::list(self, params, resource_version, &mut list).await?;
        Ok(list)
    }

    /// Returns the pages of a list. Ends after the last page, and after an error.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use futures_util::TryStreamExt;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kcm_client::ListParams;
    ///
    /// # run(async |client| {
    /// # for name in ["a", "b", "c"] {
    /// #     client.api::<ConfigMap>().namespaced("shop").create(&config_map(name)).await?;
    /// # }
    /// let params = ListParams { limit: 2, ..ListParams::default() };
    /// let mut pages = client.api::<ConfigMap>().pages(params);
    /// let mut sizes = Vec::new();
    /// while let Some(page) = pages.try_next().await? {
    ///     sizes.push(page.list.items.len());
    /// }
    /// assert_eq!(sizes, [2, 1]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`list`](Self::list), and [`is_expired`](ApiError::is_expired) if the continue token expires between two
    /// pages. The caller should list again.
    pub fn pages(&self, params: ListParams) -> BoxStream<'static, Result<Page<K>, ApiError>> {
        let api = self.clone();
        let pages = stream::unfold(Some(None::<String>), move |next| {
            let (api, params) = (api.clone(), params.clone());
            async move {
                let page = api.list_page(&params, next?.as_deref()).await;
                let next = page.as_ref().ok().and_then(|page| page.continue_token.clone());
                Some((page, next.map(Some)))
            }
        });
        pages.boxed()
    }

    /// Lists one page of at most [`limit`](ListParams::limit) objects. `continue_token` is that of the page before.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kcm_client::ListParams;
    ///
    /// # run(async |client| {
    /// # for name in ["a", "b", "c"] {
    /// #     client.api::<ConfigMap>().namespaced("shop").create(&config_map(name)).await?;
    /// # }
    /// let (config_maps, params) = (client.api::<ConfigMap>(), ListParams { limit: 2, ..ListParams::default() });
    /// let first = config_maps.list_page(&params, None).await?;
    /// assert_eq!(first.remaining_item_count, Some(1));
    /// let second = config_maps.list_page(&params, first.continue_token.as_deref()).await?;
    /// assert_eq!(second.list.items.len(), 1);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`pages`](Self::pages).
    pub async fn list_page(
        &self,
        params: &ListParams,
        continue_token: Option<&str>,
    ) -> Result<Page<K>, ApiError> {
        list::page(self, params, continue_token).await
    }

    /// Opens a watch on all objects that `params` selects.
    ///
    /// The stream ends when the API server ends the watch, and after an error. A caller that needs every change uses
    /// an informer with [`list_watch`](Self::list_watch), which opens watches again and lists when that is needed. A zero
    /// `timeout` in `options` means five minutes.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use futures_util::TryStreamExt;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kcm_client::{ListParams, WatchEvent, WatchOptions};
    ///
    /// # run(async |client| {
    /// let config_maps = client.api::<ConfigMap>().namespaced("shop");
    /// let mut events = config_maps.watch(&ListParams::default(), &WatchOptions::default()).await?;
    /// config_maps.create(&config_map("web")).await?;
    /// assert!(matches!(events.try_next().await?, Some(WatchEvent::Added(_))));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// If the request fails; see [`is_expired`](ApiError::is_expired). A later failure is returned by the stream.
    ///
    /// # Cancel safety
    ///
    /// Dropping the stream ends the watch.
    pub async fn watch(
        &self,
        params: &ListParams,
        options: &WatchOptions,
    ) -> Result<BoxStream<'static, Result<WatchEvent<K>, ApiError>>, ApiError> {
        Ok(watch::watch(self, params, options, Bookmarks::Allowed).await?.boxed())
    }

    /// Watches an object and calls `on_change` with every state, the current one first, and with `None` when it is deleted.
    /// Never returns: a watch that ends is opened again, after one second at first and after 30 seconds while it keeps
    /// failing. Failures are logged at debug level.
    ///
    /// States between two watches are not reported, nor is a deletion between them. Standbys use it to acquire a released
    /// Lease at once; an election works without it.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use kcm_api::{Lease, ObjectKey};
    ///
    /// # run(async |client| {
    /// let (key, leases) = (ObjectKey::new("kube-system", "operator"), client.api::<Lease>());
    /// leases.create(&Lease::new(&key)).await?;
    /// let (seen, mut states) = tokio::sync::mpsc::unbounded_channel();
    /// tokio::select! {
    ///     never = leases.watch_object(&key, |lease| drop(seen.send(lease.is_some()))) => match never {},
    ///     state = states.recv() => assert_eq!(state, Some(true)),
    /// }
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch.
    pub async fn watch_object(
        &self,
        name: impl Into<ObjectName<'_>>,
        mut on_change: impl FnMut(Option<&K>) + Send,
    ) -> Infallible {
        let name = name.into();
        let (clock, kind) = (self.client.clock(), &*self.resource.kind);
        let mut backoff = MIN_BACKOFF;
        loop {
            let start = clock.monotonic();
            match self.open_object_watch(name).await {
                Ok(events) => {
                    let mut events = pin!(events);
                    while let Some(event) = events.next().await {
                        match event {
                            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                                on_change(Some(&object));
                            }
                            Ok(WatchEvent::Deleted(_) | WatchEvent::UndecodableDeleted(_)) => on_change(None),
                            Ok(WatchEvent::Bookmark { .. } | WatchEvent::Undecodable(_)) => {}
                            Err(err) => tracing::debug!(kind, %name, %err, "Watch of object ended"),
                        }
                    }
                }
                Err(err) => tracing::debug!(kind, %name, %err, delay = ?backoff, "Failed to watch object"),
            }
            if clock.monotonic().saturating_sub(start) >= MAX_BACKOFF {
                backoff = MIN_BACKOFF;
            }
            clock.sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    async fn open_object_watch(
        &self,
        name: ObjectName<'_>,
    ) -> Result<impl Stream<Item = Result<WatchEvent<K>, ApiError>> + Send + use<K>, ApiError> {
        let (namespace, name) = self.resolve(name)?;
        let params = ListParams::fields(format!("metadata.name={name}"));
        let options = WatchOptions { timeout: OBJECT_WATCH_TIMEOUT, ..WatchOptions::default() };
        watch::watch(&self.namespaced(namespace), &params, &options, Bookmarks::None).await
    }

    /// Returns the source of an informer of all objects that `params` selects.
    ///
    /// Lists take tokens from the bucket of the client; watches do not.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// use kcm_client::{ListOptions, ListParams};
    /// use kube_client::core::PartialObjectMeta;
    ///
    /// # run(async |client| {
    /// let labelled = client.api::<ConfigMap>().list_watch(ListParams::labels("app=web"));
    /// assert!(labelled.list(&ListOptions::default()).await?.items.is_empty());
    /// // The metadata of all Secrets in one namespace.
    /// let secrets = client.api::<PartialObjectMeta<Secret>>().namespaced("shop").list_watch(ListParams::default());
    /// assert!(secrets.list(&ListOptions::default()).await?.items.is_empty());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// Upstream counterparts: `cache.NewFilteredListWatchFromClient`, and `metadatainformer` for metadata only.
    pub fn list_watch(&self, params: ListParams) -> Arc<dyn ListWatch<K>> {
        Arc::new(Collection { api: self.clone(), params })
    }
}
