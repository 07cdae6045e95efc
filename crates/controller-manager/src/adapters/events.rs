//! Events.

use async_trait::async_trait;
use kcm_api::{ApiError, ObjectKey};
use kcm_client::{ApiClient, Request, namespaced_path, object_path};
use kcm_events::EventSink;
use serde_json::Value;

const API_VERSION: &str = "v1";
const EVENTS: &str = "events";

/// Writer of events. The events of a controller share its client, and thereby its rate limit (US-1.3).
///
/// Upstream counterpart: `EventSinkImpl` of the core/v1 client.
#[derive(Debug, Clone)]
pub struct EventClient(ApiClient);

impl EventClient {
    /// Creates a sink that writes through `client`.
    pub fn new(client: ApiClient) -> Self {
        Self(client)
    }
}

#[async_trait]
impl EventSink for EventClient {
    async fn create(&self, namespace: &str, event: &Value) -> Result<Value, ApiError> {
        let path = namespaced_path(API_VERSION, EVENTS, namespace);
        self.0.send_for(&Request::create(path, event.to_string())).await
    }

    async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<Value, ApiError> {
        let path = object_path(API_VERSION, EVENTS, &ObjectKey::new(namespace, name));
        self.0.send_for(&Request::strategic_merge_patch(path, patch.to_string())).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::adapters::testing::{client, scripted};

    #[tokio::test(start_paused = true)]
    async fn creates_and_patches() {
        let stored = json!({"count": 2});
        let server = scripted([&stored, &stored]);
        let sink = EventClient::new(client(&server));
        assert_eq!(sink.create("shop", &json!({"count": 1})).await.unwrap(), stored);
        assert_eq!(sink.patch("shop", "web.1", &json!({"count": 2})).await.unwrap(), stored);
        assert_eq!(
            server.request_lines(),
            ["POST /api/v1/namespaces/shop/events", "PATCH /api/v1/namespaces/shop/events/web.1"]
        );
    }
}
