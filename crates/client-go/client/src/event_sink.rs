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
mod tests;
