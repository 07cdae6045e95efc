//! `etcd`: health and version. The API server keeps its objects in memory.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::arguments::{Arguments, Flag};
use crate::SandboxError;

/// Version that is reported: that of the etcd that Kubernetes v1.36 is tested with.
pub(super) const VERSION: &str = "3.6.6";

/// Flags of etcd that test frameworks pass.
pub(super) const FLAGS: &[Flag] = &[
    ("advertise-client-urls", "URLS", ""),
    ("data-dir", "DIRECTORY", ""),
    ("initial-advertise-peer-urls", "URLS", ""),
    ("initial-cluster", "MEMBERS", ""),
    ("initial-cluster-state", "STATE", ""),
    (
        "listen-client-urls",
        "URLS",
        "URLs to listen on, of which the first is served [default: http://localhost:2379]",
    ),
    ("listen-metrics-urls", "URLS", ""),
    ("listen-peer-urls", "URLS", ""),
    ("log-level", "LEVEL", ""),
    ("name", "NAME", ""),
    ("quota-backend-bytes", "N", ""),
    ("unsafe-no-fsync", "", ""),
];

/// Serves until it is dropped.
pub(crate) async fn serve(arguments: &Arguments) -> Result<(), SandboxError> {
    let urls = arguments.last("listen-client-urls").unwrap_or("http://localhost:2379");
    let url = urls.split(',').next().unwrap_or_default().trim();
    let address = url.split_once("://").map_or(url, |(_, address)| address).trim_end_matches('/');
    let failed = |source| SandboxError::Listen { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    println!("Serving client traffic on {}", listener.local_addr().map_err(failed)?);
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(respond)));
    }
}

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = match request.uri().path() {
        "/health" => r#"{"health":"true","reason":""}"#.to_owned(),
        "/livez" | "/readyz" => "ok".to_owned(),
        "/version" => format!(r#"{{"etcdserver":"{VERSION}","etcdcluster":"{VERSION}"}}"#),
        _ => {
            let mut response = Response::new(Full::from("404 page not found\n"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Ok(response);
        }
    };
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Ok(response)
}
