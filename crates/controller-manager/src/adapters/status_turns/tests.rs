use std::time::Duration;

use kcm_api::ReplicaSet;
use kcm_client::{ClientFactory, ClientOptions, RateLimit, UserAgent};
use kcm_controller_util::{
    PodControl, ReplicaSetControl,
    StatusUrgency::{Awaited, FewerPods, Other},
};
use kcm_testkit::{FakeApiServer, FakeResponse};

use super::*;
use crate::adapters::ClusterClient;

/// Client with 10 requests per second, without tokens at the start.
struct TestEnv {
    server: FakeApiServer,
    api: ApiClient,
    client: ClusterClient,
    turns: RateLimitTurns,
    /// Enqueued keys, with the milliseconds since the start.
    enqueued: Arc<Mutex<Vec<(String, u128)>>>,
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

impl TestEnv {
    fn new(limit: RateLimit) -> Self {
        let server = FakeApiServer::new(|_| FakeResponse::ok(r#"{"metadata": {"name": "web"}}"#));
        let options = ClientOptions::new(UserAgent::new("test", "v1", ""), server.clock());
        let api = ClientFactory::in_process(server.service(), options).client("test", limit);
        let client = ClusterClient::new(&api);
        let turns = client.status_turns();
        let (enqueued, clock) = (Arc::new(Mutex::new(Vec::new())), server.clock());
        let sink = Arc::clone(&enqueued);
        turns.on_turn(Box::new(move |key, _| {
            sink.lock().push((key.name.to_string(), clock.monotonic().as_millis()));
        }));
        Self { server, api, client, turns, enqueued }
    }

    async fn exhausted() -> Self {
        let env = Self::new(RateLimit { qps: 10.0, burst: 1 });
        env.client.delete_pod(&key("pod")).await.unwrap();
        env
    }

    async fn sleep(&self, milliseconds: u64) {
        self.server.clock().sleep(Duration::from_millis(milliseconds)).await;
    }

    /// Enqueued keys with their times.
    fn enqueued(&self) -> Vec<(String, u128)> {
        self.enqueued.lock().clone()
    }

    /// Times of the requests, in milliseconds.
    fn request_times(&self) -> Vec<u128> {
        self.server.requests().iter().map(|request| request.at.as_millis()).collect()
    }
}

fn replica_set(name: &str) -> ReplicaSet {
    let mut set = ReplicaSet::default();
    (set.metadata.namespace, set.metadata.name) = ("shop".into(), name.into());
    set
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_each_status_is_written_at_once() {
    let env = TestEnv::new(RateLimit::UNLIMITED);
    assert!((0..100).all(|_| env.turns.take(&key("web"), Other)));
    assert_eq!(format!("{:?}", env.turns), "{}");
}

#[tokio::test(start_paused = true)]
async fn free_token_is_for_the_status() {
    let env = TestEnv::new(RateLimit { qps: 10.0, burst: 1 });
    assert!(env.turns.take(&key("web"), Other) && env.turns.take(&key("web"), Other));
    assert_eq!(env.api.available_requests(), 0);
    let set = replica_set("web");
    env.client.update_replica_set_status(&set).await.unwrap();
    env.client.update_replica_set_status(&set).await.unwrap();
    assert_eq!(env.request_times(), [0, 100]);
}

#[tokio::test(start_paused = true)]
async fn key_is_enqueued_when_its_turn_comes_and_its_status_does_not_wait() {
    let env = TestEnv::exhausted().await;
    assert!(!env.turns.take(&key("web"), Other) && !env.turns.take(&key("web"), Other));
    env.sleep(150).await;
    assert_eq!(env.enqueued(), [("web".to_owned(), 100)]);
    assert!(env.turns.take(&key("web"), Other));
    env.client.update_replica_set_status(&replica_set("web")).await.unwrap();
    assert_eq!(env.request_times(), [0, 150]);
}

#[tokio::test(start_paused = true)]
async fn awaited_status_is_as_urgent_as_a_pod() {
    let env = TestEnv::exhausted().await;
    assert!(!env.turns.take(&key("web"), Other));
    assert!(!env.turns.take(&key("api"), Awaited));
    assert!(!env.turns.take(&key("job"), Other));
    // It becomes awaited, and does not lose that.
    assert!(!env.turns.take(&key("job"), Awaited));
    assert!(!env.turns.take(&key("job"), Other));
    env.sleep(1).await;
    env.client.delete_pod(&key("pod")).await.unwrap();
    env.sleep(1_000).await;
    let expected = [("api", 100), ("job", 200), ("web", 400)].map(|(name, at)| (name.to_owned(), at));
    assert_eq!(env.enqueued(), expected);
    assert_eq!(env.request_times(), [0, 300]);
}

#[tokio::test(start_paused = true)]
async fn status_with_fewer_pods_is_before_pods() {
    let env = TestEnv::exhausted().await;
    let pods = ["a", "b"].map(|name| {
        let (client, pod) = (env.client.clone(), key(name));
        tokio::spawn(async move { client.delete_pod(&pod).await.unwrap() })
    });
    env.sleep(1).await;
    assert!(!env.turns.take(&key("web"), Awaited));
    assert!(!env.turns.take(&key("api"), FewerPods));
    env.sleep(1_000).await;
    assert_eq!(env.enqueued(), [("api".to_owned(), 100), ("web".to_owned(), 400)]);
    assert_eq!(env.request_times(), [0, 200, 300]);
    assert!(pods.iter().all(tokio::task::JoinHandle::is_finished));
}

#[tokio::test(start_paused = true)]
async fn turn_that_is_given_back_is_for_the_next() {
    let env = TestEnv::exhausted().await;
    for name in ["web", "api", "job"] {
        assert!(!env.turns.take(&key(name), Other));
    }
    env.turns.give_back(&key("web"));
    env.sleep(150).await;
    assert_eq!(env.enqueued(), [("api".to_owned(), 100)]);
    // Its turn has come.
    env.turns.give_back(&key("api"));
    env.sleep(1).await;
    assert_eq!(env.enqueued()[1..], [("job".to_owned(), 150)]);
    assert_eq!(format!("{:?}", env.turns).matches("shop").count(), 1, "{:?}", env.turns);
}

#[tokio::test(start_paused = true)]
async fn debug_state_names_the_rate_limit() {
    let env = TestEnv::exhausted().await;
    let reason = |phase: &str, name: &str| {
        let state = serde_json::json!({ "queue": { "phase": phase }, "blockedOn": [] });
        let state = crate::debug::rate_limited(Some(state), &key(name), &env.turns).unwrap();
        state["blockedOn"][0]["message"].as_str().map(str::to_owned)
    };
    assert_eq!(reason("queued", "web"), None);
    assert!(!env.turns.take(&key("web"), Other));
    env.sleep(1).await;
    let waits =
        "the manager's rate limit, with 1 waiting requests (raise --kube-api-qps and --kube-api-burst)";
    for (phase, name, expected) in
        [("absent", "web", Some(waits)), ("queued", "api", Some(waits)), ("absent", "api", None)]
    {
        assert_eq!(reason(phase, name).as_deref(), expected, "{phase} {name}");
    }
}
