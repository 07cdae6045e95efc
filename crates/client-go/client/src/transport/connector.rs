//! Byte streams to an API server: TCP, and TLS above it.

use std::{future::ready, io, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::{Uri, uri::Scheme};
use hyper_util::{
    client::legacy::connect::proxy::{SocksV5, Tunnel},
    rt::TokioIo,
};
use kcm_clock::Clock;
use kube_client::Config;
use thiserror::Error;
use tokio::io::BufReader;
use tower::{BoxError, Service, ServiceExt, service_fn};

use super::{
    credentials::{ClientConfigError, Server},
    dial::{Dialer, timed_out},
    fence::{Fence, Fenced, Socket},
    liveness::PingTrigger,
    proxy::{self, Protocol, Proxy},
    stream::{Opened, Stream},
    tls::{self, Tls},
};

/// Opens byte streams to the API server, through a proxy or not.
pub(super) type Connector = Arc<dyn Fn() -> BoxFuture<'static, Result<Opened, BoxError>> + Send + Sync>;

/// Timeout for a connection to the API server that is ready for TLS, through a proxy or not. Go allows as much for the
/// answer of a proxy.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout of the TLS handshake, as upstream.
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that are read at once. rustls reads 4 KB.
const READ_BUFFER: usize = 16 << 10;

/// Address of an API server and the way to connect to it. Clones share the TLS configuration and the
/// trigger of pings.
#[derive(Clone)]
pub(super) struct Endpoint {
    connector: Connector,
    tls: Option<Tls>,
    pings: PingTrigger,
    clock: Arc<dyn Clock>,
}

impl Endpoint {
    pub(super) fn new(
        server: &Server,
        config: &Config,
        connector: Connector,
        pings: PingTrigger,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ClientConfigError> {
        // The system's root certificates are read only if they are needed: a machine may have none.
        let is_https = config.cluster_url.scheme() == Some(&Scheme::HTTPS);
        let tls = || tls::tls(server, config, config.cluster_url.host(), &["h2", "http/1.1"], &clock);
        let tls = is_https.then(tls).transpose()?;
        Ok(Self { connector, tls, pings, clock })
    }

    /// An API server without TLS.
    #[cfg(test)]
    pub(super) fn plain(connector: Connector, clock: Arc<dyn Clock>) -> Self {
        Self { connector, tls: None, pings: PingTrigger::default(), clock }
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Trigger of pings on all connections to the server.
    pub(super) fn pings(&self) -> &PingTrigger {
        &self.pings
    }

    /// Connects to the API server, with `fence` on the socket.
    pub(super) async fn connect(&self, fence: Arc<Fence>) -> Result<Stream, BoxError> {
        let Opened { socket, trial } = tokio::select! {
            biased;
            opened = (self.connector)() => opened?,
            () = self.clock.sleep(ESTABLISH_TIMEOUT) => return Err(timed_out("connect timeout").into()),
        };
        let socket = Fenced::new(socket, fence);
        let Some((connector, name)) = &self.tls else {
            return Ok(Stream { io: Box::new(socket), is_http2: false, trial });
        };
        let stream = tokio::select! {
            biased;
            stream = connector.connect(name.clone(), BufReader::with_capacity(READ_BUFFER, socket)) => stream?,
            () = self.clock.sleep(TLS_HANDSHAKE_TIMEOUT) => {
                return Err(timed_out("TLS handshake timeout").into());
            }
        };
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Stream { io: Box::new(stream), is_http2, trial })
    }
}

/// Connector to the server at `uri` without a proxy.
pub(super) fn tcp(uri: &Uri, clock: &Arc<dyn Clock>) -> Connector {
    let dialer = dialer(uri, clock);
    Arc::new(move || {
        let dialer = dialer.clone();
        Box::pin(async move {
            let (stream, trial) = dialer.dial().await?;
            Ok(Opened { socket: Box::new(stream), trial: Some(trial) })
        })
    })
}

fn dialer(uri: &Uri, clock: &Arc<dyn Clock>) -> Dialer {
    Dialer::new(uri.host().unwrap_or_default(), proxy::port(uri), Arc::clone(clock))
}

/// Error of a connection through a proxy. Does not contain credentials.
#[derive(Debug, Error)]
#[error("failed to connect through proxy {proxy}")]
struct ProxyError {
    proxy: String,
    source: BoxError,
}

/// Connector through `proxy`.
///
/// An HTTPS proxy is verified with the CAs of the API server, and gets the client certificate if it requests one, as with
/// Go.
///
/// DEVIATION: requests to an `http` server go through a tunnel, too. Go sends them to an HTTP proxy itself.
pub(super) fn through(
    server: &Server,
    config: &Config,
    proxy: &Arc<Proxy>,
    clock: &Arc<dyn Clock>,
) -> Result<Connector, ClientConfigError> {
    let tls = match proxy.protocol {
        Protocol::Http | Protocol::Socks5 => None,
        Protocol::Https => Some(tls::tls(server, config, proxy.uri.host(), &[], clock)?),
    };
    let (proxy, dialer) = (Arc::clone(proxy), dialer(&proxy.uri, clock));
    // Tunnels expect port 443 if there is none.
    let (host, port) = (config.cluster_url.host().unwrap_or_default(), proxy::port(&config.cluster_url));
    let target: Uri = format!("https://{host}:{port}/")
        .parse()
        .map_err(|error: http::uri::InvalidUri| ClientConfigError::caused(server, &error))?;
    Ok(Arc::new(move || {
        let (proxy, dialer, tls, target) = (Arc::clone(&proxy), dialer.clone(), tls.clone(), target.clone());
        Box::pin(async move {
            let opened = open(&proxy, &dialer, tls, target).await;
            opened.map_err(|source| BoxError::from(ProxyError { proxy: proxy.to_string(), source }))
        })
    }))
}

async fn open(proxy: &Proxy, dialer: &Dialer, tls: Option<Tls>, target: Uri) -> Result<Opened, BoxError> {
    let (stream, trial) = dialer.dial().await?;
    let stream = TokioIo::new(stream);
    let socket: Box<dyn Socket> = if proxy.protocol == Protocol::Socks5 {
        let mut socks = SocksV5::new(proxy.uri.clone(), connected(stream));
        if let Some((user, password)) = proxy.credentials.clone() {
            socks = socks.with_auth(user, password);
        }
        Box::new(socks.oneshot(target).await?.into_inner())
    } else if let Some((tls, name)) = tls {
        let stream = TokioIo::new(tls.connect(name, stream.into_inner()).await?);
        Box::new(tunnel(proxy, stream, target).await?.into_inner())
    } else {
        Box::new(tunnel(proxy, stream, target).await?.into_inner())
    };
    Ok(Opened { socket, trial: Some(trial) })
}

async fn tunnel<T>(proxy: &Proxy, stream: T, target: Uri) -> Result<T, BoxError>
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let mut tunnel = Tunnel::new(proxy.uri.clone(), connected(stream));
    if let Some(authorization) = proxy.authorization() {
        tunnel = tunnel.with_auth(authorization);
    }
    Ok(tunnel.oneshot(target).await?)
}

/// Connector that returns `stream`, once.
fn connected<T: Send + 'static>(
    stream: T,
) -> impl Service<Uri, Response = T, Error = io::Error, Future: Send + 'static> {
    let mut stream = Some(stream);
    service_fn(move |_| ready(stream.take().ok_or_else(|| io::ErrorKind::NotConnected.into())))
}
