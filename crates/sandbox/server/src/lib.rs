//! HTTP server of the sandbox: the parts of the API server that only a program needs.
//!
//! [`HttpServer`] serves an [`ApiServer`] of `kcm-apiserver` on a socket, over HTTP/1.1, HTTP/2 and TLS. Clients take
//! turns. It adds tables for `kubectl get`, OpenAPI documents, connections to pods, bearer [`Tokens`] and a web page.
//! [`open`] stores the objects in a directory, [`AuditLog`] writes a file. With the feature `webhooks`, `HttpsWebhooks` calls
//! admission and conversion webhooks.
//!
//! *Out of scope:* the effect of requests on objects, which `kcm-apiserver` implements.

mod audit;
mod close;
mod disk;
mod executor;
mod fair_queue;
mod open_api;
mod pages;
mod pod_servers;
mod proxy;
mod serve;
mod shell;
mod streams;
mod table;
mod tokens;
mod ui;
#[cfg(feature = "webhooks")]
mod webhooks;

use std::sync::Arc;

use kcm_apiserver::{ApiServer, ApiService, Program, User};

pub use audit::{AuditLog, AuditPolicy, AuditPolicyError};
pub use disk::{DataError, open};
pub use pages::{Extension, ExtensionResponse};
pub use pod_servers::serve_pod;
pub use proxy::{PodRequest, PodResponse, PodServer};
pub use tokens::{TokenFileError, Tokens};
#[cfg(feature = "webhooks")]
pub use webhooks::HttpsWebhooks;

/// Maximum number of concurrent streams on an HTTP/2 connection, as kube-apiserver without
/// `--http2-max-streams-per-connection`.
pub const DEFAULT_MAX_CONCURRENT_STREAMS: u32 = 100;

/// Returns the user of a client certificate in DER.
pub type CertificateUsers = Arc<dyn Fn(&[u8]) -> Option<User> + Send + Sync>;

/// HTTP server of an API server.
#[derive(Clone)]
pub struct HttpServer {
    /// The API server.
    pub server: Arc<ApiServer>,
    /// Tokens of clients. `None` accepts every client.
    pub tokens: Option<Tokens>,
    /// Paths below `/ui/` and `/debug/`.
    pub extension: Option<Extension>,
    /// Server of the pods' ports, reached by the subresources `proxy` and `portforward`. With `None`, there are no
    /// containers: these, `exec` and `attach` respond with 501.
    pub pod_server: Option<PodServer>,
    /// Certificate. It should offer `h2` and `http/1.1` by ALPN. `None` serves without TLS.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Users of client certificates, which `tls` verifies. With `None`, or for `None`, a request needs a token.
    pub certificate_users: Option<CertificateUsers>,
    /// Maximum number of concurrent streams on an HTTP/2 connection.
    ///
    /// Upstream counterpart: `--http2-max-streams-per-connection`.
    pub max_concurrent_streams: u32,
}

impl HttpServer {
    /// Creates a server without tokens, TLS, extension and servers of pods.
    pub fn new(server: Arc<ApiServer>) -> Self {
        Self {
            server,
            tokens: None,
            extension: None,
            pod_server: None,
            tls: None,
            certificate_users: None,
            max_concurrent_streams: DEFAULT_MAX_CONCURRENT_STREAMS,
        }
    }

    /// Returns the service without a socket.
    pub fn service(&self) -> ApiService {
        let Self { server, tokens, extension, pod_server, .. } = self.clone();
        self.server.service().with_program(Program {
            users: tokens.map(Tokens::into_users),
            pages: Some(pages::pages(server, extension, pod_server)),
            tables: Some(table::of),
        })
    }
}
