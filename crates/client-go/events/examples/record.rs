//! Records events with a sink that prints them.
//!
//! `cargo run -p kcm-events --example record`

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use kcm_api::ApiError;
use kcm_clock::{RealClock, SeededRandom};
use kcm_events::{EventBroadcaster, EventSink, EventType, ObjectReference};
use serde_json::{Value, json};

/// Sink in place of an API server.
struct Printer;

#[async_trait]
impl EventSink for Printer {
    async fn create(&self, namespace: &str, event: &Value) -> Result<Value, ApiError> {
        println!("POST  {namespace}: {} {}", event["reason"], event["message"]);
        Ok(event.clone())
    }

    async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<Value, ApiError> {
        println!("PATCH {namespace}/{name}: {patch}");
        let mut stored = json!({ "metadata": { "name": name } });
        stored["count"] = patch["count"].clone();
        Ok(stored)
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
