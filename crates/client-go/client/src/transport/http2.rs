//! HTTP/2 connections.
//!
//! hyper's client spawns two tasks per request and sends the head of a request before its body. Here a request is queued
//! with its body, and everything that is queued while the task of the connection runs is written at once.

use std::{
    future::poll_fn,
    io, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use h2::{
    Reason, RecvStream,
    client::{Builder, SendRequest},
};
use http::{HeaderValue, Method, Request, Response, header::CONTENT_LENGTH};
use http_body_util::{BodyExt, Collected};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};
use tower::BoxError;

use super::{
    liveness::{AwaitedAnswer, Liveness, PingTrigger, unanswered_ping},
    send_failure::{ConnectionError, SendFailure, closed},
    stream::Io,
};
use crate::Body;

/// Bytes of one response that the server may send before they are read, as Go.
const STREAM_WINDOW: u32 = 4 << 20;
/// The same for all responses on a connection.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Maximum length of the headers of a response.
const MAX_HEADERS: u32 = 16 << 10;

/// Bytes that are written at once: the maximum length of a TLS record.
const WRITE_BUFFER: usize = 16 << 10;

/// Stream limit before the server's settings arrive.
const NO_SETTINGS: usize = 0;

/// Number of the first stream that a client opens.
const FIRST_STREAM: u32 = 1;

type Connection = h2::client::Connection<Corked, Bytes>;

/// Sends requests on a connection. The connection is closed after the last clone is dropped.
#[derive(Clone)]
pub(super) struct Http2Sender {
    requests: SendRequest<Bytes>,
    liveness: Arc<Liveness>,
}

impl Http2Sender {
    /// Negotiates HTTP/2 and waits for the server's first settings. Also returns the future that drives the connection to
    /// its end. The connection also sends a ping when `pings` is fired.
    pub(super) async fn open(
        io: Box<dyn Io>,
        pings: PingTrigger,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), BoxError> {
        let liveness = Arc::new(Liveness::new(pings));
        let io = Corked::new(io, Arc::clone(&liveness));
        let (sender, mut connection) = Builder::new()
            .enable_push(false)
            .initial_max_send_streams(NO_SETTINGS)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEADERS)
            .handshake(io.clone())
            .await?;
        // A server sends its settings first. Requests beyond its limit would wait inside of the connection.
        poll_fn(|cx| {
            let is_closed = poll(&mut connection, &io, cx).is_ready();
            if sender.current_max_send_streams() > NO_SETTINGS {
                Poll::Ready(Ok(()))
            } else if is_closed {
                Poll::Ready(Err(closed()))
            } else {
                Poll::Pending
            }
        })
        .await?;
        let driver = drive(connection, io, Arc::clone(&liveness));
        Ok((Self { requests: sender, liveness }, driver))
    }

    /// Number of requests that the connection can carry at the same time.
    pub(super) fn max_streams(&self) -> usize {
        self.requests.current_max_send_streams()
    }

    /// `true` if the connection accepts no more requests.
    pub(super) fn is_closed(&mut self) -> bool {
        // Never pending, because this sender has sent no request beyond the limit.
        matches!(self.requests.poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Err(_)))
    }

    /// `true` if the server may be gone. Ends with the next byte from it.
    pub(super) fn is_suspect(&self) -> bool {
        self.liveness.is_suspect()
    }

    /// Sends `request` and returns the head of the answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future resets the stream. If the server was silent for 5 s, the connection is suspect.
    pub(super) async fn send(
        &mut self,
        mut request: Box<Request<Body>>,
    ) -> Result<Response<RecvStream>, SendFailure> {
        let Ok(body) = mem::take(request.body_mut()).collect().await.map(Collected::to_bytes);
        if self.is_closed() {
            *request.body_mut() = body.into();
            return Err(SendFailure::NotSent(request));
        }
        if !body.is_empty() || matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) {
            let length = || HeaderValue::from(body.len());
            request.headers_mut().entry(CONTENT_LENGTH).or_insert_with(length);
        }
        let awaited = AwaitedAnswer::new(&self.liveness);
        let (answer, mut stream) = self
            .requests
            .send_request(head(&request), body.is_empty())
            .map_err(|error| SendFailure::Unsendable(error.into()))?;
        let is_first = answer.stream_id().as_u32() == FIRST_STREAM;
        let sent = if body.is_empty() { Ok(()) } else { stream.send_data(body.clone(), true) };
        let error = match sent {
            Ok(()) => match answer.await {
                Ok(answer) => {
                    awaited.end();
                    return Ok(answer);
                }
                Err(error) => error,
            },
            Err(error) => error,
        };
        awaited.end();
        *request.body_mut() = body.into();
        Err(match Unprocessed::of(&error, is_first) {
            Some(Unprocessed::Closed) => SendFailure::NotSent(request),
            Some(Unprocessed::Refused) => SendFailure::Refused(request),
            None => SendFailure::Broken(ConnectionError::Http2(error)),
        })
    }
}

