use std::sync::Mutex;

use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kcm_clock::{Clock, SimulatedClock, Timestamp};
use kube_client::client::Body;

use super::*;
use crate::{ClientFactory, ClientOptions, RateLimit, UserAgent};

#[tokio::test(start_paused = true)]
async fn watch_reports_each_state_and_is_opened_again() {
    let event = |type_: &str, holder: &str| {
        let mut lease = Lease::new(&ObjectKey::new("kube-system", "kcm"));
        lease.spec.holder_identity = Some(holder.to_owned());
        format!("{{\"type\":\"{type_}\",\"object\":{}}}\n", serde_json::to_string(&lease).unwrap())
    };
    let first = event("ADDED", "a") + &event("MODIFIED", "");
    let watches = Mutex::new(vec!["garbage\n".to_owned(), event("DELETED", ""), first]);
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        recorded.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
        let (code, body) = match watches.lock().unwrap().pop() {
            Some(events) => (200, events),
            None => (403, r#"{"kind":"Status","reason":"Forbidden","code":403}"#.to_owned()),
        };
        let frames = stream::iter([Ok::<_, Infallible>(Frame::data(bytes::Bytes::from(body)))]);
        let body = StreamBody::new(frames).boxed_unsync();
        async move { Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()) }
    });
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let options = ClientOptions::new(UserAgent::new("test", "v1", "abcdef0"), clock);
    let client = ClientFactory::in_process(service, options).client("leader-election", RateLimit::UNLIMITED);

    let mut states = Vec::new();
    let key = ObjectKey::new("kube-system", "kcm");
    let watch = client.watch_lease(&key, |lease| {
        states.push(lease.map(|lease| lease.holder().unwrap_or_default().to_owned()));
    });
    tokio::time::timeout(Duration::from_secs(120), watch).await.unwrap_err();
    assert_eq!(states, [Some("a".to_owned()), Some(String::new()), None]);
    let request = "GET /apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
                   ?watch=true&fieldSelector=metadata.name%3Dkcm&timeoutSeconds=300";
    // Three watches end at once, the others are refused. The delays are 1, 2, 4, 8, 16, 30 and 30 seconds.
    assert_eq!(*requests.lock().unwrap(), [request; 8]);
}
