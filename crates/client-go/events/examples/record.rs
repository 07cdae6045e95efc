//! Records events with a sink that prints them.
//!
//! `cargo run -p kcm-events --example record`

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use kcm_api::ApiError;
use kcm_clock::{RealClock, SeededRandom};
use kcm_events::{Event, EventBroadcaster, EventSink, EventType, ObjectReference, StoredEvent};

/// Sink in place of an API server.
struct Printer;

#[async_trait]
impl EventSink for Printer {
    async fn create(&self, event: &Event) -> Result<StoredEvent, ApiError> {
        println!("POST  {}: {} {}", event.namespace(), event.reason, event.message);
        Ok(StoredEvent::default())
    }

    async fn patch(&self, event: &Event) -> Result<StoredEvent, ApiError> {
        println!("PATCH {}: {} {} ({} times)", event.namespace(), event.reason, event.message, event.count);
        Ok(StoredEvent::default())
    }
}

#[tokio::main]
async fn main() {
    let random = Arc::new(SeededRandom::from_entropy());
    let broadcaster = EventBroadcaster::start(Arc::new(Printer), Arc::new(RealClock::new()), random);
    let recorder = broadcaster.recorder("example-controller");
    let web = ObjectReference {
        api_version: "example.com/v1".into(),
        kind: "Website".into(),
        namespace: "shop".into(),
        name: "web".into(),
        uid: "5e7c0f6a".into(),
        resource_version: "42".to_owned(),
    };

    for _ in 0..3 {
        recorder.event(&web, EventType::Warning, "FailedCreate", "quota exceeded".to_owned());
    }
    for page in 0..40 {
        recorder.event(&web, EventType::Normal, "Rendered", format!("rendered page {page}"));
    }
    broadcaster.shutdown(Duration::from_secs(5)).await;
}
