//! API server with scripted responses.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Request, Response};
use http_body_util::Full;
use kcm_client::{ApiClient, Body, ClientFactory, ClientOptions, RateLimit, UserAgent};
use kcm_clock::{SimulatedClock, Timestamp};
use serde_json::Value;

/// Records requests and responds with the objects of a script, in their order.
#[derive(Clone)]
pub(super) struct Scripted {
    responses: Arc<Mutex<VecDeque<String>>>,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Scripted {
    pub(super) fn new<'a>(responses: impl IntoIterator<Item = &'a Value>) -> Self {
        let responses = responses.into_iter().map(|response| format!("{response}\n")).collect();
        Self { responses: Arc::new(Mutex::new(responses)), requests: Arc::default() }
    }

    pub(super) fn client(&self) -> ApiClient {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| this.clone().respond(request));
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        let options = ClientOptions::new(UserAgent::new("test", "v1", ""), clock);
        ClientFactory::in_process(service, options).client("test", RateLimit::UNLIMITED)
    }

    async fn respond(self, request: Request<Body>) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let body = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
        self.requests.lock().unwrap().push((format!("{} {}", head.method, head.uri), body));
        let response = self.responses.lock().unwrap().pop_front().unwrap();
        Ok(Response::new(Full::from(response)))
    }

    /// Method and path of each request.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(request, _)| request.clone()).collect()
    }

    /// Body of each request.
    pub(super) fn bodies(&self) -> Vec<Value> {
        self.requests.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
    }
}
