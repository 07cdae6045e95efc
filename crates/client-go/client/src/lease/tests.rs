//! Leases over HTTP, against a service that keeps one.

use std::sync::Mutex;

use futures_util::stream;
use http::{Method, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kcm_clock::{Clock, SeededRandom, SimulatedClock, Timestamp};
use kcm_leader_election::{ElectionOutcome, LeaderElectionConfig, LeaderElector, MemoryLock};
use kube_client::client::Body;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{ClientFactory, ClientOptions, RateLimit, UserAgent};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

type AnswerBody = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, Infallible>;

/// A server with one Lease, and what came to it.
#[derive(Clone)]
struct Server {
    lock: Arc<MemoryLock>,
    seen: Arc<Mutex<Vec<String>>>,
    /// What each watch brings before it ends; one that finds none is refused.
    watches: Arc<Mutex<Vec<Vec<String>>>>,
    clock: Arc<dyn Clock>,
}

impl Server {
    fn new() -> Self {
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        Self { lock: Arc::new(MemoryLock::new()), seen: Arc::default(), watches: Arc::default(), clock }
    }

    fn client(&self) -> ApiClient {
        let this = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| this.clone().answer(request));
        let options = ClientOptions::new(UserAgent::new("test", "v1", "abcdef0"), Arc::clone(&self.clock));
        ClientFactory::in_process(service, options).client("leader-election", RateLimit::UNLIMITED)
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    async fn answer(self, request: http::Request<Body>) -> Result<Response<AnswerBody>, Infallible> {
        let (head, body) = request.into_parts();
        self.seen.lock().unwrap().push(format!("{} {}", head.method, head.uri));
        if head.uri.query().is_some() {
            let mut watches = self.watches.lock().unwrap();
            if watches.is_empty() {
                return Ok(whole(403, r#"{"kind":"Status","reason":"Forbidden","code":403}"#.to_owned()));
            }
            let lines = watches.remove(0).into_iter().map(|line| Ok(Frame::data(bytes::Bytes::from(line))));
            return Ok(Response::new(StreamBody::new(stream::iter(lines)).boxed_unsync()));
        }
        let body = body.collect_bytes().await.unwrap();
        let lease = || serde_json::from_slice::<Lease>(&body).unwrap();
        let key = ObjectKey::new("kube-system", head.uri.path().rsplit('/').next().unwrap());
        let outcome = match head.method {
            Method::GET => self.lock.get(&key).await,
            Method::POST => self.lock.create(&lease()).await,
            _ => self.lock.update(&lease()).await,
        };
        Ok(match outcome {
            Ok(lease) => whole(200, serde_json::to_string(&lease).unwrap()),
            Err(ApiError::Status(status)) => whole(status.code, serde_json::to_string(&*status).unwrap()),
            Err(error) => panic!("a lock in memory fails with a status only: {error}"),
        })
    }
}

fn whole(code: u16, body: String) -> Response<AnswerBody> {
    Response::builder().status(code).body(http_body_util::Full::from(body).boxed_unsync()).unwrap()
}

fn key() -> ObjectKey {
    ObjectKey::new("kube-system", "kcm")
}

#[tokio::test(start_paused = true)]
async fn lease_is_read_created_and_replaced_where_the_api_has_it() {
    let server = Server::new();
    let client = server.client();
    let lock: &dyn LeaseLock = &client;
    assert!(lock.get(&key()).await.unwrap_err().is_not_found());
    // As from a list: without its type, which the server needs.
    let lease = Lease { api_version: String::new(), kind: String::new(), ..Lease::new(&key()) };
    let created = lock.create(&lease).await.unwrap();
    assert_eq!((&*created.api_version, &*created.kind), ("coordination.k8s.io/v1", "Lease"));
    assert!(lock.create(&created).await.unwrap_err().is_already_exists());
    let mut changed = created.clone();
    changed.spec.holder_identity = Some("me".to_owned());
    let updated = lock.update(&changed).await.unwrap();
    assert_ne!(updated.metadata.resource_version, created.metadata.resource_version);
    assert!(lock.update(&changed).await.unwrap_err().is_conflict());
    assert_eq!(lock.get(&key()).await.unwrap().holder(), Some("me"));
    let one = format!("{PATH}/kcm");
    let expected =
        [format!("GET {one}"), format!("POST {PATH}"), format!("POST {PATH}"), format!("PUT {one}")];
    let seen = server.seen();
    assert_eq!(seen[..4], expected);
    assert_eq!(seen[4..], [format!("PUT {one}"), format!("GET {one}")]);
}

#[tokio::test(start_paused = true)]
async fn election_over_http_leads_and_gives_back() {
    let server = Server::new();
    let config = LeaderElectionConfig {
        release_on_cancel: true,
        ..LeaderElectionConfig::new(
            key(),
            "me",
            Arc::new(server.client()),
            Arc::clone(&server.clock),
            Arc::new(SeededRandom::new(1)),
        )
    };
    let mut elector = LeaderElector::new(config).unwrap();
    let (gate, clock) = (elector.gate(), Arc::clone(&server.clock));
    let never = CancellationToken::new();
    let outcome = elector.run(&never, |_| async move {
        clock.sleep(Duration::from_secs(5)).await;
        gate.is_leader()
    });
    assert_eq!(outcome.await, ElectionOutcome::Finished(true));
    assert_eq!(server.lock.lease().unwrap().holder(), None);
    let verbs: Vec<_> = server.seen().iter().map(|line| line[..3].to_owned()).collect();
    assert_eq!(verbs, ["GET", "POS", "PUT", "PUT", "GET", "PUT"]);
}

#[tokio::test(start_paused = true)]
async fn followed_lease_is_told_state_by_state_and_the_watch_is_opened_again() {
    let server = Server::new();
    let event = |type_: &str, holder: &str| {
        let mut lease = Lease::new(&key());
        lease.spec.holder_identity = Some(holder.to_owned());
        format!("{{\"type\":\"{type_}\",\"object\":{}}}\n", serde_json::to_string(&lease).unwrap())
    };
    let first = vec![event("ADDED", "a"), event("MODIFIED", "")];
    *server.watches.lock().unwrap() = vec![first, vec![event("DELETED", "")], vec!["garbage\n".to_owned()]];
    let client = server.client();
    let mut told = Vec::new();
    let key = key();
    let follow = client.follow_lease(&key, |lease| {
        told.push(lease.map(|lease| lease.holder().unwrap_or_default().to_owned()));
    });
    let minute = tokio::time::timeout(Duration::from_secs(120), follow).await;
    assert!(minute.is_err(), "it goes on");
    assert_eq!(told, [Some("a".to_owned()), Some(String::new()), None]);
    let seen = server.seen();
    let watch = format!("GET {PATH}?watch=true&fieldSelector=metadata.name%3Dkcm&timeoutSeconds=300");
    assert!(seen.iter().all(|line| *line == watch), "{seen:?}");
    // Three that end at once, then refused: again after 1, 2, 4, 8, 16, 30, 30 seconds.
    assert_eq!(seen.len(), 8);
}
