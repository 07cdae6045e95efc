//! Connections, and what every request gets on its way to one.

use std::time::Duration;

use http::{Request, Response, uri::Scheme};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube_client::{
    Config,
    client::{Body, ConfigExt},
};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tower::{BoxError, ServiceBuilder, ServiceExt, util::BoxCloneService};

use super::credentials::{ConfigError, Server};

/// Connections to one server under one identity. Clones share them.
pub(super) type Pool = Client<HttpsConnector<HttpConnector>, Body>;

/// A pool with the address and the credentials that requests get.
pub(super) type Channel = BoxCloneService<Request<Body>, Response<Incoming>, BoxError>;

/// HTTP/2: ask a silent peer this often whether it lives…
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// … and give it this long. So a dead connection is noticed in 45 s, as upstream.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// HTTP/1.1 has no pings, so the kernel asks: silent for 15 s, then three times every 10 s. Also 45 s.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// And for what was sent and never acknowledged, when no probes are sent.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(45);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn pool(server: &Server, config: &Config) -> Result<Pool, ConfigError> {
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls(server, config)?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone()).map_err(|error| ConfigError::caused(server, &error))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let connector = builder.enable_http1().enable_http2().wrap_connector(tcp());
    Ok(Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        // Else a request on a connection that dies is sent again in silence, whatever it does.
        .retry_canceled_requests(false)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true)
        .http2_adaptive_window(true)
        .build(connector))
}

/// kube's own connector speaks HTTP/1.1 only, which costs a connection for each request that is under way.
fn tcp() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE_AFTER));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    connector
}

fn tls(server: &Server, config: &Config) -> Result<ClientConfig, ConfigError> {
    if config.cluster_url.scheme() == Some(&Scheme::HTTPS) {
        return config.rustls_client_config().map_err(|error| ConfigError::caused(server, &error));
    }
    // Never used. The system's roots are not looked for: a machine need not have any.
    Ok(ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// Blocks while an authentication plugin runs.
pub(super) fn channel(server: &Server, config: &Config, pool: Pool) -> Result<Channel, ConfigError> {
    let auth = config.auth_layer().map_err(|error| ConfigError::caused(server, &error))?;
    let extra = config.extra_headers_layer().map_err(|error| ConfigError::caused(server, &error))?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(auth)
        .layer(extra)
        .map_err(BoxError::from)
        .service(pool);
    Ok(service.boxed_clone())
}