/// Method, URI and headers of `request`, which may have to be sent again.
fn head(request: &Request<Body>) -> Request<()> {
    let mut head = Request::new(());
    request.method().clone_into(head.method_mut());
    request.uri().clone_into(head.uri_mut());
    request.headers().clone_into(head.headers_mut());
    head
}

/// Statement of the server that it has not processed a request.
enum Unprocessed {
    /// The connection ends.
    Closed,
    /// The stream was refused.
    Refused,
}

impl Unprocessed {
    /// h2 returns a GOAWAY for streams after the last one that the server processes.
    ///
    /// As in Go, a GOAWAY with an error that answers the first request of a connection is final: the next connection would
    /// end likewise.
    fn of(error: &h2::Error, is_first: bool) -> Option<Self> {
        match error.reason() {
            _ if !error.is_remote() => None,
            Some(reason) if error.is_go_away() => {
                (reason == Reason::NO_ERROR || !is_first).then_some(Self::Closed)
            }
            Some(Reason::REFUSED_STREAM) => Some(Self::Refused),
            _ => None,
        }
    }
}

/// Returns the next part of a response, or `None` after its end.
pub(super) fn poll_data(
    body: &mut RecvStream,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, h2::Error>>> {
    let data = match ready!(body.poll_data(cx)) {
        Some(Ok(data)) => data,
        // A server that needs no more of the request can end its answer like this.
        Some(Err(error)) if matches!(error.reason(), Some(Reason::NO_ERROR | Reason::CANCEL)) => {
            return Poll::Ready(None);
        }
        other => return Poll::Ready(other),
    };
    let released = body.flow_control().release_capacity(data.len());
    Poll::Ready(Some(released.map(|()| data)))
}

/// Polls `connection`, then writes what it has queued.
fn poll(connection: &mut Connection, io: &Corked, cx: &mut Context<'_>) -> Poll<()> {
    if Pin::new(&mut *connection).poll(cx).is_ready() {
        return Poll::Ready(());
    }
    let Poll::Ready(Err(error)) = io.poll_write_out(cx) else { return Poll::Pending };
    // Reported to the requests in flight.
    io.fail(error);
    drop(Pin::new(connection).poll(cx));
    Poll::Ready(())
}

/// Drives a connection until it is closed or the server is silent in spite of a ping.
async fn drive(mut connection: Connection, io: Corked, liveness: Arc<Liveness>) {
    let pings = connection.ping_pong();
    tokio::select! {
        biased;
        () = poll_fn(|cx| poll(&mut connection, &io, cx)) => {}
        () = unanswered_ping(pings, &liveness) => {}
    }
}

/// Byte stream that collects writes until [`poll_write_out`](Self::poll_write_out). h2 flushes after each frame of a body.
#[derive(Clone)]
struct Corked(Arc<Mutex<Buffered>>);

struct Buffered {
    io: BufWriter<Box<dyn Io>>,
    liveness: Arc<Liveness>,
    /// Result of the next read.
    failure: Option<io::Error>,
}

impl Corked {
    fn new(io: Box<dyn Io>, liveness: Arc<Liveness>) -> Self {
        let io = BufWriter::with_capacity(WRITE_BUFFER, io);
        Self(Arc::new(Mutex::new(Buffered { io, liveness, failure: None })))
    }

    fn poll_write_out(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().io).poll_flush(cx)
    }

    /// Makes the next read return `error`.
    fn fail(&self, error: io::Error) {
        self.0.lock().failure = Some(error);
    }
}

impl AsyncRead for Corked {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut this = self.0.lock();
        if let Some(failure) = this.failure.take() {
            return Poll::Ready(Err(failure));
        }
        ready!(Pin::new(&mut this.io).poll_read(cx, to))?;
        this.liveness.hear();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Corked {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0.lock().io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0.lock().io).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
