//! One HTTP connection.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response, Uri, header::HOST};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
    rt::Executor,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use kube_client::client::Body;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tower::BoxError;

use super::connector::{Endpoint, Io};
use super::fence::Fence;

/// Interval of HTTP/2 pings.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Timeout of a ping. A dead connection is detected within 45 s, as upstream.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes of one response that the server may send before they are read, as Go. An adaptive window would be probed with a
/// ping per response.
const STREAM_WINDOW: u32 = 4 << 20;
/// The same for all responses on a connection.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Timeout of the server's first HTTP/2 settings.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(10);

/// Stream limit of an HTTP/2 connection whose peer has not sent its settings.
const NO_SETTINGS: usize = 0;

type Http2 = http2::Connection<TokioIo<Box<dyn Io>>, Body, NotifyingExecutor>;

/// A new connection.
pub(super) struct Connection {
    pub(super) sender: Sender,
    pub(super) streams: Streams,
    pub(super) fence: Arc<Fence>,
    /// Drives the connection. Resolves when it accepts no more requests.
    pub(super) driver: BoxFuture<'static, ()>,
}

/// Sends requests on a connection.
pub(super) enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

/// Number of requests that a connection can carry at the same time.
#[derive(Clone)]
pub(super) enum Streams {
    /// HTTP/1.1.
    One,
    /// HTTP/2: as many as the peer's current settings allow.
    Settings(Arc<Mutex<Http2>>),
}

impl Streams {
    pub(super) fn limit(&self) -> usize {
        match self {
            Self::One => 1,
            Self::Settings(connection) => connection.lock().current_max_send_streams(),
        }
    }
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
            let (mut sender, connection) = http1::handshake(stream.io).await?;
            // The requests on a connection that breaks report its error.
            let mut driver: BoxFuture<'static, ()> = Box::pin(async move { drop(connection.await) });
            tokio::select! {
                ready = sender.ready() => ready?,
                () = &mut driver => return Err(closed().into()),
            }
            return Ok(Self { sender: Sender::Http1(sender), streams: Streams::One, fence, driver });
        }
        let polled = Arc::new(Notify::new());
        let (sender, connection) = http2::Builder::new(NotifyingExecutor(Arc::clone(&polled)))
            .timer(TokioTimer::new())
            .initial_max_send_streams(NO_SETTINGS)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(stream.io)
            .await?;
        let connection = Arc::new(Mutex::new(connection));
        let streams = Streams::Settings(Arc::clone(&connection));
        let mut driver: BoxFuture<'static, ()> =
            Box::pin(poll_fn(move |cx| Pin::new(&mut *connection.lock()).poll(cx).map(drop)));
        // A server sends its settings first. Requests beyond its limit would wait inside of the connection.
        let settings = async {
            while streams.limit() == NO_SETTINGS {
                polled.notified().await;
            }
        };
        tokio::select! {
            biased;
            () = settings => {}
            () = &mut driver => return Err(closed().into()),
            () = endpoint.clock().sleep(SETTINGS_TIMEOUT) => {
                let error = "the server allows no HTTP/2 streams";
                return Err(io::Error::new(io::ErrorKind::TimedOut, error).into());
            }
        }
        Ok(Self { sender: Sender::Http2(sender), streams, fence, driver })
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the server closed the connection")
}

impl Sender {
    /// Another sender for an HTTP/2 connection, or `None` for an HTTP/1.1 connection.
    pub(super) fn share(&self) -> Option<Self> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(sender) => Some(Self::Http2(sender.clone())),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }

    /// `true` if a request can be sent at once.
    pub(super) fn is_ready(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_ready(),
            Self::Http2(sender) => sender.is_ready(),
        }
    }

    /// Waits until the last answer has been read, if requests share the connection in turns.
    pub(super) async fn ready(&mut self) {
        if let Self::Http1(sender) = self {
            // An error means that the connection is closed.
            drop(sender.ready().await);
        }
    }

    /// Sends `request` and returns the head of the answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future resets an HTTP/2 stream, and closes an HTTP/1.1 connection.
    pub(super) async fn send(
        &mut self,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, SendFailure> {
        match self {
            Self::Http1(sender) => {
                let uri = request.uri().clone();
                *request.uri_mut() = origin_form(&uri);
                if let Some(host) = host(&uri) {
                    request.headers_mut().insert(HOST, host);
                }
                sender.try_send_request(request).await.map_err(|error| {
                    let mut failure = SendFailure::from(error);
                    if let SendFailure::NotSent(request) = &mut failure {
                        *request.uri_mut() = uri;
                        request.headers_mut().remove(HOST);
                    }
                    failure
                })
            }
            Self::Http2(sender) => sender.try_send_request(request).await.map_err(SendFailure::from),
        }
    }
}

/// Reason why a request got no answer.
pub(super) enum SendFailure {
    /// The connection was closed before any part of the request was sent.
    NotSent(Box<Request<Body>>),
    /// The connection broke after the request, or a part of it, may have been sent.
    Broken(hyper::Error),
}

impl From<TrySendError<Request<Body>>> for SendFailure {
    fn from(mut error: TrySendError<Request<Body>>) -> Self {
        match error.take_message() {
            Some(request) => Self::NotSent(Box::new(request)),
            None => Self::Broken(error.into_error()),
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

/// Runs the tasks of an HTTP/2 connection, and notifies after each step of one of them.
#[derive(Clone)]
pub(super) struct NotifyingExecutor(Arc<Notify>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for NotifyingExecutor {
    fn execute(&self, task: F) {
        let polled = Arc::clone(&self.0);
        tokio::spawn(async move {
            let mut task = pin!(task);
            poll_fn(|cx| {
                let step = task.as_mut().poll(cx);
                polled.notify_one();
                step
            })
            .await;
        });
    }
}
