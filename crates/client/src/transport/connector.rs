//! Byte streams to an API server: TCP, and TLS above it.

use std::{io, sync::Arc, time::Duration};

use http::{Uri, uri::Scheme};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use kcm_clock::Clock;
use kube_client::{Config, client::ConfigExt};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use tower::{BoxError, ServiceExt, util::BoxCloneSyncService};

use super::{
    credentials::{ConfigError, Server},
    fence::{Fence, Fenced, Socket},
};

/// Opens a byte stream to the host and port of a URI. A connector for a proxy has the same type.
pub(super) type Connector = BoxCloneSyncService<Uri, Box<dyn Socket>, BoxError>;

/// Silent HTTP/1.1 connections are probed by the operating system: after 15 s, then three times every 10 s. A dead one is
/// noticed after 45 s, as upstream notices a dead HTTP/2 connection.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// The same for sent bytes that are not acknowledged, during which no probes are sent.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(45);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout of the TLS handshake, as upstream.
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Address of an API server and the way to connect to it.
pub(super) struct Endpoint {
    uri: Uri,
    connector: Connector,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    clock: Arc<dyn Clock>,
}

/// Byte stream on which HTTP is spoken.
pub(super) struct Stream {
    pub(super) io: TokioIo<Box<dyn Io>>,
    /// `true` if HTTP/2 was negotiated by ALPN.
    pub(super) is_http2: bool,
}

/// Byte stream above TLS, or a plain one.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

impl Endpoint {
    pub(super) fn new(
        server: &Server,
        config: &Config,
        connector: Connector,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigError> {
        let uri = config.cluster_url.clone();
        // The system's root certificates are read only if they are needed: a machine may have none.
        let tls = if uri.scheme() == Some(&Scheme::HTTPS) { Some(tls(server, config)?) } else { None };
        Ok(Self { uri, connector, tls, clock })
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Connects to the API server, with `fence` on the socket.
    pub(super) async fn connect(&self, fence: Arc<Fence>) -> Result<Stream, BoxError> {
        let socket = self.connector.clone().oneshot(self.uri.clone()).await?;
        let socket = Fenced::new(socket, fence);
        let Some((connector, name)) = &self.tls else {
            return Ok(Stream { io: TokioIo::new(Box::new(socket)), is_http2: false });
        };
        let stream = tokio::select! {
            biased;
            stream = connector.connect(name.clone(), socket) => stream?,
            () = self.clock.sleep(TLS_HANDSHAKE_TIMEOUT) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "TLS handshake timeout").into());
            }
        };
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Stream { io: TokioIo::new(Box::new(stream)), is_http2 })
    }
}

fn tls(server: &Server, config: &Config) -> Result<(TlsConnector, ServerName<'static>), ConfigError> {
    let name = config.tls_server_name.as_deref().or(config.cluster_url.host()).unwrap_or_default();
    // An IPv6 address is in brackets in a URI only.
    let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(name).map_err(|error| ConfigError::caused(server, &error))?;
    let mut tls = config.rustls_client_config().map_err(|error| ConfigError::caused(server, &error))?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((TlsConnector::from(Arc::new(tls)), name))
}

/// Connector without a proxy.
pub(super) fn tcp() -> Connector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE_AFTER));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let socket = |stream: TokioIo<TcpStream>| Box::new(stream.into_inner()) as Box<dyn Socket>;
    BoxCloneSyncService::new(connector.map_response(socket).map_err(BoxError::from))
}
