//! Leases over HTTP. The API server keeps one in a [`MemoryLock`].

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Method, Request, Response};
use http_body_util::Full;
use kcm_client::{Body, ClientFactory, ClientOptions, RateLimit, UserAgent};
use kcm_clock::{Clock, SeededRandom, SimulatedClock, Timestamp};
use kcm_leader_election::{ElectionOutcome, LeaderElectionConfig, LeaderElector, MemoryLock};
use tokio_util::sync::CancellationToken;

use super::*;

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

#[derive(Clone)]
struct ApiServer {
    lock: Arc<MemoryLock>,
    requests: Arc<Mutex<Vec<String>>>,
    clock: Arc<dyn Clock>,
}

impl ApiServer {
    fn new() -> Self {
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        Self { lock: Arc::new(MemoryLock::new()), requests: Arc::default(), clock }
    }

    fn client(&self) -> LeaseClient {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| this.clone().respond(request));
        let options = ClientOptions::new(UserAgent::new("test", "v1", "abcdef0"), Arc::clone(&self.clock));
        let factory = ClientFactory::in_process(service, options);
        LeaseClient::new(factory.client("leader-election", RateLimit::UNLIMITED))
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    async fn respond(self, request: Request<Body>) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        self.requests.lock().unwrap().push(format!("{} {}", head.method, head.uri));
        let body = body.collect_bytes().await.unwrap();
        let lease = || serde_json::from_slice::<Lease>(&body).unwrap();
        let key = ObjectKey::new("kube-system", head.uri.path().rsplit('/').next().unwrap());
        let result = match head.method {
            Method::GET => self.lock.get(&key).await,
            Method::POST => self.lock.create(&lease()).await,
            _ => self.lock.update(&lease()).await,
        };
        let (code, body) = match result {
            Ok(lease) => (200, serde_json::to_string(&lease).unwrap()),
            Err(ApiError::Status(status)) => (status.code, serde_json::to_string(&*status).unwrap()),
            Err(error) => panic!("{error}"),
        };
        Ok(Response::builder().status(code).body(Full::from(body)).unwrap())
    }
}

fn key() -> ObjectKey {
    ObjectKey::new("kube-system", "kcm")
}

#[tokio::test(start_paused = true)]
async fn sends_requests_of_upstream() {
    let server = ApiServer::new();
    let client = server.client();
    assert!(client.get(&key()).await.unwrap_err().is_not_found());
    let untyped = Lease { api_version: String::new(), kind: String::new(), ..Lease::new(&key()) };
    let created = client.create(&untyped).await.unwrap();
    assert_eq!((&*created.api_version, &*created.kind), ("coordination.k8s.io/v1", "Lease"));
    assert!(client.create(&created).await.unwrap_err().is_already_exists());
    let mut changed = created.clone();
    changed.spec.holder_identity = Some("me".to_owned());
    let updated = client.update(&changed).await.unwrap();
    assert_ne!(updated.metadata.resource_version, created.metadata.resource_version);
    assert!(client.update(&changed).await.unwrap_err().is_conflict());
    assert_eq!(client.get(&key()).await.unwrap().holder(), Some("me"));
    assert_eq!(
        server.requests(),
        [
            format!("GET {PATH}/kcm"),
            format!("POST {PATH}"),
            format!("POST {PATH}"),
            format!("PUT {PATH}/kcm"),
            format!("PUT {PATH}/kcm"),
            format!("GET {PATH}/kcm"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn candidate_leads_and_releases() {
    let server = ApiServer::new();
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
    let verbs: Vec<_> = server.requests().iter().map(|request| request[..3].to_owned()).collect();
    assert_eq!(verbs, ["GET", "POS", "PUT", "PUT", "GET", "PUT"]);
}
