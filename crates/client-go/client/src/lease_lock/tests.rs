//! Leases over HTTP. The API server keeps one in a [`MemoryLock`].

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use http::Method;
use kcm_clock::{Clock, SeededRandom};
use kcm_leader_election::{ElectionOutcome, LeaderElectionConfig, LeaderElector, MemoryLock};
use kcm_testkit::{FakeApiServer, FakeResponse, RecordedRequest};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{ClientFactory, ClientOptions, RateLimit, UserAgent};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

struct ApiServer {
    lock: Arc<MemoryLock>,
    api: FakeApiServer,
    clock: Arc<dyn Clock>,
}

impl ApiServer {
    fn new() -> Self {
        let lock = Arc::new(MemoryLock::new());
        let api = FakeApiServer::new({
            let lock = Arc::clone(&lock);
            move |request| respond(&lock, request)
        });
        Self { lock, clock: api.clock(), api }
    }

    fn client(&self) -> LeaseClient {
        let options = ClientOptions::new(UserAgent::new("test", "v1", ""), Arc::clone(&self.clock));
        let factory = ClientFactory::in_process(self.api.service(), options);
        LeaseClient::new(&factory.client("test", RateLimit::UNLIMITED))
    }
}

fn respond(lock: &MemoryLock, request: &RecordedRequest) -> FakeResponse {
    let lease = || serde_json::from_str::<Lease>(&request.body).unwrap();
    let key = ObjectKey::new("kube-system", request.path().rsplit('/').next().unwrap());
    let result = match request.method {
        Method::GET => lock.get(&key).now_or_never(),
        Method::POST => lock.create(&lease()).now_or_never(),
        _ => lock.update(&lease()).now_or_never(),
    };
    match result.unwrap() {
        Ok(lease) => FakeResponse::ok(serde_json::to_string(&lease).unwrap()),
        Err(ApiError::Status(status)) => {
            FakeResponse::new(status.code, serde_json::to_string(&*status).unwrap())
        }
        Err(error) => panic!("{error}"),
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
        server.api.request_lines(),
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
    let verbs: Vec<_> = server.api.request_lines().iter().map(|request| request[..3].to_owned()).collect();
    assert_eq!(verbs, ["GET", "POS", "PUT", "PUT", "GET", "PUT"]);
}
