//! Events over the client.

mod protobuf;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use kcm_api::{ApiError, ErrorCause};
use kcm_events::{Event, EventSink, StoredEvent};
use serde::Deserialize;

use crate::{Api, ApiClient, ApiResource, ContentType, Patch, PriorityLevel, StrategicMerge, WriteOptions};

/// Number of requests that the rate limit must allow for each event that is written at the same time as others. With the
/// default rate limit, events are written one after the other, as upstream, so that they do not delay other writes.
const REQUESTS_PER_EVENT: u32 = 16;

const EVENTS: ApiResource = ApiResource::namespaced("", "v1", "Event", "events");

/// Response to a write of an event.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Stored(StoredEvent);

impl StrategicMerge for Stored {}

/// Writer of events: the sink of a [`kcm_events::EventBroadcaster`]. The events of a controller share its client, and thereby
/// its rate limit (US-1.3).
///
/// Upstream counterpart: `EventSinkImpl` of the core/v1 client.
#[derive(Debug, Clone)]
pub struct EventClient {
    client: ApiClient,
    events: Api<Stored>,
    /// `true` if events are created in protobuf. Becomes `false` when the API server refuses that.
    protobuf: Arc<AtomicBool>,
}

impl EventClient {
    /// Creates a sink that writes through `client`.
    pub fn new(client: &ApiClient) -> Self {
        // The recorder needs only the name of a stored event.
        let metadata_only = WriteOptions { metadata_only: true, ..WriteOptions::default() };
        Self {
            client: client.clone(),
            events: client
                .with_priority_level(PriorityLevel::Event)
                .api_for(EVENTS)
                .with_write_options(metadata_only),
            protobuf: Arc::new(AtomicBool::new(client.content_type() == ContentType::Protobuf)),
        }
    }
}

#[async_trait]
impl EventSink for EventClient {
    async fn create(&self, event: &Event) -> Result<StoredEvent, ApiError> {
        let events = self.events.namespaced(event.namespace());
        if self.protobuf.load(Ordering::Relaxed) {
            match events.create_protobuf(protobuf::encode(event)).await {
                // The API server has not processed the request.
                Err(error) if error.code() == Some(415) => self.protobuf.store(false, Ordering::Relaxed),
                result => return result.map(|Stored(stored)| stored),
            }
        }
        let json =
            serde_json::to_vec(event).map_err(|error| ApiError::InvalidRequest(ErrorCause::of(error)))?;
        events.create_json(json).await.map(|Stored(stored)| stored)
    }

    async fn patch(&self, event: &Event) -> Result<StoredEvent, ApiError> {
        let events = self.events.namespaced(event.namespace());
        let patch = Patch::strategic(&event.patch());
        events.patch(event.name.as_str(), &patch).await.map(|Stored(stored)| stored)
    }

    fn max_concurrent_writes(&self) -> usize {
        let available = self.client.available_requests() / REQUESTS_PER_EVENT;
        usize::try_from(available).unwrap_or(usize::MAX)
    }

    fn must_wait(&self) -> bool {
        self.client.available_requests() == 0
    }
}

#[cfg(test)]
mod tests {
    use kcm_events::{EventType, ObjectReference};
    use kcm_testkit::{FakeApiServer, FakeResponse};
    use serde_json::json;

    use super::*;
    use crate::{ClientFactory, ClientOptions, RateLimit, UserAgent};

    fn scripted<'a>(objects: impl IntoIterator<Item = &'a serde_json::Value>) -> FakeApiServer {
        let responses: Vec<_> =
            objects.into_iter().map(|object| FakeResponse::ok(format!("{object}\n"))).collect();
        FakeApiServer::scripted(responses)
    }

    fn client(server: &FakeApiServer) -> ApiClient {
        let options = ClientOptions::new(UserAgent::new("test", "v1", ""), server.clock());
        ClientFactory::in_process(server.service(), options).client("test", RateLimit::UNLIMITED)
    }

    /// Returns an event about a Deployment.
    pub(super) fn event() -> Event {
        Event {
            name: "web.1".to_owned(),
            regarding: ObjectReference {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                namespace: "shop".into(),
                name: "web".into(),
                uid: "u".into(),
                resource_version: "42".to_owned(),
            },
            type_: EventType::Normal,
            reason: "ScalingReplicaSet".into(),
            message: "Scaled up".to_owned(),
            component: "deployment-controller".into(),
            is_combined: false,
            count: 3,
            first_timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
            last_timestamp: "2026-01-01T00:10:00Z".parse().unwrap(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn creates_in_protobuf_until_it_is_refused() {
        let stored = || FakeResponse::ok(json!({"metadata": {"name": "web.1"}}));
        let refused = FakeResponse::failure(415, "UnsupportedMediaType", "no protobuf");
        let server = FakeApiServer::scripted([stored(), refused, stored(), stored()]);
        let options = ClientOptions::new(UserAgent::new("test", "v1", ""), server.clock());
        let options = ClientOptions { content_type: ContentType::Protobuf, ..options };
        let factory = ClientFactory::in_process(server.service(), options);
        let sink = EventClient::new(&factory.client("test", RateLimit::UNLIMITED));
        for _ in 0..3 {
            sink.create(&event()).await.unwrap();
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
        let stored = json!({"metadata": {"name": "web.1"}, "count": 2});
        let server = scripted([&stored, &stored]);
        let sink = EventClient::new(&client(&server));
        let expected =
            StoredEvent { name: Some("web.1".to_owned()), count: Some(2), ..StoredEvent::default() };
        assert_eq!(sink.create(&event()).await.unwrap(), expected);
        assert_eq!(sink.patch(&event()).await.unwrap(), expected);
        assert_eq!(
            server.request_lines(),
            ["POST /api/v1/namespaces/shop/events", "PATCH /api/v1/namespaces/shop/events/web.1"]
        );
        let patch = &server.requests()[1];
        assert_eq!(patch.header("content-type"), Some("application/strategic-merge-patch+json"));
        let body = json!({"count": 3, "lastTimestamp": "2026-01-01T00:10:00Z", "message": "Scaled up"});
        assert_eq!(serde_json::from_str::<serde_json::Value>(&patch.body).unwrap(), body);
    }
}
