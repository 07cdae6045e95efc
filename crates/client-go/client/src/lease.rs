//! Leases, for elections.

use std::{convert::Infallible, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::StreamExt;
use kcm_api::{ApiError, Lease, ObjectKey};
use kcm_informer::{WatchEvent, WatchStream};
use kcm_leader_election::LeaseLock;

use crate::{
    ApiClient,
    control::typed_json,
    kind::Kind,
    request::{Query, Request, namespaced_path},
    watch::watch_at,
};

/// How long one watch on a Lease lasts.
const WATCH: Duration = Duration::from_mins(5);

/// The shortest and the longest wait before a watch on a Lease is opened again. One that has lasted for the longest
/// has been a good one.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

#[async_trait]
impl LeaseLock for ApiClient {
    async fn get(&self, key: &ObjectKey) -> Result<Lease, ApiError> {
        Self::get(self, key).await
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, ApiError> {
        Self::create(self, &lease.metadata.namespace, json(lease)?).await
    }

    async fn update(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.replace(&lease.metadata.key(), None, json(lease)?).await
    }
}

impl ApiClient {
    /// Tells each state of the Lease at `key`, the present one first, and `None` when it is deleted. Never ends: opens
    /// the watch again whenever that breaks, after a second at first, every half minute while it fails or ends early.
    ///
    /// For [`Nudge::lease_changed`](kcm_leader_election::Nudge::lease_changed). An election works without; so that
    /// this may fail, as it does for who may not watch Leases, is told at debug level only.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch.
    pub async fn follow_lease(
        &self,
        key: &ObjectKey,
        mut changed: impl FnMut(Option<&Lease>) + Send,
    ) -> Infallible {
        let (shortest, longest) = WAIT;
        let mut wait = shortest;
        loop {
            let began = self.clock().monotonic();
            match self.watch_lease(key).await {
                Ok(mut events) => {
                    while let Some(event) = events.next().await {
                        match event {
                            Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => {
                                changed(Some(&lease));
                            }
                            Ok(WatchEvent::Deleted(_) | WatchEvent::UndecodableDeleted(_)) => changed(None),
                            Ok(WatchEvent::Bookmark { .. } | WatchEvent::Undecodable(_)) => {}
                            Err(err) => tracing::debug!(lease = %key, %err, "Watch of lease ended"),
                        }
                    }
                }
                Err(err) => tracing::debug!(lease = %key, %err, delay = ?wait, "Failed to watch lease"),
            }
            if self.clock().monotonic().saturating_sub(began) >= longest {
                wait = shortest;
            }
            self.clock().sleep(wait).await;
            wait = (wait * 2).min(longest);
        }
    }

    async fn watch_lease(&self, key: &ObjectKey) -> Result<WatchStream<Lease>, ApiError> {
        let mut query = Query::new(namespaced_path(Lease::API_VERSION, Lease::PLURAL, &key.namespace));
        query.add("watch", "true");
        query.add("fieldSelector", &format!("metadata.name={}", key.name));
        query.add("timeoutSeconds", &WATCH.as_secs().to_string());
        watch_at(self, Arc::new(()), &Request::get(query.into_path()), WATCH).await
    }
}

fn json(lease: &Lease) -> Result<bytes::Bytes, ApiError> {
    typed_json(lease, !lease.kind.is_empty() && !lease.api_version.is_empty())
}

#[cfg(test)]
mod tests;
