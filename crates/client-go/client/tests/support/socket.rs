//! An API server on loopback, as far as connections go.

use std::{convert::Infallible, future::pending, net::SocketAddr, pin::pin, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use kcm_testkit::{CertificateAuthority, Identity};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

type Answer = Result<Response<BoxBody<Bytes, std::io::Error>>, std::io::Error>;

/// Received request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    pub what: String,
    pub version: Version,
    pub authorization: Option<String>,
    pub headers: HeaderMap,
    /// The client's certificate.
    pub certificate: Option<Vec<u8>>,
    /// Number of the connection, in the order in which they were opened.
    pub connection: usize,
}

#[derive(Debug, Default)]
pub struct Log {
    pub connections: usize,
    /// Connections that are open.
    pub open: usize,
    /// Number of requests whose heads were received.
    pub begun: usize,
    /// Requests that have arrived with their bodies.
    pub requests: Vec<Arrived>,
    /// Number of requests whose bodies were incomplete.
    pub cut_off: usize,
    /// New connections are accepted and not served.
    is_full: bool,
    /// `Authorization` of requests that are not answered with 401. `None` accepts all.
    accepted: Option<String>,
}

/// Limits of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Concurrent streams of an HTTP/2 connection.
    pub streams: u32,
    /// Bytes of a body that a client may send before the server reads it, in HTTP/2.
    pub window: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { streams: 100, window: 65_535 }
    }
}

/// Answers `/ok` with an empty object, and `/hold` when it is released. Reads the body of a request to `/unread` when it
/// is released. Ends a connection after its present requests when it is drained. Breaks the connection at `/break`, and after the first event of a watch on pods. Other watches never end.
pub struct SocketServer {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    log: watch::Sender<Log>,
    limits: Limits,
    released: CancellationToken,
    drained: CancellationToken,
}

impl SocketServer {
    pub async fn plain() -> Self {
        Self::start(None, Limits::default()).await
    }

    pub async fn tls(authority: &CertificateAuthority) -> Self {
        Self::tls_with(authority, Limits::default()).await
    }

    pub async fn tls_with(authority: &CertificateAuthority, limits: Limits) -> Self {
        Self::start(Some(TlsAcceptor::from(Arc::new(server_config(authority)))), limits).await
    }

    pub fn connections(&self) -> usize {
        self.shared.log.borrow().connections
    }

    pub fn open(&self) -> usize {
        self.shared.log.borrow().open
    }

    pub fn requests(&self) -> Vec<Arrived> {
        self.shared.log.borrow().requests.clone()
    }

    /// Waits until the log is as expected.
    pub async fn wait_for(&self, is_it: impl FnMut(&Log) -> bool) {
        self.shared.log.subscribe().wait_for(is_it).await.unwrap();
    }

    /// Serves no more new connections until it is released.
    pub fn fill(&self) {
        self.shared.log.send_modify(|log| log.is_full = true);
    }

    /// Serves new connections again. Those that were opened meanwhile wait until it is released.
    pub fn make_room(&self) {
        self.shared.log.send_modify(|log| log.is_full = false);
    }

    /// Answers requests with 401 if they have another `Authorization`.
    pub fn accept(&self, authorization: &str) {
        self.shared.log.send_modify(|log| log.accepted = Some(authorization.to_owned()));
    }

    /// Answers what it holds, and holds nothing any more.
    pub fn release(&self) {
        self.shared.released.cancel();
    }

    /// Accepts no more requests on the connections that are open.
    pub fn drain(&self) {
        self.shared.drained.cancel();
    }

