//! Gated clients of a server in this process, under an election that a lock in memory decides.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request as HttpRequest, Response};
use http_body_util::Full;
use kcm_api::{ApiError, ObjectKey, Pod};
use kcm_clock::{Clock, SeededRandom, SimulatedClock, Timestamp};
use kcm_leader_election::{LeaderElectionConfig, LeaderElector, LeaderGate, MemoryLock};
use kube_client::client::Body;
use tokio_util::sync::CancellationToken;

use crate::{ApiClient, ClientFactory, ClientOptions, RateLimit, Request, UserAgent};

/// What one request is answered with, and how long after it came.
#[derive(Clone, Copy)]
struct Answer {
    code: u16,
    after: Duration,
}

const AT_ONCE: Answer = Answer { code: 200, after: Duration::ZERO };

/// Answers every request alike, and keeps when it came.
#[derive(Clone)]
struct Server {
    answer: Answer,
    seen: Arc<Mutex<Vec<(String, Duration)>>>,
    clock: Arc<dyn Clock>,
    lock: Arc<MemoryLock>,
}

impl Server {
    fn new(answer: Answer) -> Self {
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        Self { answer, seen: Arc::default(), clock, lock: Arc::new(MemoryLock::new()) }
    }

    fn client(&self, gate: LeaderGate, limit: RateLimit) -> ApiClient {
        self.client_and_factory(gate, limit).0
    }

