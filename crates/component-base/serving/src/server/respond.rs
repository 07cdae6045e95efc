//! Processing of a request: authentication, authorization, handler.
//!
//! Upstream counterpart: the handler chain of `controller-manager/app.BuildHandlerChain`.

use std::{
    future::ready,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{FutureExt, future::Either};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode, Version,
    header::{AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH},
    request::Parts,
};
use http_body::Body;
use http_body_util::Full;
use kcm_clock::Clock;

use super::{
    body::BodyReader,
    limiter::RequestGuard,
    waiting::{self, Waiting},
};
use crate::{
    Access, Handler, Request, Response, Routes, User,
    access::{Attempt, ClientChain, Refusal},
    handler::unescape,
};

/// Client of a connection.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) chain: ClientChain,
}

/// Responds to requests. Clones share their state.
#[derive(Clone)]
pub(super) struct Responder(Arc<Inner>);

struct Inner {
    access: Access,
    routes: Routes,
    bodies: BodyReader,
    waiting: Waiting,
    clock: Arc<dyn Clock>,
}

/// Extension of the last response of a connection.
#[derive(Clone, Copy)]
struct Last;

/// Returns `true` if the connection is closed after this response.
pub(super) fn is_last<B>(response: &http::Response<B>) -> bool {
    response.extensions().get::<Last>().is_some()
}

impl Responder {
    pub(super) fn new(access: Access, routes: Routes, clock: Arc<dyn Clock>) -> Self {
        let bodies = BodyReader::new(Arc::clone(&clock));
        Self(Arc::new(Inner { access, routes, bodies, waiting: Waiting::new(), clock }))
    }

    pub(super) fn access(&self) -> &Access {
        &self.0.access
    }

    /// Responds to `request`, and logs it without headers, query and body, which can contain secrets.
    ///
    /// The request is processed before this method returns, up to the first wait: for a review or for the body. A request
    /// that waits takes a part of the memory for these; without enough of it, the response is status 429. Probes do not wait.
    ///
    /// `guard` is dropped after authorization, so that the connection is idle while the server waits for the body.
    pub(super) fn respond<B>(
        &self,
        request: http::Request<B>,
        peer: Arc<Peer>,
        guard: RequestGuard,
    ) -> impl Future<Output = http::Response<Full<Bytes>>> + Send + use<B>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let start = self.0.clock.monotonic();
        let memory = waiting::memory(&request);
        let (mut parts, body) = request.into_parts();
        let (method, uri, version) = (parts.method.clone(), parts.uri.clone(), parts.version);
        let (this, address) = (self.clone(), peer.address);
        let mut processed = Box::pin(async move { this.process(&mut parts, body, &peer, guard).await });
        let response = match processed.as_mut().now_or_never() {
            Some(response) => Either::Left(ready(response)),
            None => match self.0.waiting.reserve(memory) {
                None => {
                    let response = Response::too_many_requests();
                    Either::Left(ready(http_response(response, true, version < Version::HTTP_2)))
                }
                Some(reserved) => Either::Right(async move {
                    let response = processed.await;
                    drop(reserved);
                    response
                }),
            },
        };
        let clock = Arc::clone(&self.0.clock);
        async move {
            let mut response = response.await;
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
            if method == Method::HEAD {
                let length = HeaderValue::from(response.body().size_hint().lower());
                response.headers_mut().insert(CONTENT_LENGTH, length);
                *response.body_mut() = Full::default();
            }
            tracing::debug!(
                verb = %method,
                URI = uri.path(),
                latency = ?clock.monotonic().saturating_sub(start),
                srcIP = %address,
                resp = response.status().as_u16(),
                "HTTP"
            );
            response
        }
    }

    async fn process<B>(
        &self,
        parts: &mut Parts,
        body: B,
        peer: &Peer,
        guard: RequestGuard,
    ) -> http::Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // The path is decoded once, for authorization and for the choice of the route.
        let uri = parts.uri.clone();
        let path = unescape(uri.path(), false);
        let attempt = Attempt {
            chain: &peer.chain,
            headers: &parts.headers,
            method: parts.method.as_str(),
            path: &path,
        };
        let admitted = self.0.access.admit(&attempt).await;
        drop(guard);
        // An anonymous client should not keep a connection (CVE-2023-44487), as upstream.
        let is_last = match &admitted {
            Ok(user) | Err(Refusal::Forbidden { user, .. }) => user.is_anonymous(),
            Err(Refusal::Unauthorized | Refusal::Busy) => true,
            Err(Refusal::Unknown(_)) => false,
        };
        let mut has_unread_body = !body.is_end_stream();
        let response = match admitted {
            Err(refusal) => refusal.response(&handler_request(parts, &path, &Bytes::new(), &User::default())),
            Ok(user) => {
                remove_credentials(&mut parts.headers);
                match self.0.routes.find(&path) {
                    None => Response::not_found(),
                    Some(route) if !route.reads_body(&parts.method) => {
                        call(&route.handler, &handler_request(parts, &path, &Bytes::new(), &user))
                    }
                    Some(route) => match self.0.bodies.read(body).await {
                        Ok(body) => {
                            has_unread_body = false;
                            call(&route.handler, &handler_request(parts, &path, &body, &user))
                        }
                        Err((status, message)) => Response::error(status, message),
                    },
                }
            }
        };
        let response = match self.0.waiting.keep(response.body) {
            Some(body) => Response { body, ..response },
            None => Response::too_many_requests(),
        };
        // HTTP/2 resets the stream instead.
        http_response(response, is_last, has_unread_body && parts.version < Version::HTTP_2)
    }
}

/// Response for the HTTP library. If `is_last` is `true`, an HTTP/2 connection is closed after it; if `closes` is `true`, an
/// HTTP/1.1 connection.
fn http_response(response: Response, is_last: bool, closes: bool) -> http::Response<Full<Bytes>> {
    let Response { status, headers, body } = response;
    let mut response = http::Response::new(Full::new(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if closes {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if is_last {
        response.extensions_mut().insert(Last);
    }
    response
}

fn handler_request<'a>(parts: &'a Parts, path: &'a str, body: &'a Bytes, user: &'a User) -> Request<'a> {
    let query = parts.uri.query().unwrap_or_default();
    Request { method: &parts.method, path, query, headers: &parts.headers, body, user }
}

/// Removes credentials, so that handlers cannot use them.
fn remove_credentials(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    for name in ["x-remote-user", "x-remote-uid", "x-remote-group"] {
        headers.remove(name);
    }
}

/// Calls `handler`. A panic causes status 500 with upstream's message.
fn call(handler: &Handler, request: &Request<'_>) -> Response {
    catch_unwind(AssertUnwindSafe(|| handler(request))).unwrap_or_else(|_| {
        tracing::error!(verb = %request.method, URI = request.path, "Handler panicked");
        let message = "This request caused apiserver to panic. Look in the logs for details.";
        Response::error(StatusCode::INTERNAL_SERVER_ERROR, message)
    })
}
