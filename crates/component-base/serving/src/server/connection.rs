//! Connections: TLS handshake, HTTP, idle timeout and shutdown.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use kcm_clock::Clock;
use thiserror::Error;
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::Notify};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use super::{
    limiter::{ConnectionLimiter, ConnectionPermit},
    respond::{Peer, Responder, is_last},
    stream::ClientStream,
};
use crate::{ServingOptions, access::ClientChain};

/// Time limit of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which an idle connection is closed, as upstream.
///
/// DEVIATION: over HTTP/1.1, also the time limit of a request's headers, because hyper counts the time before their first byte.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Time for the client to read the last response after a graceful shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// Default limit of concurrent HTTP/2 streams. Probes and scrapers have one at a time.
const MAX_STREAMS: u32 = 10;
/// Maximum size of a request's headers, in bytes, with 32 bytes for each header over HTTP/2. Tokens have a few thousand
/// bytes.
const MAX_HEADERS: u32 = 16 * 1024;
/// Maximum number of requests of a connection that the client cancels, such as by resetting the stream.
const MAX_CANCELLED: usize = 100;
/// Maximum number of streams of an HTTP/2 connection that the server resets, such as for their number. Go's client assumes
/// that it can open 100 streams until it has received the limit.
const MAX_RESET_BY_SERVER: usize = 100;
/// HTTP/2 flow-control window of a stream and of a connection, in bytes: the most that a client can send of bodies that
/// are not read. It is also the least that the protocol allows for a connection.
const WINDOW: u32 = 65_535;

/// Response of Go's server to HTTP without TLS.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Failure of a connection. Logged at a high verbosity, because clients cause it.
#[derive(Debug, Error)]
pub(super) enum Error {
    #[error("http: TLS handshake error: {0}")]
    Handshake(#[from] std::io::Error),
    #[error("http: TLS handshake error: timeout")]
    HandshakeTimeout,
    #[error("{0}")]
    Http(#[from] Box<dyn std::error::Error + Send + Sync>),
    #[error("idle timeout")]
    Idle,
    #[error("too many requests were cancelled")]
    Cancelled,
}

/// State that connections share.
pub(super) struct Shared {
    pub(super) acceptor: TlsAcceptor,
    pub(super) responder: Responder,
    pub(super) protocol: Protocol,
    pub(super) limiter: Arc<ConnectionLimiter>,
    pub(super) clock: Arc<dyn Clock>,
}

/// Parameters of HTTP.
pub(super) struct Protocol {
    max_streams: u32,
}

impl Protocol {
    pub(super) fn new(options: &ServingOptions) -> Self {
        let max_streams = match options.http2_max_streams_per_connection {
            0 => MAX_STREAMS,
            given => given,
        };
        Self { max_streams }
    }

    fn builder(&self, is_http2: bool) -> auto::Builder<TokioExecutor> {
        let builder = auto::Builder::new(TokioExecutor::new());
        // The version is set, because detecting it would read from the connection without a timeout.
        let mut builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
        let max_buffer = usize::try_from(MAX_HEADERS).unwrap_or(usize::MAX);
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_TIMEOUT)
            .max_buf_size(max_buffer)
            .title_case_headers(true);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.max_streams)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(MAX_HEADERS)
            .max_local_error_reset_streams(MAX_RESET_BY_SERVER);
        builder
    }
}

/// Requests of a connection that its client cancelled.
#[derive(Default)]
struct Cancellations {
    count: AtomicUsize,
    /// Notified at [`MAX_CANCELLED`].
    exceeded: Notify,
}

/// Request without a response. Counts as cancelled if it is dropped.
struct Unanswered(Option<Arc<Cancellations>>);

impl Unanswered {
    fn answer(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(cancellations) = &self.0
            && cancellations.count.fetch_add(1, Ordering::Relaxed) + 1 == MAX_CANCELLED
        {
            cancellations.exceeded.notify_one();
        }
    }
}

/// Performs the TLS handshake. `None` if the client sent HTTP without TLS and got a response.
pub(super) async fn handshake(
    mut stream: TcpStream,
    acceptor: &TlsAcceptor,
    clock: &dyn Clock,
) -> Result<Option<TlsStream<ClientStream<TcpStream>>>, Error> {
    let handshake = async {
        let mut first = [0; 5];
        let length = stream.peek(&mut first).await?;
        if looks_like_http(&first[..length]) {
            // What is left unread would make the kernel take the response back.
            let _ = stream.try_read(&mut [0; 16 * 1024]);
            stream.write_all(NOT_TLS).await?;
            stream.shutdown().await?;
            return Ok::<_, Error>(None);
        }
        let mut stream = acceptor.accept(ClientStream::new(stream)).await?;
        stream.get_mut().0.end_handshake();
        Ok(Some(stream))
    };
    tokio::select! {
        done = handshake => done,
        () = clock.sleep(HANDSHAKE_TIMEOUT) => Err(Error::HandshakeTimeout),
    }
}

fn looks_like_http(first: &[u8]) -> bool {
    let methods: [&[u8; 5]; 8] =
        [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"PATCH", b"DELET", b"OPTIO", b"CONNE"];
    !first.is_empty() && methods.iter().any(|method| method.starts_with(first))
}

/// Serves requests until the client disconnects, the idle timeout expires, or the server shuts down.
pub(super) async fn serve_requests(
    stream: TlsStream<ClientStream<TcpStream>>,
    address: SocketAddr,
    shared: &Shared,
    permit: &ConnectionPermit,
    shutdown: &CancellationToken,
) -> Result<(), Error> {
    let (_, session) = stream.get_ref();
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let certificates = session.peer_certificates().unwrap_or_default();
    let peer = Arc::new(Peer { address, chain: ClientChain::new(certificates.to_vec()) });
    let last_response = Arc::new(Notify::new());
    let cancellations = Arc::new(Cancellations::default());
    let service = service_fn(|request: Request<Incoming>| {
        let unanswered = Unanswered(Some(Arc::clone(&cancellations)));
        let last_response = Arc::clone(&last_response);
        let response = shared.responder.respond(request, Arc::clone(&peer), permit.begin_request());
        async move {
            if !is_http2 {
                // Requests that follow without a pause are answered in turn with those of other connections.
                tokio::task::yield_now().await;
            }
            let response = response.await;
            unanswered.answer();
            if is_http2 && is_last(&response) {
                last_response.notify_one();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let builder = shared.protocol.builder(is_http2);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service).into_owned());
    // The connection is shut down gracefully once.
    let mut is_shutting_down = false;
    loop {
        let timeout =
            if is_shutting_down { SHUTDOWN_TIMEOUT } else { IDLE_TIMEOUT.saturating_sub(permit.idle()) };
        tokio::select! {
            biased;
            ended = connection.as_mut() => return Ok(ended?),
            () = shutdown.cancelled(), if !is_shutting_down => {}
            () = last_response.notified(), if !is_shutting_down => {}
            () = cancellations.exceeded.notified() => return Err(Error::Cancelled),
            () = shared.clock.sleep(timeout) => {
                if is_shutting_down && !permit.idle().is_zero() {
                    return Err(Error::Idle);
                }
                if is_shutting_down || permit.idle() < IDLE_TIMEOUT {
                    continue;
                }
            }
        }
        connection.as_mut().graceful_shutdown();
        is_shutting_down = true;
    }
}