    fn client_and_factory(&self, gate: LeaderGate, limit: RateLimit) -> (ApiClient, ClientFactory) {
        let this = self.clone();
        let service = tower::service_fn(move |request: HttpRequest<Body>| {
            let this = this.clone();
            async move {
                let told = (request.method().to_string(), this.clock.monotonic());
                this.seen.lock().unwrap().push(told);
                this.clock.sleep(this.answer.after).await;
                let body = Full::from("{\"metadata\":{\"namespace\":\"shop\",\"name\":\"web\"}}");
                let answer =
                    Response::builder().status(this.answer.code).header("retry-after", "3").body(body);
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        let options = ClientOptions::new(UserAgent::new("test", "v1", "abcdef0"), Arc::clone(&self.clock));
        let factory = ClientFactory::in_process(service, options).gated(gate);
        (factory.client("test", limit), factory)
    }

    /// A candidate that leads for ten seconds a renewal.
    fn elector(&self) -> LeaderElector {
        LeaderElector::new(LeaderElectionConfig::new(
            ObjectKey::new("kube-system", "kcm"),
            "me",
            Arc::clone(&self.lock) as _,
            Arc::clone(&self.clock),
            Arc::new(SeededRandom::new(1)),
        ))
        .unwrap()
    }

    fn seen(&self) -> Vec<(String, Duration)> {
        self.seen.lock().unwrap().clone()
    }
}

fn key() -> ObjectKey {
    ObjectKey::new("shop", "web")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Leads, and never renews again: what a process is that has been stopped.
async fn lead_without_renewing<T>(
    server: &Server,
    elector: &mut LeaderElector,
    then: impl Future<Output = T>,
) -> T {
    let never = CancellationToken::new();
    let (led, leading) = tokio::sync::oneshot::channel();
    let mut running = Box::pin(elector.run(&never, |_| async {
        led.send(()).unwrap();
        std::future::pending::<()>().await;
    }));
    tokio::select! {
        _ = &mut running => unreachable!(),
        led = leading => led.unwrap(),
    }
    assert!(server.lock.lease().is_some());
    // From here on it is not polled, and not dropped before `then` is through.
    then.await
}

#[tokio::test(start_paused = true)]
async fn client_of_a_standby_reads_and_does_not_write() {
    let server = Server::new(AT_ONCE);
    let client = server.client(server.elector().gate(), RateLimit::UNLIMITED);
    client.get::<Pod>(&key()).await.unwrap();
    let refusals = [
        client.create::<Pod>("shop", "{}").await.unwrap_err(),
        client.replace::<Pod>(&key(), None, "{}").await.unwrap_err(),
        client.patch::<Pod>(&key(), "{}").await.unwrap_err(),
        client.delete::<Pod>(&key()).await.unwrap_err(),
    ];
    assert!(refusals.iter().all(ApiError::is_not_leading), "{refusals:?}");
    assert_eq!(
        refusals[3].to_string(),
        "DELETE /api/v1/namespaces/shop/pods/web: this process does not lead"
    );
    assert_eq!(server.seen(), [("GET".to_owned(), Duration::ZERO)]);
}

#[tokio::test(start_paused = true)]
async fn write_that_waits_for_the_rate_limit_is_not_sent_when_the_gate_has_closed_meanwhile() {
    let server = Server::new(AT_ONCE);
    let mut elector = server.elector();
    let client = server.client(elector.gate(), RateLimit { qps: 0.05, burst: 1 });
    lead_without_renewing(&server, &mut elector, async {
        client.delete::<Pod>(&key()).await.unwrap();
        assert!(client.delete::<Pod>(&key()).await.unwrap_err().is_not_leading());
        assert_eq!(server.clock.monotonic(), seconds(20), "it has waited for its turn");
    })
    .await;
    assert_eq!(server.seen(), [("DELETE".to_owned(), Duration::ZERO)]);
}

#[tokio::test(start_paused = true)]
async fn write_is_not_sent_again_once_the_gate_has_closed() {
    let server = Server::new(Answer { code: 429, after: Duration::ZERO });
    let mut elector = server.elector();
    let client = server.client(elector.gate(), RateLimit::UNLIMITED);
    lead_without_renewing(&server, &mut elector, async {
        assert!(client.delete::<Pod>(&key()).await.unwrap_err().is_not_leading());
    })
    .await;
    let moments: Vec<_> = server.seen().iter().map(|(_, at)| at.as_secs()).collect();
    assert_eq!(moments, [0, 3, 6, 9]);
}

#[tokio::test(start_paused = true)]
async fn write_under_way_is_let_go_of_when_the_gate_closes() {
    let server = Server::new(Answer { after: seconds(3600), ..AT_ONCE });
    let mut elector = server.elector();
    let client = server.client(elector.gate(), RateLimit::UNLIMITED);
    lead_without_renewing(&server, &mut elector, async {
        assert!(client.delete::<Pod>(&key()).await.unwrap_err().is_not_leading());
        assert_eq!(server.clock.monotonic(), seconds(10));
        assert!(
            matches!(client.get::<Pod>(&key()).await, Err(ApiError::Timeout(_))),
            "a read may take its time"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn answer_that_comes_when_the_gate_is_closed_is_not_believed() {
    let server = Server::new(Answer { after: seconds(10), ..AT_ONCE });
    let mut elector = server.elector();
    let client = server.client(elector.gate(), RateLimit::UNLIMITED);
    lead_without_renewing(&server, &mut elector, async {
        assert!(client.delete::<Pod>(&key()).await.unwrap_err().is_not_leading());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn write_of_a_leader_that_renews_may_take_longer_than_one_term() {
    let server = Server::new(Answer { after: seconds(45), ..AT_ONCE });
    let mut elector = server.elector();
    let client = server.client(elector.gate(), RateLimit::UNLIMITED);
    let never = CancellationToken::new();
    let outcome = elector.run(&never, |_| async { client.delete::<Pod>(&key()).await });
    assert!(matches!(outcome.await, kcm_leader_election::ElectionOutcome::Finished(Ok(()))));
}

#[tokio::test(start_paused = true)]
async fn writes_that_are_stopped_are_waited_for_and_no_more_are_sent() {
    let server = Server::new(Answer { after: seconds(3), ..AT_ONCE });
    let mut elector = server.elector();
    let (client, factory) = server.client_and_factory(elector.gate(), RateLimit::UNLIMITED);
    lead_without_renewing(&server, &mut elector, async {
        assert!(factory.writes_have_settled());
        let (key, other) = (key(), key());
        let (outcome, (settled, later)) = tokio::join!(client.delete::<Pod>(&key), async {
            server.clock.sleep(seconds(1)).await;
            assert!(!factory.writes_have_settled());
            let settled = factory.stop_writing(seconds(5)).await;
            (settled, client.delete::<Pod>(&other).await)
        });
        outcome.unwrap();
        assert!(settled && factory.writes_have_settled() && later.unwrap_err().is_not_leading());
        assert_eq!(server.clock.monotonic(), seconds(3));
    })
    .await;
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn writes_whose_answers_are_not_waited_for_never_settle() {
    let server = Server::new(Answer { after: seconds(5), ..AT_ONCE });
    let mut elector = server.elector();
    let (client, factory) = server.client_and_factory(elector.gate(), RateLimit::UNLIMITED);
    lead_without_renewing(&server, &mut elector, async {
        let key = key();
        let given_up = tokio::time::timeout(seconds(1), client.delete::<Pod>(&key)).await;
        assert!(given_up.is_err() && !factory.writes_have_settled());
        assert!(!factory.stop_writing(seconds(1)).await);
        assert_eq!(server.clock.monotonic(), seconds(1), "there is nothing to wait for");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn client_without_a_gate_writes() {
    let server = Server::new(AT_ONCE);
    let options = ClientOptions::new(UserAgent::new("test", "v1", ""), Arc::clone(&server.clock));
    let answer = || async { Ok::<_, Infallible>(Response::new(Full::from("{}"))) };
    let factory = ClientFactory::in_process(tower::service_fn(move |_: HttpRequest<Body>| answer()), options);
    factory.client("test", RateLimit::UNLIMITED).send(&Request::delete("/x", "")).await.unwrap();
}
