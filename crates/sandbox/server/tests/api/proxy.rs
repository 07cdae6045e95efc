//! `pods/proxy` and `services/proxy`.

use std::sync::Arc;

use kcm_sandbox_server::{HttpServer, PodRequest, PodResponse, PodServer};
use serde_json::{Value, json};

use crate::client::{Client, PODS};

const P: &str = "/api/v1/namespaces/default/pods/p";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Responds at port 8080 with the request as text.
fn echo(request: &PodRequest<'_>) -> Option<PodResponse> {
    let PodRequest { pod, port, method, path, query, body } = request;
    let body = format!("{} {method} {path} {query} {}", pod.name(), String::from_utf8_lossy(body));
    (*port == 8080).then_some(PodResponse { code: 200, body })
}

/// A client of a server with the pod `p`, which declares the port `web`.
async fn with_pod() -> Client {
    let pod_server = Some(Arc::new(echo) as PodServer);
    let server = |server: &Arc<_>| HttpServer { pod_server, ..HttpServer::new(Arc::clone(server)) }.service();
    let client = Client::of(server, |_| {});
    let ports = json!([{"name": "web", "containerPort": 8080}]);
    let container = json!({"name": "c", "image": "nginx:1", "ports": ports});
    let metadata = json!({"name": "p", "labels": {"app": "web"}});
    client.post(PODS, &json!({"metadata": metadata, "spec": {"containers": [container]}})).await.expect(201);
    client
}

async fn start(client: &Client) {
    let status = json!({
        "phase": "Running", "podIP": "10.1.0.1", "conditions": [{"type": "Ready", "status": "True"}],
    });
    client.patch(&format!("{P}/status"), &json!({"status": status})).await.expect(200);
}

#[tokio::test]
async fn pod_receives_requests() {
    let client = with_pod().await;
    let message = client.get(&format!("{P}/proxy/")).await.refused(400, "BadRequest");
    assert_eq!(message, "address not allowed");
    start(&client).await;
    for (path, answer) in [
        ("p/proxy/", "p GET /  "),
        ("p/proxy/a/b?c=d", "p GET /a/b c=d "),
        ("p:8080/proxy/", "p GET /  "),
        ("http:p:8080/proxy/", "p GET /  "),
        ("https%3Ap%3A/proxy/a%2Fb/", "p GET /a%2Fb/  "),
    ] {
        let answered = client.get(&format!("{PODS}/{path}")).await;
        assert_eq!((answered.code, answered.text.as_str()), (200, answer), "{path}");
    }
    let posted = client.post(&format!("{P}/proxy/x"), &json!({})).await;
    assert_eq!(posted.text, "p POST /x  {}");

    let redirect = client.get(&format!("{P}/proxy?a=b")).await;
    assert_eq!((redirect.code, redirect.header("location")), (301, format!("{P}/proxy/?a=b").as_str()));
    let closed = client.get(&format!("{P}:81/proxy/")).await.refused(503, "ServiceUnavailable");
    assert_eq!(closed, "error trying to reach service: dial tcp 10.1.0.1:81: connect: connection refused");
    client.get(&format!("{PODS}/q/proxy/")).await.refused(404, "NotFound");
    client.get(&format!("{PODS}/a:b:c:d/proxy/")).await.refused(400, "BadRequest");
}

#[tokio::test]
async fn service_selects_a_ready_pod() {
    let client = with_pod().await;
    let service = json!({
        "metadata": {"name": "s"},
        "spec": {
            "selector": {"app": "web"},
            "ports": [
                {"name": "http", "port": 80, "targetPort": "web"},
                {"name": "closed", "port": 81, "targetPort": 81},
            ],
        },
    });
    client.post(SERVICES, &service).await.expect(201);
    let path = |name: &str| format!("{SERVICES}/{name}/proxy/");
    let message = client.get(&path("s:http")).await.refused(503, "ServiceUnavailable");
    assert_eq!(message, "no endpoints available for service \"s\"");
    start(&client).await;
    for name in ["s:http", "s:80", "http:s:80"] {
        assert_eq!(client.get(&path(name)).await.text, "p GET /  ", "{name}");
    }
    client.get(&path("s:closed")).await.refused(503, "ServiceUnavailable");
    let message = client.get(&path("s:other")).await.refused(503, "ServiceUnavailable");
    assert_eq!(message, "no service port \"other\" found for service \"s\"");
    client.get(&path("s")).await.refused(503, "ServiceUnavailable");
    client.get(&path("t")).await.refused(404, "NotFound");
}

#[tokio::test]
async fn proxy_without_a_pod_server_is_not_implemented() {
    let client = crate::client();
    client.get(&format!("{P}/proxy/")).await.refused(501, "NotImplemented");
}

#[tokio::test]
async fn proxy_is_discovered() {
    let client = crate::client();
    let resources = client.get("/api/v1").await.expect(200);
    let find = |name: &str| -> Value {
        let all = resources["resources"].as_array().unwrap();
        all.iter().find(|resource| resource["name"] == name).unwrap()["kind"].clone()
    };
    assert_eq!(find("pods/proxy"), "PodProxyOptions");
    assert_eq!(find("services/proxy"), "ServiceProxyOptions");
}
