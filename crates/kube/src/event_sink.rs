use std::fmt;

use async_trait::async_trait;
use http::Method;
use kcm_api::ApiError;
use kcm_events::{Event, EventSink, StoredEvent};
use kube_client::Client;
use serde::Serialize;

use crate::request::{JSON, STRATEGIC_MERGE_PATCH, send};

/// Writer of events with a kube client.
///
/// Upstream counterpart: `EventSinkImpl` of the core/v1 client.
#[derive(Clone)]
pub struct EventClient(Client);

impl EventClient {
    /// Creates a sink that writes through `client`.
    pub fn new(client: Client) -> Self {
        Self(client)
    }
}

#[async_trait]
impl EventSink for EventClient {
    async fn create(&self, event: &Event) -> Result<StoredEvent, ApiError> {
        let path = format!("/api/v1/namespaces/{}/events", event.namespace());
        send(&self.0, Method::POST, &path, JSON, to_json(event)?).await
    }

    async fn patch(&self, event: &Event) -> Result<StoredEvent, ApiError> {
        let path = format!("/api/v1/namespaces/{}/events/{}", event.namespace(), event.name);
        send(&self.0, Method::PATCH, &path, STRATEGIC_MERGE_PATCH, to_json(&event.patch())?).await
    }

    /// A kube client has no rate limit.
    fn max_concurrent_writes(&self) -> usize {
        usize::MAX
    }
}

impl fmt::Debug for EventClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventClient").finish_non_exhaustive()
    }
}

fn to_json(body: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(body).map_err(|error| ApiError::InvalidRequest(error.to_string()))
}
