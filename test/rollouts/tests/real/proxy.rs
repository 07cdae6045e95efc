//! Proxy between the manager and kube-apiserver, which refuses requests of single namespaces.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
};

use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderName, TRANSFER_ENCODING},
};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube_client::{Client, client::Body};
use parking_lot::Mutex;
use rollout_scenarios::Refusal;
use tokio::net::TcpListener;

/// Headers of one connection. The client and the server of the proxy set their own.
const OF_CONNECTION: [HeaderName; 4] = [AUTHORIZATION, CONNECTION, HOST, TRANSFER_ENCODING];

/// Rules of the proxy, by namespace.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    refusals: Mutex<HashMap<String, Vec<Refusal>>>,
    /// Namespaces in which no write of the manager has an effect, as if it did not run.
    stopped: Mutex<HashSet<String>>,
}

impl Rules {
    pub(crate) fn refuse(&self, namespace: &str, refusal: Refusal) {
        self.refusals.lock().entry(namespace.to_owned()).or_default().push(refusal);
    }

    pub(crate) fn allow(&self, namespace: &str, request: rollout_scenarios::Request) {
        if let Some(refusals) = self.refusals.lock().get_mut(namespace) {
            refusals.retain(|one| one.request != request);
        }
    }

    /// Stops or starts the manager in a namespace.
    pub(crate) fn set_running(&self, namespace: &str, running: bool) {
        let mut stopped = self.stopped.lock();
        if running {
            stopped.remove(namespace);
        } else {
            stopped.insert(namespace.to_owned());
        }
    }

    fn refusal(&self, method: &Method, path: &str) -> Option<Refusal> {
        let (_, rest) = path.split_once("/namespaces/")?;
        let namespace = rest.split('/').next()?;
        if self.stopped.lock().contains(namespace) && *method != Method::GET {
            let (request, message) =
                (rollout_scenarios::Request::CreatePods, "the manager is stopped".to_owned());
            return Some(Refusal { request, message, code: 500 });
        }
        let refusals = self.refusals.lock();
        refusals.get(namespace)?.iter().find(|one| one.request.matches(method.as_str(), path)).cloned()
    }
}

/// Serves the proxy without TLS. Returns its address.
pub(crate) async fn serve(client: Client, rules: Arc<Rules>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let (client, rules) = (client.clone(), Arc::clone(&rules));
            let service = service_fn(move |request| answer(client.clone(), Arc::clone(&rules), request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A connection ends with an error if the manager closes it.
            tokio::spawn(async move { drop(connection.await) });
        }
    });
    address
}

async fn answer(
    client: Client,
    rules: Arc<Rules>,
    request: Request<Incoming>,
) -> Result<Response<Either<Full<Bytes>, Body>>, Infallible> {
    if let Some(refusal) = rules.refusal(request.method(), request.uri().path()) {
        let code = StatusCode::from_u16(refusal.code).unwrap();
        return Ok(error(code, refusal.status().to_string()));
    }
    let (mut parts, body) = request.into_parts();
    remove_headers(&mut parts.headers);
    let Ok(body) = body.collect().await else {
        return Ok(error(StatusCode::BAD_REQUEST, String::new()));
    };
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse().unwrap();
    parts.version = http::Version::default();
    match client.send(Request::from_parts(parts, Body::from(body.to_bytes()))).await {
        Ok(response) => {
            let (mut parts, body) = response.into_parts();
            remove_headers(&mut parts.headers);
            parts.version = http::Version::default();
            Ok(Response::from_parts(parts, Either::Right(body)))
        }
        Err(failure) => Ok(error(StatusCode::BAD_GATEWAY, failure.to_string())),
    }
}

fn error(code: StatusCode, body: String) -> Response<Either<Full<Bytes>, Body>> {
    let response = Response::builder().status(code).header(CONTENT_TYPE, "application/json");
    response.body(Either::Left(Full::from(body))).unwrap()
}

fn remove_headers(headers: &mut HeaderMap) {
    for name in OF_CONNECTION {
        headers.remove(name);
    }
}
