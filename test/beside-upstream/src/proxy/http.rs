//! HTTP proxy that terminates TLS.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version, header};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use kcm_clock::{Clock, RealClock};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::error::{SuiteError, failed};

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// kube-apiserver's limit.
const MAX_STREAMS: u32 = 100;

/// Duration of a burst.
const BURST: Duration = Duration::from_secs(1);

/// Behaviour of the proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Http {
    /// Forwards.
    #[default]
    Pass,
    /// Responds with a status in bursts of one second.
    Refuse {
        /// Status code.
        code: u16,
        /// Seconds of the header `Retry-After`.
        retry_after: Option<u32>,
        /// Pause between two bursts.
        #[serde(deserialize_with = "crate::catalogue::seconds")]
        pause: Duration,
    },
    /// Sends GOAWAY after each request. Closes connections of HTTP/1.1.
    GoAway,
    /// Allows this number of concurrent streams on new connections.
    MaxStreams(u32),
    /// Does not offer HTTP/2 on new connections.
    Http1,
    /// Delays responses, apart from watches.
    DelayResponses(#[serde(deserialize_with = "crate::catalogue::seconds")] Duration),
    /// Delays the events of watches.
    DelayEvents(#[serde(deserialize_with = "crate::catalogue::seconds")] Duration),
}

/// The API server behind the proxy.
#[derive(Debug, Clone)]
pub(crate) struct Backend {
    /// Address.
    pub(crate) address: SocketAddr,
    /// TLS, or none for the embedded API server.
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
}

/// State that the connections share.
#[derive(Debug)]
struct Shared {
    backend: Backend,
    /// Behaviour and the time at which it began.
    mode: Mutex<(Http, Duration)>,
    tls: Mutex<Arc<rustls::ServerConfig>>,
    requests: AtomicU64,
    affected: AtomicU64,
    clock: RealClock,
}

/// Running proxy. Dropping it closes its connections.
#[derive(Debug)]
pub(crate) struct HttpProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl HttpProxy {
    /// Starts a proxy on a free port.
    pub(crate) async fn start(backend: Backend, tls: rustls::ServerConfig) -> Result<Self, SuiteError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed("HTTP proxy"))?;
        let address = listener.local_addr().map_err(failed("HTTP proxy"))?;
        let shared = Arc::new(Shared {
            backend,
            mode: Mutex::default(),
            tls: Mutex::new(Arc::new(tls)),
            requests: AtomicU64::default(),
            affected: AtomicU64::default(),
            clock: RealClock::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, _tasks: tasks })
    }

    /// Address that the proxy listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the behaviour.
    pub(crate) fn set(&self, http: Http) {
        *self.shared.mode.lock() = (http, self.shared.clock.monotonic());
    }

    /// Changes the certificate of new connections.
    pub(crate) fn set_tls(&self, tls: rustls::ServerConfig) {
        *self.shared.tls.lock() = Arc::new(tls);
    }

    /// Number of requests that were affected by the behaviour.
    pub(crate) fn affected(&self) -> u64 {
        self.shared.affected.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(connection(stream, Arc::clone(&shared)));
            },
            _ = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// Serves a connection until it ends.
