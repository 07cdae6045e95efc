//! Watches on a single Lease.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt};
use kcm_api::{ApiError, Lease, ObjectKey};
use kcm_informer::WatchEvent;

use crate::{
    ApiClient,
    kind::Kind,
    request::{Query, Request, namespaced_path},
    watch::watch_at,
};

/// Duration of one watch on a Lease.
const WATCH_TIMEOUT: Duration = Duration::from_mins(5);

/// Time to wait before the watch is opened again. It doubles with every watch that lasts less than [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

impl ApiClient {
    /// Watches the Lease at `key` and calls `on_change` with every state, the current one first, and with `None` when it
    /// is deleted. Never returns: a watch that ends is opened again, after one second at first and after 30 seconds
    /// while it keeps failing.
    ///
    /// Standbys use it to acquire a released Lease at once. An election works without it, so failures are logged at
    /// debug level only.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch.
    pub async fn watch_lease(
        &self,
        key: &ObjectKey,
        mut on_change: impl FnMut(Option<&Lease>) + Send,
    ) -> Infallible {
        let mut backoff = MIN_BACKOFF;
        loop {
            let start = self.clock().monotonic();
            match self.open_lease_watch(key).await {
                Ok(events) => {
                    let mut events = pin!(events);
                    while let Some(event) = events.next().await {
                        match event {
                            Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => {
                                on_change(Some(&lease));
                            }
                            Ok(WatchEvent::Deleted(_) | WatchEvent::UndecodableDeleted(_)) => on_change(None),
                            Ok(WatchEvent::Bookmark { .. } | WatchEvent::Undecodable(_)) => {}
                            Err(err) => tracing::debug!(lease = %key, %err, "Watch of lease ended"),
                        }
                    }
                }
                Err(err) => tracing::debug!(lease = %key, %err, delay = ?backoff, "Failed to watch lease"),
            }
            if self.clock().monotonic().saturating_sub(start) >= MAX_BACKOFF {
                backoff = MIN_BACKOFF;
            }
            self.clock().sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    async fn open_lease_watch(
        &self,
        key: &ObjectKey,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Lease>, ApiError>> + Send + use<>, ApiError> {
        let mut query = Query::new(namespaced_path(Lease::API_VERSION, Lease::PLURAL, &key.namespace));
        query.add("watch", "true");
        query.add("fieldSelector", &format!("metadata.name={}", key.name));
        query.add("timeoutSeconds", &WATCH_TIMEOUT.as_secs().to_string());
        watch_at(self, Arc::new(()), &Request::get(query.into_path()), WATCH_TIMEOUT).await
    }
}

#[cfg(test)]
mod tests;
