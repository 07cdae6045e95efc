//! One connection, from the handshake to its end.

use std::{convert::Infallible, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

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
    Shared,
    limiter::Slot,
    respond::{Peer, is_last},
};
use crate::ServingOptions;

const HANDSHAKE: Duration = Duration::from_secs(10);
/// As upstream.
const HEADERS: Duration = Duration::from_secs(32);
/// As upstream, and as long as Go's clients keep theirs.
const IDLE: Duration = Duration::from_secs(90);
/// Who has been told to go has this long for what he is still reading.
const LAST_WORDS: Duration = Duration::from_secs(10);
const MAX_STREAMS: u32 = 100;
/// Of headers, in bytes. Tokens are some thousands.
const MAX_HEADERS: u32 = 64 * 1024;
/// HTTP/2 flow-control window of a stream and of a connection, in bytes: the most that a client can send of bodies that
/// are not read. It is also the least that the protocol allows for a connection.
const WINDOW: u32 = 65_535;

/// What Go's server answers; a browser shows it to who forgot the `s`.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// How a connection ended that did not end well. It is the client's affair, and for the log of who looks for it.
#[derive(Debug, Error)]
pub(super) enum Error {
    #[error("http: TLS handshake error: {0}")]
    Handshake(#[from] std::io::Error),
    #[error("http: TLS handshake error: no time left")]
    TooSlow,
    #[error("{0}")]
    Http(#[from] Box<dyn std::error::Error + Send + Sync>),
    #[error("idle for too long")]
    Idle,
}

/// How HTTP is spoken.
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
        // Decided, so that nothing is read to find out, which a client could take its time over.
        let mut builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
        let max_buffer = usize::try_from(MAX_HEADERS).unwrap_or(usize::MAX);
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS)
            .max_buf_size(max_buffer)
            .title_case_headers(true);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.max_streams)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(MAX_HEADERS);
        builder
    }
}

/// TLS on `stream`. `None` for who speaks HTTP without it, and has been told so.
pub(super) async fn handshake(
    mut stream: TcpStream,
    acceptor: &TlsAcceptor,
    clock: &dyn Clock,
) -> Result<Option<TlsStream<TcpStream>>, Error> {
    let shake = async {
        let mut first = [0; 5];
        let length = stream.peek(&mut first).await?;
        if looks_like_http(&first[..length]) {
            // What is left unread would make the kernel take the answer back.
            let _ = stream.try_read(&mut [0; 16 * 1024]);
            stream.write_all(NOT_TLS).await?;
            stream.shutdown().await?;
            return Ok(None);
        }
        acceptor.accept(stream).await.map(Some)
    };
    tokio::select! {
        done = shake => Ok(done?),
        () = clock.sleep(HANDSHAKE) => Err(Error::TooSlow),
    }
}

fn looks_like_http(first: &[u8]) -> bool {
    let methods: [&[u8; 5]; 8] =
        [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"PATCH", b"DELET", b"OPTIO", b"CONNE"];
    !first.is_empty() && methods.iter().any(|method| method.starts_with(first))
}

/// Serves requests until the client leaves, is idle for too long, or the server ends.
pub(super) async fn converse(
    stream: TlsStream<TcpStream>,
    address: SocketAddr,
    shared: &Shared,
    slot: &Slot,
    shutdown: &CancellationToken,
) -> Result<(), Error> {
    let (_, session) = stream.get_ref();
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let certificates = session.peer_certificates().unwrap_or_default();
    let peer = Arc::new(Peer { address, certificates: certificates.to_vec() });
    let enough = Arc::new(Notify::new());
    let service = service_fn(|request: Request<Incoming>| {
        let (peer, enough, active) = (Arc::clone(&peer), Arc::clone(&enough), slot.activate());
        let responder = shared.responder.clone();
        async move {
            let response = responder.respond(request, &peer, active).await;
            if is_http2 && is_last(&response) {
                enough.notify_one();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let builder = shared.protocol.builder(is_http2);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service).into_owned());
    // What it is told to go for, it is told once.
    let mut is_leaving = false;
    loop {
        let patience = if is_leaving { LAST_WORDS } else { IDLE.saturating_sub(slot.idle()) };
        tokio::select! {
            biased;
            ended = connection.as_mut() => return Ok(ended?),
            () = shutdown.cancelled(), if !is_leaving => {}
            () = enough.notified(), if !is_leaving => {}
            () = shared.clock.sleep(patience) => {
                if is_leaving && !slot.idle().is_zero() {
                    return Err(Error::Idle);
                }
                if is_leaving || slot.idle() < IDLE {
                    continue;
                }
            }
        }
        connection.as_mut().graceful_shutdown();
        is_leaving = true;
    }
}
