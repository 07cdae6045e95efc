//! HTTP client of an in-process server.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use kcm_apiserver::{ApiBody, ApiServer, ApiServerConfig, ApiService, WatchCacheLag};
use kcm_clock::{FakeClock, SeededRandom, Timestamp};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Returns the object. Panics unless the response has this status code.
    #[track_caller]
    pub(crate) fn expect(&self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.text);
        self.json()
    }

    /// Returns the message of the Status. Panics unless it has this code and reason.
    #[track_caller]
    pub(crate) fn refused(&self, code: u16, reason: &str) -> String {
        let status = self.expect(code);
        assert_eq!(
            (&status["kind"], &status["status"], &status["code"]),
            (&json!("Status"), &json!("Failure"), &json!(code))
        );
        assert_eq!(status["reason"].as_str().unwrap_or_default(), reason, "{status}");
        status["message"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        self.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect()
    }
}

/// A server with a fake clock, and a client of it.
pub(crate) struct Client {
    pub(crate) server: Arc<ApiServer>,
    pub(crate) clock: FakeClock,
    service: ApiService,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(configure: impl FnOnce(&mut ApiServerConfig)) -> Self {
        Self::of(ApiServer::service, configure)
    }

    /// Returns a client of the service that `service` returns of a server.
    pub(crate) fn of(
        service: impl FnOnce(&Arc<ApiServer>) -> ApiService,
        configure: impl FnOnce(&mut ApiServerConfig),
    ) -> Self {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = FakeClock::new(start);
        let mut config = ApiServerConfig {
            clock: Arc::new(clock.clone()),
            random: Arc::new(SeededRandom::new(1)),
            ..ApiServerConfig::default()
        };
        configure(&mut config);
        let server = ApiServer::new(config);
        let service = service(&server);
        Self { server, clock, service }
    }

    /// Returns a client of another front end of the same server.
    pub(crate) fn of_lagging_front_end(&self, lag: &WatchCacheLag) -> Self {
        let (server, clock) = (Arc::clone(&self.server), self.clock.clone());
        let service = server.service_lagging(lag.clone());
        Self { server, clock, service }
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Response<ApiBody> {
        self.service.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("user-agent", "test/1");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, body) = self.send(request.body(Full::new(body.into())).unwrap()).await.into_parts();
        let text = body.collect().await.unwrap().to_bytes();
        Answer {
            code: parts.status.as_u16(),
            headers: parts.headers,
            text: String::from_utf8(text.to_vec()).unwrap(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.call("PUT", path, &[], body.to_string()).await
    }

    /// Sends a JSON merge patch.
    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.patch_as("merge", path, body).await
    }

    pub(crate) async fn patch_as(&self, form: &str, path: &str, body: &Value) -> Answer {
        let media = format!("application/{form}-patch+json");
        self.call("PATCH", path, &[("content-type", &media)], body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.call("DELETE", path, &[], body).await
    }
}

fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
    })
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": name}}, "template": template(name)},
    })
}

pub(crate) fn replica_set(name: &str) -> Value {
    let mut set = deployment(name);
    set["kind"] = json!("ReplicaSet");
    set
}

pub(crate) fn pod(name: &str) -> Value {
    let mut pod = template("web");
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod
}

pub(crate) fn version_of(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}