    async fn start(acceptor: Option<TlsAcceptor>, limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            log: watch::Sender::default(),
            limits,
            released: CancellationToken::new(),
            drained: CancellationToken::new(),
        });
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (mut connection, mut is_full) = (0, false);
                serving.log.send_modify(|log| {
                    log.connections += 1;
                    log.open += 1;
                    (connection, is_full) = (log.connections, log.is_full);
                });
                let (shared, acceptor) = (Arc::clone(&serving), acceptor.clone());
                tokio::spawn(async move {
                    if is_full {
                        shared.released.cancelled().await;
                    }
                    match acceptor {
                        None => serve(stream, Arc::clone(&shared), connection, None).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                let peer = stream.get_ref().1.peer_certificates();
                                let peer = peer.map(|chain| chain[0].to_vec());
                                serve(stream, Arc::clone(&shared), connection, peer).await;
                            }
                        }
                    }
                    shared.log.send_modify(|log| log.open -= 1);
                });
            }
        });
        Self { address, shared }
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    shared: Arc<Shared>,
    connection: usize,
    certificate: Option<Vec<u8>>,
) {
    let Limits { streams, window } = shared.limits;
    // A connection that is opened later is not drained.
    let drained = shared.drained.clone();
    let drained =
        async move { if drained.is_cancelled() { pending().await } else { drained.cancelled().await } };
    let service =
        service_fn(move |request| answer(request, Arc::clone(&shared), connection, certificate.clone()));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(streams).initial_stream_window_size(window);
    // The other side, or this one on purpose, breaks it.
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = &mut serving => return,
        () = drained => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
    connection: usize,
    certificate: Option<Vec<u8>>,
) -> Answer {
    let (head, body) = request.into_parts();
    shared.log.send_modify(|log| log.begun += 1);
    if head.uri.path() == "/unread" {
        shared.released.cancelled().await;
    }
    if let Err(error) = body.collect().await {
        shared.log.send_modify(|log| log.cut_off += 1);
        return Err(std::io::Error::other(error));
    }
    let authorization = head.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let what = format!("{} {}", head.method, head.uri.path());
    let headers = head.headers.clone();
    let accepted = shared.log.borrow().accepted.clone();
    let is_unauthorized = accepted.is_some() && accepted != authorization;
    let arrived = Arrived { what, version: head.version, authorization, headers, certificate, connection };
    shared.log.send_modify(|log| log.requests.push(arrived));
    if is_unauthorized {
        let mut answer = Response::new(Full::from("").map_err(never).boxed());
        *answer.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(answer);
    }
    let reset = || std::io::Error::other("on purpose");
    match head.uri.path() {
        "/break" => Err(reset()),
        "/hold" => {
            shared.released.cancelled().await;
            Ok(Response::new(Full::from("{}").map_err(never).boxed()))
        }
        "/ok" | "/unread" => Ok(Response::new(Full::from("{}").map_err(never).boxed())),
        path => {
            let breaks = path.ends_with("/pods");
            let event = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n";
            let first = stream::iter([Ok(Frame::data(Bytes::from_static(event.as_bytes())))]);
            let rest = stream::once(async move {
                // So that what is there goes out first.
                tokio::task::yield_now().await;
                if breaks { Err(reset()) } else { pending().await }
            });
            Ok(Response::new(BoxBody::new(StreamBody::new(first.chain(rest)))))
        }
    }
}

fn never(never: Infallible) -> std::io::Error {
    match never {}
}

/// Connection between a client and a server that can be interrupted without a reset.
pub struct Cable {
    pub address: SocketAddr,
    cut: CancellationToken,
}

impl Cable {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = CancellationToken::new();
        let is_cut = cut.clone();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let is_cut = is_cut.clone();
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(server).await.unwrap();
                    let copied = tokio::io::copy_bidirectional(&mut near, &mut far);
                    if is_cut.run_until_cancelled(copied).await.is_none() {
                        // Both ends stay open, and silent.
                        pending::<()>().await;
                    }
                });
            }
        });
        Self { address, cut }
    }

    pub fn cut(&self) {
        self.cut.cancel();
    }
}

pub fn server_config(authority: &CertificateAuthority) -> ServerConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let clients = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build().unwrap();
    let Identity { key, der, .. } = authority.server(&["127.0.0.1"]);
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let builder = ServerConfig::builder().with_client_cert_verifier(clients);
    let mut config = builder.with_single_cert(vec![CertificateDer::from(der)], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}
