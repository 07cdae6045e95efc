use std::fmt;

use async_trait::async_trait;
use http::Method;
use kcm_api::ApiError;
use kcm_events::EventSink;
use kube_client::Client;
use serde_json::Value;

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
    async fn create(&self, namespace: &str, event: &Value) -> Result<Value, ApiError> {
        let path = format!("/api/v1/namespaces/{namespace}/events");
        send(&self.0, Method::POST, &path, JSON, event.to_string().into_bytes()).await
    }

    async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<Value, ApiError> {
        let path = format!("/api/v1/namespaces/{namespace}/events/{name}");
        send(&self.0, Method::PATCH, &path, STRATEGIC_MERGE_PATCH, patch.to_string().into_bytes()).await
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
