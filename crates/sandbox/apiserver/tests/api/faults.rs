//! Faults that break the connection.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use kcm_apiserver::{
    ApiServer, ApiServerConfig, ApiStatus, AuditEvent, BrokenConnection, Faults, ListOptions, Resource,
    StatusReason,
};
use kcm_clock::{FakeClock, Timestamp};
use parking_lot::Mutex;
use serde_json::json;
use tower::ServiceExt;

use crate::client::PODS;

/// A server with one fault, its clock, and its audit events.
struct Faulty {
    server: Arc<ApiServer>,
    clock: FakeClock,
    audit: Arc<Mutex<Vec<AuditEvent>>>,
}

impl Faulty {
    fn new(fault: &str) -> Self {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let audit = Arc::new(Mutex::new(Vec::new()));
        let server = ApiServer::new(ApiServerConfig {
            clock: Arc::new(clock.clone()),
            faults: Faults::new([fault.parse().unwrap()]),
            audit: Some(Arc::new({
                let audit = Arc::clone(&audit);
                move |event: &AuditEvent| audit.lock().push(event.clone())
            })),
            ..ApiServerConfig::default()
        });
        Self { server, clock, audit }
    }

    async fn create_pod(&self) -> Result<u16, BrokenConnection> {
        let request = Request::post(PODS).body(Full::new(Bytes::from(pod()))).unwrap();
        self.server.service().oneshot(request).await.map(|answer| answer.status().as_u16())
    }

    fn pods(&self) -> usize {
        self.server.list(Resource::PODS, None, &ListOptions::default()).unwrap().items.len()
    }
}

fn pod() -> String {
    let spec = json!({"containers": [{"name": "c", "image": "app:1"}]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}).to_string()
}

#[tokio::test]
async fn break_does_not_serve_the_request() {
    let faulty = Faulty::new("POST /** break times=1");
    assert_eq!(faulty.create_pod().await, Err(BrokenConnection));
    assert_eq!((faulty.pods(), faulty.audit.lock().len()), (0, 0));
    assert_eq!(faulty.create_pod().await, Ok(201));
}

#[tokio::test]
async fn late_without_delay_serves_without_response() {
    let faulty = Faulty::new("POST /** late:0s times=1");
    assert_eq!(faulty.create_pod().await, Err(BrokenConnection));
    assert_eq!(faulty.pods(), 1);
    assert_eq!(faulty.create_pod().await, Ok(409));
}

/// The request is audited when it is served, with the revisions of that time.
#[tokio::test]
async fn late_serves_after_its_time() {
    let faulty = Faulty::new("POST /** late:5s times=1");
    assert_eq!(faulty.create_pod().await, Err(BrokenConnection));
    while faulty.clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    faulty.clock.step(Duration::from_secs(4));
    tokio::task::yield_now().await;
    assert_eq!((faulty.pods(), faulty.audit.lock().len()), (0, 0));
    faulty.clock.step(Duration::from_secs(1));
    while faulty.pods() == 0 {
        tokio::task::yield_now().await;
    }
    let audit = faulty.audit.lock();
    let [event] = &audit[..] else { panic!("{audit:?}") };
    assert_eq!((event.code, event.latency), (201, Duration::from_secs(5)));
    assert_eq!(event.revision_after, event.revision_before + 1);
}

#[tokio::test]
async fn admission_hook_changes_and_refuses_pods() {
    let server = ApiServer::new(ApiServerConfig {
        admission: Some(Arc::new(|resource, object| {
            assert_eq!(resource, Resource::PODS);
            if object["metadata"]["name"] == "refused" {
                return Err(ApiStatus::new(StatusReason::Forbidden, "no"));
            }
            object["metadata"]["labels"]["seen"] = json!("yes");
            Ok(())
        })),
        ..ApiServerConfig::default()
    });
    let create = async |body: String| {
        let request = Request::post(PODS).body(Full::new(Bytes::from(body))).unwrap();
        server.service().oneshot(request).await.unwrap().status().as_u16()
    };
    assert_eq!(create(pod()).await, 201);
    assert_eq!(create(pod().replace("web", "refused")).await, 403);
    let pods = server.list(Resource::PODS, None, &ListOptions::default()).unwrap().items;
    assert_eq!((pods.len(), &pods[0].value()["metadata"]["labels"]["seen"]), (1, &json!("yes")));
}
