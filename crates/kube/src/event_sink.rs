use async_trait::async_trait;
use kcm_api::{ApiError, ErrorCause};
use kcm_client::{ApiClient, Request};
use kcm_events::{Event, EventSink, StoredEvent};
use kube_client::Client;
use serde::Serialize;

use crate::clients::{send, unlimited};

/// Writer of events with a kube client.
///
/// Upstream counterpart: `EventSinkImpl` of the core/v1 client.
#[derive(Debug, Clone)]
pub struct EventClient(ApiClient);

impl EventClient {
    /// Creates a sink that writes through `client`.
    pub fn new(client: Client) -> Self {
        Self(unlimited(client))
    }
}

#[async_trait]
impl EventSink for EventClient {
    async fn create(&self, event: &Event) -> Result<StoredEvent, ApiError> {
        let path = format!("/api/v1/namespaces/{}/events", event.namespace());
        send(&self.0, &Request::create(path, to_json(event)?)).await
    }

    async fn patch(&self, event: &Event) -> Result<StoredEvent, ApiError> {
        let path = format!("/api/v1/namespaces/{}/events/{}", event.namespace(), event.name);
        send(&self.0, &Request::strategic_merge_patch(path, to_json(&event.patch())?)).await
    }

    /// A kube client has no rate limit.
    fn max_concurrent_writes(&self) -> usize {
        usize::MAX
    }
}

fn to_json(body: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(body).map_err(|error| ApiError::InvalidRequest(ErrorCause::of(error)))
}