async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let mode = shared.mode();
    let mut tls = rustls::ServerConfig::clone(&shared.tls.lock());
    if mode == Http::Http1 {
        shared.affected.fetch_add(1, Ordering::SeqCst);
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    }
    let Ok(stream) = TlsAcceptor::from(Arc::new(tls)).accept(stream).await else { return };
    let max_streams = match mode {
        Http::MaxStreams(streams) => {
            shared.affected.fetch_add(1, Ordering::SeqCst);
            streams
        }
        _ => MAX_STREAMS,
    };
    let go_away = Arc::new(Notify::new());
    let upstream = Arc::new(Upstream::new(shared.backend.clone()));
    let service = service_fn(|request| {
        let exchange = Exchange {
            shared: Arc::clone(&shared),
            upstream: Arc::clone(&upstream),
            go_away: Arc::clone(&go_away),
        };
        exchange.respond(request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(max_streams);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = serving.as_mut() => return,
        () = go_away.notified() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

impl Shared {
    fn mode(&self) -> Http {
        self.mode.lock().0
    }

    /// Returns the refusal that applies now, if any.
    fn refusal(&self) -> Option<(u16, Option<u32>)> {
        let (mode, since) = *self.mode.lock();
        let Http::Refuse { code, retry_after, pause } = mode else { return None };
        let elapsed = self.clock.monotonic().saturating_sub(since).as_millis();
        (elapsed % (BURST + pause).as_millis() < BURST.as_millis()).then_some((code, retry_after))
    }
}

/// A request on a connection.
struct Exchange {
    shared: Arc<Shared>,
    upstream: Arc<Upstream>,
    go_away: Arc<Notify>,
}

impl Exchange {
    async fn respond(self, request: Request<Incoming>) -> Result<Response<Body>, io::Error> {
        let shared = &self.shared;
        shared.requests.fetch_add(1, Ordering::SeqCst);
        if let Some((code, retry_after)) = shared.refusal() {
            shared.affected.fetch_add(1, Ordering::SeqCst);
            return Ok(refusal(code, retry_after));
        }
        let mode = shared.mode();
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let response = self.upstream.send(request).await?;
        match mode {
            Http::DelayResponses(delay) if !is_watch => {
                shared.affected.fetch_add(1, Ordering::SeqCst);
                shared.clock.sleep(delay).await;
            }
            Http::DelayEvents(delay) if is_watch => {
                shared.affected.fetch_add(1, Ordering::SeqCst);
                return Ok(response.map(|body| delayed(body, Arc::clone(shared), delay)));
            }
            Http::GoAway => {
                shared.affected.fetch_add(1, Ordering::SeqCst);
                self.go_away.notify_one();
            }
            _ => {}
        }
        Ok(response.map(BodyExt::boxed_unsync))
    }
}

/// Response with a `Status` object.
fn refusal(code: u16, retry_after: Option<u32>) -> Response<Body> {
    let reason = match code {
        401 => "Unauthorized",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused by the proxy of the test", "reason": reason, "code": code,
    });
    let body = Full::from(status.to_string()).map_err(|never: Infallible| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Delays the frames of a body while the fault lasts. The order is kept.
fn delayed(body: Incoming, shared: Arc<Shared>, delay: Duration) -> Body {
    let clock = shared.clock.clone();
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let reading = async move {
        let mut frames = BodyStream::new(body);
        while let Some(frame) = frames.next().await {
            let delay = if matches!(shared.mode(), Http::DelayEvents(_)) { delay } else { Duration::ZERO };
            if sender.send((shared.clock.monotonic() + delay, frame)).is_err() {
                return;
            }
        }
    };
    tokio::spawn(reading);
    let frames = futures_util::stream::unfold((receiver, clock), |(mut receiver, clock)| async move {
        let (at, frame): (Duration, _) = receiver.recv().await?;
        clock.sleep(at.saturating_sub(clock.monotonic())).await;
        Some((frame, (receiver, clock)))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Connection to the API server for the requests of one connection of the manager.
struct Upstream {
    backend: Backend,
    sender: tokio::sync::Mutex<Option<SendRequest<Incoming>>>,
}

impl Upstream {
    fn new(backend: Backend) -> Self {
        Self { backend, sender: tokio::sync::Mutex::default() }
    }

    /// Forwards a request. An error breaks the stream of the manager.
    async fn send(&self, request: Request<Incoming>) -> Result<Response<Incoming>, io::Error> {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let scheme = if self.backend.tls.is_some() { "https" } else { "http" };
        head.uri = format!("{scheme}://{}{path}", self.backend.address).parse().map_err(io::Error::other)?;
        head.version = Version::HTTP_2;
        remove_connection_headers(&mut head.headers);
        let mut sender = self.sender().await?;
        let mut response =
            sender.send_request(Request::from_parts(head, body)).await.map_err(io::Error::other)?;
        remove_connection_headers(response.headers_mut());
        *response.version_mut() = Version::default();
        Ok(response)
    }

    async fn sender(&self) -> Result<SendRequest<Incoming>, io::Error> {
        let mut sender = self.sender.lock().await;
        if let Some(open) = sender.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(open.clone());
        }
        let stream = TcpStream::connect(self.backend.address).await?;
        stream.set_nodelay(true)?;
        let opened = match &self.backend.tls {
            None => handshake(TokioIo::new(stream)).await,
            Some(tls) => {
                let name = ServerName::from(self.backend.address.ip());
                let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?;
                handshake(TokioIo::new(stream)).await
            }
        };
        let opened = opened.map_err(io::Error::other)?;
        *sender = Some(opened.clone());
        Ok(opened)
    }
}

async fn handshake<I>(io: I) -> Result<SendRequest<Incoming>, hyper::Error>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Removes the headers that apply to one connection.
fn remove_connection_headers(headers: &mut HeaderMap) {
    for name in [
        header::CONNECTION,
        header::HOST,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("keep-alive"),
    ] {
        headers.remove(name);
    }
}
