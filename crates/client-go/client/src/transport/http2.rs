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
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Ping, PingPong, Reason, RecvStream,
    client::{Builder, SendRequest},
};
use http::{HeaderValue, Method, Request, Response, header::CONTENT_LENGTH};
use hyper::rt::Timer;
use hyper_util::rt::TokioTimer;
use kube_client::client::Body;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};
use tower::BoxError;

use super::{
    connection::{ConnectionError, SendFailure, closed},
    connector::Io,
};

/// Interval of pings.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Timeout of a ping. A dead connection is detected within 45 s, as upstream.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

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

type Connection = h2::client::Connection<Corked, Bytes>;

/// Sends requests on a connection. The connection is closed after the last clone is dropped.
#[derive(Clone)]
pub(super) struct Http2Sender(SendRequest<Bytes>);

impl Http2Sender {
    /// Negotiates HTTP/2 and waits for the server's first settings. Also returns the future that drives the connection to
    /// its end.
    pub(super) async fn open(
        io: Box<dyn Io>,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), BoxError> {
        let io = Corked::new(io);
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
        Ok((Self(sender), drive(connection, io)))
    }

    /// Number of requests that the connection can carry at the same time.
    pub(super) fn max_streams(&self) -> usize {
        self.0.current_max_send_streams()
    }

    /// `true` if the connection accepts no more requests.
    pub(super) fn is_closed(&mut self) -> bool {
        // Never pending, because this sender has sent no request beyond the limit.
        matches!(self.0.poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Err(_)))
    }

    /// Sends `request` and returns the head of the answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future resets the stream.
    pub(super) async fn send(
        &mut self,
        mut request: Box<Request<Body>>,
    ) -> Result<Response<RecvStream>, SendFailure> {
        let body = mem::replace(request.body_mut(), Body::empty());
        let body = body.collect_bytes().await.map_err(|error| SendFailure::Unsendable(error.into()))?;
        if self.is_closed() {
            *request.body_mut() = body.into();
            return Err(SendFailure::NotSent(request));
        }
        if !body.is_empty() || matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) {
            let length = || HeaderValue::from(body.len());
            request.headers_mut().entry(CONTENT_LENGTH).or_insert_with(length);
        }
        let (answer, mut stream) = self
            .0
            .send_request(head(&request), body.is_empty())
            .map_err(|error| SendFailure::Unsendable(error.into()))?;
        let sent = if body.is_empty() { Ok(()) } else { stream.send_data(body.clone(), true) };
        let error = match sent {
            Ok(()) => match answer.await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            },
            Err(error) => error,
        };
        Err(if is_unprocessed(&error) {
            *request.body_mut() = body.into();
            SendFailure::NotSent(request)
        } else {
            SendFailure::Broken(ConnectionError::Http2(error))
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

/// `true` if the server states that it has not processed the request. h2 returns a GOAWAY for streams after the last one
/// that the server processes.
fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM))
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

/// Drives a connection until it is closed or a ping is not answered.
async fn drive(mut connection: Connection, io: Corked) {
    let pings = connection.ping_pong();
    tokio::select! {
        biased;
        () = poll_fn(|cx| poll(&mut connection, &io, cx)) => {}
        () = unanswered_ping(pings) => {}
    }
}

/// Resolves when a ping is not answered in time.
async fn unanswered_ping(pings: Option<PingPong>) {
    // Taken once only.
    let Some(mut pings) = pings else { return };
    let timer = TokioTimer::new();
    loop {
        timer.sleep(PING_INTERVAL).await;
        tokio::select! {
            biased;
            pong = pings.ping(Ping::opaque()) => if pong.is_err() { return },
            () = timer.sleep(PING_TIMEOUT) => return,
        }
    }
}

/// Byte stream that collects writes until [`poll_write_out`](Self::poll_write_out). h2 flushes after each frame of a body.
#[derive(Clone)]
struct Corked(Arc<Mutex<Buffered>>);

struct Buffered {
    io: BufWriter<Box<dyn Io>>,
    /// Result of the next read.
    failure: Option<io::Error>,
}

impl Corked {
    fn new(io: Box<dyn Io>) -> Self {
        let io = BufWriter::with_capacity(WRITE_BUFFER, io);
        Self(Arc::new(Mutex::new(Buffered { io, failure: None })))
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
        match this.failure.take() {
            Some(failure) => Poll::Ready(Err(failure)),
            None => Pin::new(&mut this.io).poll_read(cx, to),
        }
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
