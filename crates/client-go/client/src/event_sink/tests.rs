use std::{sync::atomic::AtomicUsize, time::Duration};

use futures_util::future::join_all;
use kcm_clock::{Clock, SeededRandom};
use kcm_events::{EventBroadcaster, EventType, MAX_QUEUED_EVENTS, ObjectReference};
use kcm_testkit::{FakeApiServer, FakeResponse};
use serde_json::json;
use tokio::sync::mpsc;

use super::*;
use crate::{ClientFactory, ClientOptions, RateLimit, Request, UserAgent};

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
    let expected = StoredEvent { name: Some("web.1".to_owned()), count: Some(2), ..StoredEvent::default() };
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

/// Number of requests that wait for the rate limit during a saturation, those of events not counted.
const CALLERS: usize = 20;

/// Sends requests for ten minutes, so that the rate limit is exhausted, and calls `record` after each. Returns their number.
async fn saturate(client: &ApiClient, clock: &Arc<dyn Clock>, record: impl Fn(usize)) -> usize {
    let end = clock.monotonic() + Duration::from_secs(600);
    let count = AtomicUsize::new(0);
    let caller = async || {
        while clock.monotonic() < end {
            client.send(&Request::get("/version")).await.unwrap();
            record(count.fetch_add(1, Ordering::Relaxed));
        }
    };
    join_all((0..CALLERS).map(|_| caller())).await;
    count.into_inner()
}

/// Returns the numbers of recorded and of lost events of this crate. Each is about another object, so none is combined.
async fn events_lost_here() -> (usize, usize) {
    let server = FakeApiServer::new(|_| FakeResponse::ok(json!({"metadata": {"name": "web.1"}})));
    let clock = server.clock();
    let options = ClientOptions::new(UserAgent::new("test", "v1", ""), Arc::clone(&clock));
    let client = ClientFactory::in_process(server.service(), options).client("test", RateLimit::DEFAULT);
    let (sink, random) = (Arc::new(EventClient::new(&client)), Arc::new(SeededRandom::new(1)));
    let broadcaster = EventBroadcaster::start(sink, Arc::clone(&clock), random);
    let recorder = broadcaster.recorder("test");
    let recorded = saturate(&client, &clock, |number| {
        let regarding =
            ObjectReference { name: format!("web-{number}").into(), ..ObjectReference::default() };
        recorder.event(&regarding, EventType::Normal, "SuccessfulCreate", "Created pod".to_owned());
    });
    let recorded = recorded.await;
    broadcaster.shutdown(Duration::from_secs(600)).await;
    let written = server.request_lines().iter().filter(|line| line.starts_with("POST")).count();
    (recorded, recorded - written)
}

/// Returns the same numbers for upstream's order: a task writes the events of a queue of 1,000 one after the other, and waits for
/// the rate limit as all other requests.
async fn events_lost_upstream() -> (usize, usize) {
    let server = FakeApiServer::new(|_| FakeResponse::ok(json!({})));
    let clock = server.clock();
    let options = ClientOptions::new(UserAgent::new("test", "v1", ""), Arc::clone(&clock));
    let client = ClientFactory::in_process(server.service(), options).client("test", RateLimit::DEFAULT);
    let (queue, mut queued) = mpsc::channel::<()>(MAX_QUEUED_EVENTS);
    let writer = client.clone();
    tokio::spawn(async move {
        while queued.recv().await.is_some() {
            writer.send(&Request::get("/events")).await.unwrap();
        }
    });
    let lost = AtomicUsize::new(0);
    let recorded = saturate(&client, &clock, |_| {
        if queue.try_send(()).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    });
    (recorded.await, lost.into_inner())
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_without_tokens_lose_fewer_events_than_upstream() {
    let (recorded, lost) = events_lost_here().await;
    let (recorded_upstream, lost_upstream) = events_lost_upstream().await;
    println!("{lost} of {recorded} events are lost, upstream {lost_upstream} of {recorded_upstream}");
    assert!(recorded > 8_000 && recorded_upstream > 8_000, "{recorded}, {recorded_upstream}");
    assert!(lost * recorded_upstream < lost_upstream * recorded, "{lost}, {lost_upstream}");
}
