//! Events.

use async_trait::async_trait;
use kcm_api::{ApiError, ObjectKey};
use kcm_client::{Api, ApiClient, ApiResource, Patch, StrategicMerge, WriteOptions};
use kcm_events::EventSink;
use serde::Deserialize;
use serde_json::Value;

const EVENTS: ApiResource = ApiResource::namespaced("", "v1", "Event", "events");

/// Event as JSON.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Event(Value);

impl StrategicMerge for Event {}

/// Writer of events. The events of a controller share its client, and thereby its rate limit (US-1.3).
///
/// Upstream counterpart: `EventSinkImpl` of the core/v1 client.
#[derive(Debug, Clone)]
pub struct EventClient(Api<Event>);

impl EventClient {
    /// Creates a sink that writes through `client`.
    pub fn new(client: &ApiClient) -> Self {
        // The recorder reads only the name of a stored event.
        let metadata_only = WriteOptions { metadata_only: true, ..WriteOptions::default() };
        Self(client.api_for(EVENTS).with_write_options(metadata_only))
    }
}

#[async_trait]
impl EventSink for EventClient {
    async fn create(&self, namespace: &str, event: &Value) -> Result<Value, ApiError> {
        let Event(stored) = self.0.namespaced(namespace).create_json(event.to_string()).await?;
        Ok(stored)
    }

    async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<Value, ApiError> {
        let key = ObjectKey::new(namespace, name);
        let Event(stored) = self.0.patch(&key, &Patch::strategic(patch)).await?;
        Ok(stored)
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
        let sink = EventClient::new(&client(&server));
        assert_eq!(sink.create("shop", &json!({"count": 1})).await.unwrap(), stored);
        assert_eq!(sink.patch("shop", "web.1", &json!({"count": 2})).await.unwrap(), stored);
        assert_eq!(
            server.request_lines(),
            ["POST /api/v1/namespaces/shop/events", "PATCH /api/v1/namespaces/shop/events/web.1"]
        );
    }
}
