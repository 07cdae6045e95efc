//! Watches.

use std::{pin::pin, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use futures_util::poll;
use http::Request;
use http_body_util::{BodyExt, Full};
use kcm_apiserver::{ApiBody, HistoryLimits};
use kcm_clock::SimulatedClock;
use serde_json::{Value, json};

use crate::client::{Client, PODS, pod};

/// A watch in progress.
pub(crate) struct Watch {
    body: ApiBody,
    read: Vec<u8>,
}

impl Watch {
    pub(crate) async fn start(client: &Client, query: &str) -> Self {
        let request = Request::get(format!("{PODS}?watch=true&{query}")).header("accept", "application/json");
        let response = client.send(request.body(Full::<Bytes>::default()).unwrap()).await;
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), read: Vec::new() }
    }

    /// Returns the next line. `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.read.extend_from_slice(frame.data_ref().unwrap());
        }
    }

    /// Returns the next line as `TYPE name`. Panics if it is not available yet.
    pub(crate) async fn now(&mut self) -> String {
        let Poll::Ready(line) = poll!(pin!(self.next())) else { return "nothing".to_owned() };
        line.map_or_else(
            || "end".to_owned(),
            |line| format!("{} {}", text(&line["type"]), text(&line["object"]["metadata"]["name"])),
        )
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

async fn relabel(client: &Client, name: &str, app: &str) {
    client.patch(&format!("{PODS}/{name}"), &json!({"metadata": {"labels": {"app": app}}})).await.expect(200);
}

#[tokio::test]
async fn without_version_begins_with_all_objects() {
    let client = Client::new();
    client.post(PODS, &pod("a")).await.expect(201);
    for query in ["", "resourceVersion=0"] {
        let mut watch = Watch::start(&client, query).await;
        assert_eq!(watch.now().await, "ADDED a");
        assert_eq!(watch.now().await, "nothing");
    }
}

#[tokio::test]
async fn from_version_begins_after_it() {
    let client = Client::new();
    client.post(PODS, &pod("a")).await.expect(201);
    let mut watch = Watch::start(&client, &format!("resourceVersion={}", client.server.revision())).await;
    assert_eq!(watch.now().await, "nothing", "the headers are out, though");
    client.post(PODS, &pod("b")).await.expect(201);
    relabel(&client, "b", "x").await;
    client.delete(&format!("{PODS}/b"), &Value::Null).await.expect(200);
    assert_eq!(watch.now().await, "ADDED b");
    assert_eq!(watch.now().await, "MODIFIED b");
    // Graceful deletion is marked even if the grace period is 0, as upstream.
    let marked = watch.next().await.unwrap();
    assert_eq!(marked["type"], "MODIFIED");
    assert_eq!(marked["object"]["metadata"]["deletionGracePeriodSeconds"], 0);
    let deleted = watch.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["metadata"]["resourceVersion"], client.server.revision().to_string());
}

#[tokio::test]
async fn end_of_initial_events_is_marked() {
    let client = Client::new();
    client.post(PODS, &pod("a")).await.expect(201);
    let streaming = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Watch::start(&client, streaming).await;
    assert_eq!(watch.now().await, "ADDED a");
    let end = watch.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    let expected = json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "resourceVersion": client.server.revision().to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
    });
    assert_eq!(end["object"], expected);
    for query in ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan&resourceVersion=1"] {
        client.get(&format!("{PODS}?watch=true&{query}")).await.refused(422, "Invalid");
    }
    let future = format!("{PODS}?watch=true&{streaming}&resourceVersion=999");
    client.get(&future).await.refused(504, "Timeout");
}

#[tokio::test]
async fn selector_reports_matching_changes() {
    let client = Client::new();
    client.post(PODS, &pod("a")).await.expect(201);
    let from = client.server.revision();
    let mut watch = Watch::start(&client, &format!("labelSelector=app=x&resourceVersion={from}")).await;
    relabel(&client, "a", "x").await;
    assert_eq!(watch.now().await, "ADDED a");
    relabel(&client, "a", "web").await;
    let left = watch.next().await.unwrap();
    assert_eq!(
        (&left["type"], &left["object"]["metadata"]["labels"]["app"]),
        (&json!("DELETED"), &json!("x"))
    );
    assert_eq!(left["object"]["metadata"]["resourceVersion"], client.server.revision().to_string());
    assert_eq!(watch.now().await, "nothing");
}

#[tokio::test]
async fn path_of_one_object() {
    let client = Client::new();
    client.post(PODS, &pod("a")).await.expect(201);
    client.post(PODS, &pod("b")).await.expect(201);
    let request = Request::get(format!("{PODS}/b?watch=true")).body(Full::<Bytes>::default()).unwrap();
    let mut watch = Watch { body: client.send(request).await.into_body(), read: Vec::new() };
    assert_eq!(watch.now().await, "ADDED b");
    assert_eq!(watch.now().await, "nothing");
}

#[tokio::test]
async fn expired_version_is_an_error_event() {
    let client =
        Client::with(|config| config.history = HistoryLimits { events: 2, ..HistoryLimits::default() });
    for name in ["a", "b", "c"] {
        client.post(PODS, &pod(name)).await.expect(201);
    }
    let mut watch = Watch::start(&client, "resourceVersion=1").await;
    let error = watch.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"], &error["object"]["reason"]),
        (&json!("ERROR"), &json!(410), &json!("Expired"))
    );
    assert!(text(&error["object"]["message"]).starts_with("too old resource version: 1 ("), "{error}");
    assert_eq!(watch.now().await, "end");
}

#[tokio::test]
async fn slow_watch_ends_with_error() {
    let client =
        Client::with(|config| config.history = HistoryLimits { events: 2, ..HistoryLimits::default() });
    let mut watch = Watch::start(&client, "resourceVersion=5").await;
    for name in ["a", "b", "c"] {
        client.post(PODS, &pod(name)).await.expect(201);
    }
    assert_eq!(watch.now().await, "ERROR -");
    assert_eq!(watch.now().await, "end");
}

#[tokio::test(start_paused = true)]
async fn timeout_and_bookmarks() {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let client = Client::with(|config| config.clock = Arc::new(SimulatedClock::new(start)));
    client.post(PODS, &pod("a")).await.expect(201);
    let began = tokio::time::Instant::now();
    let from = client.server.revision();
    let query = format!("resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=150");
    let mut watch = Watch::start(&client, &query).await;
    let mut at = Vec::new();
    while let Some(line) = watch.next().await {
        assert_eq!(
            (&line["type"], text(&line["object"]["metadata"]["resourceVersion"])),
            (&json!("BOOKMARK"), from.to_string().as_str())
        );
        at.push(began.elapsed().as_secs());
    }
    assert_eq!(at, [60, 120, 148]);
    assert_eq!(began.elapsed().as_secs(), 150);

    let mut silent = Watch::start(&client, &format!("resourceVersion={from}&timeoutSeconds=150")).await;
    assert_eq!(silent.next().await, None);
    let began = tokio::time::Instant::now();
    let mut endless = Watch::start(&client, &format!("resourceVersion={from}")).await;
    assert_eq!(endless.next().await, None);
    assert!(
        (Duration::from_mins(30)..=Duration::from_mins(61)).contains(&began.elapsed()),
        "{:?}",
        began.elapsed()
    );
}
