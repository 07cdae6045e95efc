//! Server on a socket, scripted API server, and clients.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kcm_client::{ClientFactory, ClientOptions, RateLimit, UserAgent};
use kcm_clock::{Clock, FakeClock};
use kcm_testkit::{FakeApiServer, FakeResponse, Identity, RecordedRequest};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    version::{TLS12, TLS13},
};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::SecureServer;
use crate::{
    Access, AuthenticationOptions, AuthorizationOptions, HealthChecks, Request, Response, Routes,
    ServingError, ServingOptions, handler,
};

pub(super) const NOW: &str = "2026-11-21T08:00:00Z";

/// API server with the tokens `good` of alice, who can read `/metrics`, and `poor` of bob, who cannot.
pub(super) fn api_server(clock: &FakeClock) -> FakeApiServer {
    FakeApiServer::with_clock(Arc::new(clock.clone()), ordinary)
}

/// Number of requests whose path ends in `ending`.
pub(super) fn count(api: &FakeApiServer, ending: &str) -> usize {
    api.requests().iter().filter(|request| request.path().ends_with(ending)).count()
}

/// `spec` of the last request.
pub(super) fn last_spec(api: &FakeApiServer) -> Value {
    api.requests().last().unwrap().json()["spec"].take()
}

pub(super) fn ordinary(request: &RecordedRequest) -> FakeResponse {
    let body = request.json();
    let status = match request.path() {
        "/apis/authentication.k8s.io/v1/tokenreviews" => match body["spec"]["token"].as_str() {
            Some("good") => json!({"authenticated": true, "user": {"username": "alice", "groups": ["dev"]}}),
            Some("poor") => json!({"authenticated": true, "user": {"username": "bob"}}),
            _ => json!({"authenticated": false}),
        },
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            let allowed = body["spec"]["user"] == "alice"
                && body["spec"]["nonResourceAttributes"] == json!({"path": "/metrics", "verb": "get"});
            json!({ "allowed": allowed })
        }
        _ => return FakeResponse::new(201, json!({"data": {}})),
    };
    FakeResponse::new(201, json!({ "status": status }))
}

/// Options of a server.
pub(super) struct Setup {
    pub(super) clock: FakeClock,
    pub(super) api: FakeApiServer,
    pub(super) serving: ServingOptions,
    pub(super) authentication: AuthenticationOptions,
    pub(super) authorization: AuthorizationOptions,
    pub(super) has_client: bool,
    /// Number of calls of the handler of `/metrics`.
    pub(super) scrapes: Arc<AtomicUsize>,
}

impl Setup {
    pub(super) fn new() -> Self {
        let clock = FakeClock::new(NOW.parse().unwrap());
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self {
            api: api_server(&clock),
            clock,
            serving: ServingOptions { bind_address: local, secure_port: 0, ..ServingOptions::default() },
            authentication: AuthenticationOptions::default(),
            authorization: AuthorizationOptions::default(),
            has_client: true,
            scrapes: Arc::default(),
        }
    }

    pub(super) async fn bind(&self) -> Result<SecureServer, ServingError> {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let options = ClientOptions::new(UserAgent::new("test", "v0", "0"), Arc::clone(&clock));
        let factory = ClientFactory::in_process(self.api.service(), options);
        let client = || self.has_client.then(|| factory.client("access", RateLimit::UNLIMITED));
        let access = Access::with_clients(
            &self.authentication,
            &self.authorization,
            client(),
            client(),
            Arc::clone(&clock),
        );
        let access = access.await?;
        let scrapes = Arc::clone(&self.scrapes);
        let metrics = move |_: &Request<'_>| {
            scrapes.fetch_add(1, Ordering::Relaxed);
            Response::text("up 1\n")
        };
        let routes = Routes::new()
            .health("/healthz", &HealthChecks::new())
            .exact("/metrics", handler(metrics))
            .exact("/large", handler(|_| Response::text(vec![b'x'; 15 * 1024 * 1024])))
            .exact("/panic", handler(|_| panic!("on purpose")))
            .exact_with_body("/echo", Method::PUT, handler(echo));
        SecureServer::bind(&self.serving, "test", access, routes, clock).await
    }

    pub(super) async fn start(self) -> World {
        let server = self.bind().await.unwrap();
        let address = server.local_addr();
        let shutdown = CancellationToken::new();
        let ended = tokio::spawn(server.run(shutdown.clone()));
        World {
            address,
            clock: self.clock,
            api: self.api,
            scrapes: self.scrapes,
            shutdown: shutdown.clone(),
            ended,
            _guard: shutdown.drop_guard(),
        }
    }
}

fn echo(request: &Request<'_>) -> Response {
    Response::text(format!("{:?} {:?}", request.body, request.headers))
}

/// Running server.
pub(super) struct World {
    pub(super) address: SocketAddr,
    pub(super) clock: FakeClock,
    pub(super) api: FakeApiServer,
    pub(super) scrapes: Arc<AtomicUsize>,
    pub(super) shutdown: CancellationToken,
    pub(super) ended: tokio::task::JoinHandle<()>,
    _guard: DropGuard,
}

/// Response that a client received.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Seen {
    pub(super) fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// HTTP client.
#[derive(Clone, Default)]
pub(super) struct Client {
    pub(super) certificate: Option<Identity>,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) is_http1: bool,
    /// If `true`, TLS 1.2 only.
    pub(super) is_old: bool,
    pub(super) method: Method,
    pub(super) body: Bytes,
}

impl Client {
    pub(super) fn with_token(token: &str) -> Self {
        Self { headers: vec![("authorization", format!("Bearer {token}"))], ..Self::default() }
    }

    pub(super) fn with_certificate(certificate: Identity) -> Self {
        Self { certificate: Some(certificate), ..Self::default() }
    }

    pub(super) async fn get(&self, world: &World, path: &str) -> Seen {
        let stream = self.connect(world.address, "localhost").await.unwrap();
        self.request(stream, path).await
    }

    /// Connects with TLS and accepts any server certificate.
    pub(super) async fn connect(
        &self,
        address: SocketAddr,
        name: &str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let versions: &[_] = if self.is_old { &[&TLS12] } else { &[&TLS13, &TLS12] };
        let tls = ClientConfig::builder_with_provider(crate::tls::provider())
            .with_protocol_versions(versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone));
        let mut tls = match &self.certificate {
            None => tls.with_no_client_auth(),
            Some(Identity { certificate, key, .. }) => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap);
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                tls.with_client_auth_cert(chain.collect(), key).unwrap()
            }
        };
        let protocol = if self.is_http1 { &b"http/1.1"[..] } else { b"h2" };
        tls.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(tls)).connect(name, stream).await
    }

    pub(super) async fn request(&self, stream: TlsStream<TcpStream>, path: &str) -> Seen {
        let mut request = http::Request::builder().method(self.method.clone());
        request = if self.is_http1 {
            request.uri(path).header("host", "localhost")
        } else {
            request.uri(format!("https://localhost{path}"))
        };
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(self.body.clone())).unwrap();
        let stream = TokioIo::new(stream);
        let response = if self.is_http1 {
            let (mut send, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            send.send_request(request).await.unwrap()
        } else {
            let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
            let (mut send, connection) = handshake.await.unwrap();
            tokio::spawn(connection);
            send.send_request(request).await.unwrap()
        };
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Seen {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }
}

/// Accepts any server certificate.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = crate::tls::provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = crate::tls::provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        crate::tls::provider().signature_verification_algorithms.supported_schemes()
    }
}
