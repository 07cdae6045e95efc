//! From a request to its answer.
//!
//! *Upstream counterpart:* the chain of `controller-manager/app.BuildHandlerChain`.

use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH},
    request::Parts,
};
use http_body::Body;
use http_body_util::Full;
use kcm_clock::Clock;
use rustls::pki_types::CertificateDer;

use super::{body::BodyReader, limiter::ActiveRequest};
use crate::{
    Access, Answer, Asked, Handler, Routes, User,
    access::{Presented, Refusal},
    exchange::unescape,
};

/// Who is at the other end of a connection.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) certificates: Vec<CertificateDer<'static>>,
}

/// Answers requests. Cheap to clone.
#[derive(Clone)]
pub(super) struct Responder(Arc<Inner>);

struct Inner {
    access: Access,
    routes: Routes,
    bodies: BodyReader,
    clock: Arc<dyn Clock>,
}

/// After this one there should be no more: set on answers to who is not known.
#[derive(Clone, Copy)]
struct Last;

/// Whether there should be no more requests on the connection after this answer.
pub(super) fn is_last<B>(response: &Response<B>) -> bool {
    response.extensions().get::<Last>().is_some()
}

impl Responder {
    pub(super) fn new(access: Access, routes: Routes, clock: Arc<dyn Clock>) -> Self {
        let bodies = BodyReader::new(Arc::clone(&clock));
        Self(Arc::new(Inner { access, routes, bodies, clock }))
    }

    pub(super) fn access(&self) -> &Access {
        &self.0.access
    }

    /// Answers `request` and logs it without headers, query and body, which can contain secrets.
    ///
    /// `active` is dropped while the server waits for the request's body.
    pub(super) async fn respond<B>(
        &self,
        request: Request<B>,
        peer: &Peer,
        active: ActiveRequest,
    ) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let begun = self.0.clock.monotonic();
        let (mut parts, body) = request.into_parts();
        let mut response = self.answer(&mut parts, body, peer, active).await;
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if parts.method == Method::HEAD {
            let length = HeaderValue::from(response.body().size_hint().lower());
            response.headers_mut().insert(CONTENT_LENGTH, length);
            *response.body_mut() = Full::default();
        }
        tracing::debug!(
            verb = %parts.method,
            URI = parts.uri.path(),
            latency = ?self.0.clock.monotonic().saturating_sub(begun),
            srcIP = %peer.address,
            resp = response.status().as_u16(),
            "HTTP"
        );
        response
    }

    async fn answer<B>(
        &self,
        parts: &mut Parts,
        body: B,
        peer: &Peer,
        active: ActiveRequest,
    ) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // The path is decoded once, for authorization and for the choice of the route.
        let uri = parts.uri.clone();
        let path = unescape(uri.path(), false);
        let presented = Presented {
            certificates: &peer.certificates,
            headers: &parts.headers,
            method: parts.method.as_str(),
            path: &path,
        };
        let admitted = self.0.access.admit(&presented).await;
        drop(active);
        // An anonymous client should not keep a connection (CVE-2023-44487), as upstream.
        let is_last = match &admitted {
            Ok(user) | Err(Refusal::Forbidden { user, .. }) => user.is_anonymous(),
            Err(Refusal::Unauthorized) => true,
            Err(Refusal::Unknown(_)) => false,
        };
        let mut has_unread_body = !body.is_end_stream();
        let answer = match admitted {
            Err(refusal) => refusal.answer(&asked(parts, &path, &Bytes::new(), &User::default())),
            Ok(user) => {
                forget_credentials(&mut parts.headers);
                match self.0.routes.find(&path) {
                    None => Answer::not_found(),
                    Some(route) if !route.reads_body(&parts.method) => {
                        call(&route.handler, &asked(parts, &path, &Bytes::new(), &user))
                    }
                    Some(route) => match self.0.bodies.read(body).await {
                        Ok(body) => {
                            has_unread_body = false;
                            call(&route.handler, &asked(parts, &path, &body, &user))
                        }
                        Err((status, message)) => Answer::error(status, message),
                    },
                }
            }
        };
        let mut response = Response::new(Full::new(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        // HTTP/2 resets the stream instead.
        if has_unread_body && parts.version < Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if is_last {
            response.extensions_mut().insert(Last);
        }
        response
    }
}

fn asked<'a>(parts: &'a Parts, path: &'a str, body: &'a Bytes, user: &'a User) -> Asked<'a> {
    let query = parts.uri.query().unwrap_or_default();
    Asked { method: &parts.method, path, query, headers: &parts.headers, body, user }
}

/// Nobody behind here should be tempted to use them.
fn forget_credentials(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    for name in ["x-remote-user", "x-remote-uid", "x-remote-group"] {
        headers.remove(name);
    }
}

/// What `handler` answers; a panic in it is its own affair, and told as upstream tells it.
fn call(handler: &Handler, asked: &Asked<'_>) -> Answer {
    catch_unwind(AssertUnwindSafe(|| handler(asked))).unwrap_or_else(|_| {
        tracing::error!(verb = %asked.method, URI = asked.path, "A handler panicked");
        let message = "This request caused apiserver to panic. Look in the logs for details.";
        Answer::error(StatusCode::INTERNAL_SERVER_ERROR, message)
    })
}
