//! Clients of a server in this process, with a gate that closes after ten seconds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kcm_api::{ApiError, ObjectKey, Pod};
use kcm_clock::Clock;
use kcm_testkit::{FakeApiServer, FakeResponse};

use crate::{ApiClient, ClientFactory, ClientOptions, DeleteOptions, Patch, RateLimit, Request, UserAgent};

/// Server that sends the same response to every request.
struct Server {
    api: FakeApiServer,
    clock: Arc<dyn Clock>,
    /// Seconds on the clock at which the gate closes.
    closes_at: Arc<AtomicU64>,
}

impl Server {
    /// The gate is open for ten seconds.
    fn new(code: u16, latency: Duration) -> Self {
        let body = r#"{"metadata":{"namespace":"shop","name":"web"}}"#;
        let response = FakeResponse::new(code, body).header("retry-after", "3").after(latency);
        let api = FakeApiServer::new(move |_| response.clone());
        Self { clock: api.clock(), api, closes_at: Arc::new(AtomicU64::new(10)) }
    }

    fn close_at(&self, at: u64) {
        self.closes_at.store(at, Ordering::SeqCst);
    }

    fn client(&self) -> ApiClient {
        self.factory().client("test", RateLimit::UNLIMITED)
    }

    fn factory(&self) -> ClientFactory {
        let options = ClientOptions::new(UserAgent::new("test", "v1", "abcdef0"), self.api.clock());
        let (clock, closes_at) = (Arc::clone(&self.clock), Arc::clone(&self.closes_at));
        ClientFactory::in_process(self.api.service(), options)
            .gated(move || seconds(closes_at.load(Ordering::SeqCst)).saturating_sub(clock.monotonic()))
    }

    /// Method and time of each request.
    fn requests(&self) -> Vec<(String, Duration)> {
        self.api.requests().iter().map(|request| (request.method.to_string(), request.at)).collect()
    }
}

fn key() -> ObjectKey {
    ObjectKey::new("shop", "web")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn delete(client: &ApiClient) -> Result<(), ApiError> {
    client.api::<Pod>().delete(&key(), &DeleteOptions::default()).await
}

#[tokio::test(start_paused = true)]
async fn standby_reads_but_does_not_write() {
    let server = Server::new(200, Duration::ZERO);
    server.close_at(0);
    let client = server.client();
    client.api::<Pod>().get(&key()).await.unwrap();
    let errors = [
        client.api::<Pod>().namespaced("shop").create_json("{}").await.unwrap_err(),
        client.send(&Request::json(http::Method::PUT, "/x", "{}")).await.unwrap_err(),
        client.api::<Pod>().patch(&key(), &Patch::strategic("{}".to_owned())).await.unwrap_err(),
        delete(&client).await.unwrap_err(),
    ];
    assert!(errors.iter().all(ApiError::is_not_leading), "{errors:?}");
    assert_eq!(errors[3].to_string(), "DELETE /api/v1/namespaces/shop/pods/web: this process does not lead");
    assert_eq!(server.requests(), [("GET".to_owned(), Duration::ZERO)]);
}

#[tokio::test(start_paused = true)]
async fn closes_while_a_write_waits_for_the_rate_limit() {
    let server = Server::new(200, Duration::ZERO);
    let client = server.factory().client("test", RateLimit { qps: 0.05, burst: 1 });
    delete(&client).await.unwrap();
    assert!(delete(&client).await.unwrap_err().is_not_leading());
    assert_eq!(server.clock.monotonic(), seconds(20));
    assert_eq!(server.requests(), [("DELETE".to_owned(), Duration::ZERO)]);
}

#[tokio::test(start_paused = true)]
async fn closes_while_a_write_is_retried() {
    let server = Server::new(429, Duration::ZERO);
    assert!(delete(&server.client()).await.unwrap_err().is_not_leading());
    let times: Vec<_> = server.requests().iter().map(|(_, at)| at.as_secs()).collect();
    assert_eq!(times, [0, 3, 6, 9]);
}

#[tokio::test(start_paused = true)]
async fn closes_while_requests_are_in_flight() {
    let server = Server::new(200, seconds(3600));
    let client = server.client();
    assert!(delete(&client).await.unwrap_err().is_not_leading());
    assert_eq!(server.clock.monotonic(), seconds(10));
    client.api::<Pod>().get(&key()).await.unwrap();
    assert_eq!(server.clock.monotonic(), seconds(3610));
}

#[tokio::test(start_paused = true)]
async fn response_after_closing_is_ignored() {
    let server = Server::new(200, seconds(10));
    assert!(delete(&server.client()).await.unwrap_err().is_not_leading());
}

#[tokio::test(start_paused = true)]
async fn write_takes_longer_than_one_term() {
    let server = Server::new(200, seconds(45));
    let client = server.client();
    let renew = async {
        for term in 2.. {
            server.clock.sleep(seconds(9)).await;
            server.close_at(term * 10);
        }
    };
    tokio::select! {
        result = delete(&client) => result.unwrap(),
        () = renew => {}
    }
    assert_eq!(server.clock.monotonic(), seconds(45));
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_writes_in_flight() {
    let server = Server::new(200, seconds(3));
    let factory = server.factory();
    let client = factory.client("test", RateLimit::UNLIMITED);
    assert!(factory.writes_have_settled());
    let (result, (settled, later)) = tokio::join!(delete(&client), async {
        server.clock.sleep(seconds(1)).await;
        assert!(!factory.writes_have_settled());
        let settled = factory.stop_writing(seconds(5)).await;
        (settled, delete(&client).await)
    });
    result.unwrap();
    assert!(settled && factory.writes_have_settled() && later.unwrap_err().is_not_leading());
    assert_eq!(server.clock.monotonic(), seconds(3));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn abandoned_write_never_settles() {
    let server = Server::new(200, seconds(5));
    let factory = server.factory();
    let client = factory.client("test", RateLimit::UNLIMITED);
    tokio::time::timeout(seconds(1), delete(&client)).await.unwrap_err();
    assert!(!factory.writes_have_settled());
    assert!(!factory.stop_writing(seconds(1)).await);
    assert_eq!(server.clock.monotonic(), seconds(1), "no write is in flight");
}

#[tokio::test(start_paused = true)]
async fn client_without_gate_writes() {
    let api = FakeApiServer::scripted([FakeResponse::ok("{}")]);
    let options = ClientOptions::new(UserAgent::new("test", "v1", ""), api.clock());
    let client = ClientFactory::in_process(api.service(), options).client("test", RateLimit::UNLIMITED);
    client.send(&Request::delete("/x", "")).await.unwrap();
}
