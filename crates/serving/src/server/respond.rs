//! From a request to its answer.
//!
//! *Upstream counterpart:* the chain of `controller-manager/app.BuildHandlerChain`.

use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH},
    request::Parts,
};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use kcm_clock::Clock;
use rustls::pki_types::CertificateDer;

use crate::{
    Access, Answer, Asked, Handler, Routes, User,
    access::{Presented, Refusal},
    exchange::unescape,
};

const MAX_BODY: usize = 64 * 1024;
const BODY: Duration = Duration::from_secs(10);

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
        Self(Arc::new(Inner { access, routes, clock }))
    }

    pub(super) fn access(&self) -> &Access {
        &self.0.access
    }

    /// Answers `request`, and writes a line about it: never of headers, queries or bodies, which can hold secrets.
    pub(super) async fn respond<B>(&self, request: Request<B>, peer: &Peer) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let begun = self.0.clock.monotonic();
        let (mut parts, body) = request.into_parts();
        let mut response = self.answer(&mut parts, body, peer).await;
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

    async fn answer<B>(&self, parts: &mut Parts, body: B, peer: &Peer) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // One reading of the path, for who may and for what there is.
        let uri = parts.uri.clone();
        let path = unescape(uri.path(), false);
        let presented = Presented {
            certificates: &peer.certificates,
            headers: &parts.headers,
            method: parts.method.as_str(),
            path: &path,
        };
        let admitted = self.0.access.admit(&presented).await;
        // Who is unknown should not keep a connection (CVE-2023-44487), as upstream.
        let is_last = match &admitted {
            Ok(user) | Err(Refusal::Forbidden { user, .. }) => user.is_anonymous(),
            Err(Refusal::Unauthorized) => true,
            Err(Refusal::Unknown(_)) => false,
        };
        let answer = match admitted {
            Err(refusal) => refusal.answer(&asked(parts, &path, &Bytes::new(), &User::default())),
            Ok(user) => {
                forget_credentials(&mut parts.headers);
                match self.0.routes.find(&path) {
                    None => Answer::not_found(),
                    Some(handler) => match self.read(body).await {
                        Ok(body) => call(handler, &asked(parts, &path, &body, &user)),
                        // No more of the rest is read, of which nobody knows how much there is.
                        Err((status, message)) => {
                            Answer::error(status, message).with(CONNECTION, HeaderValue::from_static("close"))
                        }
                    },
                }
            }
        };
        let mut response = Response::new(Full::new(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        if is_last {
            response.extensions_mut().insert(Last);
        }
        response
    }

    /// The whole body.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    async fn read<B>(&self, body: B) -> Result<Bytes, (StatusCode, &'static str)>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        tokio::select! {
            read = Limited::new(body, MAX_BODY).collect() => match read {
                Ok(body) => Ok(body.to_bytes()),
                Err(error) if error.is::<LengthLimitError>() => {
                    Err((StatusCode::PAYLOAD_TOO_LARGE, "request body is too large"))
                }
                Err(_) => Err((StatusCode::BAD_REQUEST, "request body cannot be read")),
            },
            () = self.0.clock.sleep(BODY) => Err((StatusCode::REQUEST_TIMEOUT, "request body came too slowly")),
        }
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
