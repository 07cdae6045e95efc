//! Events.

mod protobuf;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use kcm_api::{ApiError, ObjectKey};
use kcm_client::{Api, ApiClient, ApiResource, ContentType, Patch, StrategicMerge, WriteOptions};
use kcm_events::EventSink;
use serde::Deserialize;
use serde_json::Value;

/// Number of requests that the rate limit must allow for each event that is written at the same time as others. With the
/// default rate limit, events are written one after the other, as upstream, so that they do not delay other writes.
const REQUESTS_PER_EVENT: u32 = 16;

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
pub struct EventClient {
    client: ApiClient,
    events: Api<Event>,
    /// `true` if events are created in protobuf. Becomes `false` when the API server refuses that.
    protobuf: Arc<AtomicBool>,
}

impl EventClient {
    /// Creates a sink that writes through `client`.
    pub fn new(client: &ApiClient) -> Self {
        // The recorder reads only the name of a stored event.
        let metadata_only = WriteOptions { metadata_only: true, ..WriteOptions::default() };
        Self {
            client: client.clone(),
            events: client.api_for(EVENTS).with_write_options(metadata_only),
            protobuf: Arc::new(AtomicBool::new(client.content_type() == ContentType::Protobuf)),
        }
    }
}

#[async_trait]
impl EventSink for EventClient {
    async fn create(&self, namespace: &str, event: &Value) -> Result<Value, ApiError> {
        let events = self.events.namespaced(namespace);
        if self.protobuf.load(Ordering::Relaxed)
            && let Some(body) = protobuf::encode(event)
        {
            match events.create_protobuf(body).await {
                // The API server has not processed the request.
                Err(error) if error.code() == Some(415) => self.protobuf.store(false, Ordering::Relaxed),
                result => return result.map(|Event(stored)| stored),
            }
        }
        let Event(stored) = events.create_json(event.to_string()).await?;
        Ok(stored)
    }

    async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<Value, ApiError> {
        let key = ObjectKey::new(namespace, name);
        let Event(stored) = self.events.patch(&key, &Patch::strategic(patch)).await?;
        Ok(stored)
    }

    fn max_concurrent_writes(&self) -> usize {
        let available = self.client.available_requests() / REQUESTS_PER_EVENT;
        usize::try_from(available).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use kcm_client::{ClientFactory, ClientOptions, RateLimit, UserAgent};
    use kcm_testkit::{FakeApiServer, FakeResponse};
    use serde_json::json;

    use super::*;
    use crate::adapters::testing::{client, scripted};

    #[tokio::test(start_paused = true)]
    async fn creates_in_protobuf_until_it_is_refused() {
        let stored = || FakeResponse::ok(json!({"metadata": {"name": "web.1"}}));
        let refused = FakeResponse::failure(415, "UnsupportedMediaType", "no protobuf");
        let server = FakeApiServer::scripted([stored(), refused, stored(), stored()]);
        let options = ClientOptions::new(UserAgent::new("test", "v1", ""), server.clock());
        let options = ClientOptions { content_type: ContentType::Protobuf, ..options };
        let factory = ClientFactory::in_process(server.service(), options);
        let sink = EventClient::new(&factory.client("test", RateLimit::UNLIMITED));
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1"}});
        for _ in 0..3 {
            sink.create("shop", &event).await.unwrap();
        }
        let requests = server.requests();
        let media: Vec<_> = requests.iter().map(|request| request.header("content-type").unwrap()).collect();
        let (protobuf, json) = ("application/vnd.kubernetes.protobuf", "application/json");
        assert_eq!(media, [protobuf, protobuf, json, json]);
    }

    #[tokio::test]
    async fn default_rate_limit_allows_one_write_at_a_time() {
        let server = scripted([]);
        let options = ClientOptions::new(UserAgent::new("test", "v1", ""), server.clock());
        let factory = ClientFactory::in_process(server.service(), options);
        let max = |limit| EventClient::new(&factory.client("test", limit)).max_concurrent_writes();
        assert_eq!(max(RateLimit::DEFAULT), 1);
        assert_eq!(max(RateLimit { qps: 100.0, burst: 200 }), 12);
        assert!(max(RateLimit::UNLIMITED) > 16);
    }

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
