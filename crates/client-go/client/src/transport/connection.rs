//! One HTTP connection.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use h2::RecvStream;
use http::{HeaderValue, Request, Response, Uri, header::HOST};
use http_body::{Body as _, Frame};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tower::BoxError;

use super::{
    connector::Endpoint,
    fence::Fence,
    http2::{self, Http2Sender},
    send_failure::{ConnectionError, SendFailure, closed},
};
use crate::Body;

/// Timeout of the server's first HTTP/2 settings.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(10);

/// A new connection.
pub(super) struct Connection {
    pub(super) sender: Sender,
    pub(super) fence: Arc<Fence>,
    /// Drives the connection. Resolves when it accepts no more requests.
    pub(super) driver: BoxFuture<'static, ()>,
}

/// Sends requests on a connection.
pub(super) enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(Http2Sender),
}

impl Connection {
    /// Connects to `endpoint`.
    ///
    /// # Errors
    ///
    /// Errors of the connection, of TLS and of the HTTP/2 handshake. No request was sent.
    pub(super) async fn open(endpoint: &Endpoint) -> Result<Self, BoxError> {
        let fence = Arc::new(Fence::default());
        let stream = endpoint.connect(Arc::clone(&fence)).await?;
        if !stream.is_http2 {
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream.io)).await?;
            // The requests on a connection that breaks report its error.
            let mut driver: BoxFuture<'static, ()> = Box::pin(async move { drop(connection.await) });
            tokio::select! {
                ready = sender.ready() => ready?,
                () = &mut driver => return Err(closed().into()),
            }
            if let Some(trial) = stream.trial {
                trial.succeed();
            }
            return Ok(Self { sender: Sender::Http1(sender), fence, driver });
        }
        let (sender, driver) = tokio::select! {
            biased;
            opened = Http2Sender::open(stream.io, endpoint.pings().clone()) => opened?,
            () = endpoint.clock().sleep(SETTINGS_TIMEOUT) => {
                let error = "the server allows no HTTP/2 streams";
                return Err(io::Error::new(io::ErrorKind::TimedOut, error).into());
            }
        };
        if let Some(trial) = stream.trial {
            trial.succeed();
        }
        Ok(Self { sender: Sender::Http2(sender), fence, driver: Box::pin(driver) })
    }
}

impl Sender {
    /// Another sender for an HTTP/2 connection, or `None` for an HTTP/1.1 connection.
    pub(super) fn share(&self) -> Option<Self> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(sender) => Some(Self::Http2(sender.clone())),
        }
    }

    /// Number of requests that the connection can carry at the same time. Servers can change it.
    pub(super) fn limit(&self) -> usize {
        match self {
            Self::Http1(_) => 1,
            Self::Http2(sender) => sender.max_streams(),
        }
    }

    /// `true` if new requests can use the connection, as far as is known.
    pub(super) fn is_usable(&mut self) -> bool {
        match self {
            Self::Http1(sender) => !sender.is_closed(),
            Self::Http2(sender) => !sender.is_closed() && !sender.is_suspect(),
        }
    }

    /// `true` if a request can be sent at once.
    pub(super) fn is_ready(&mut self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_ready(),
            Self::Http2(sender) => !sender.is_closed(),
        }
    }

    /// Waits until an HTTP/1.1 connection can be used again after its last answer, or is closed.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Http1(sender) => sender.poll_ready(cx).map(drop),
            Self::Http2(_) => Poll::Ready(()),
        }
    }

    /// Sends `request` and returns the head of the answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future resets an HTTP/2 stream, and closes an HTTP/1.1 connection.
    pub(super) async fn send(
        &mut self,
        mut request: Box<Request<Body>>,
    ) -> Result<Response<Incoming>, SendFailure> {
        match self {
            Self::Http1(sender) => {
                let uri = request.uri().clone();
                *request.uri_mut() = origin_form(&uri);
                if let Some(host) = host(&uri) {
                    request.headers_mut().insert(HOST, host);
                }
                let answer = sender.try_send_request(*request).await;
                answer.map(|answer| answer.map(Incoming::Http1)).map_err(|error| {
                    let mut failure = SendFailure::from(error);
                    if let SendFailure::NotSent(request) = &mut failure {
                        *request.uri_mut() = uri;
                        request.headers_mut().remove(HOST);
                    }
                    failure
                })
            }
            Self::Http2(sender) => Ok(sender.send(request).await?.map(Incoming::Http2)),
        }
    }
}

/// Body of an answer.
pub(super) enum Incoming {
    Http1(hyper::body::Incoming),
    Http2(RecvStream),
}

impl Incoming {
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        match self {
            Self::Http1(body) => Pin::new(body).poll_frame(cx).map_err(ConnectionError::Http1),
            Self::Http2(body) => {
                http2::poll_data(body, cx).map_ok(Frame::data).map_err(ConnectionError::Http2)
            }
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }
}

/// Path and query, as HTTP/1.1 requests contain them.
fn origin_form(uri: &Uri) -> Uri {
    uri.path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()))
}

/// Value of the header `Host`.
fn host(uri: &Uri) -> Option<HeaderValue> {
    let authority = uri.authority()?.as_str();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    HeaderValue::from_str(host).ok()
}
