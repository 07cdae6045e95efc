//! Pools of connections, and the layers that every request passes on its way to one.

use std::sync::Arc;

use http::{Request, Response};
use kcm_clock::Clock;
use kube_client::{
    Config,
    client::{Body, ConfigExt},
};
use tower::{BoxError, ServiceBuilder, ServiceExt, util::BoxCloneService};

use super::{
    connector::{self, Endpoint},
    credentials::{ClientConfigError, Server},
    pool::{Pool, PooledBody},
    proxy::Proxy,
};

/// A pool with the address and the credentials that requests get.
pub(super) type Channel = BoxCloneService<Request<Body>, Response<PooledBody>, BoxError>;

/// The API server of `config`, through `proxy` if there is one.
pub(super) fn endpoint(
    server: &Server,
    config: &Config,
    proxy: Option<&Arc<Proxy>>,
    clock: &Arc<dyn Clock>,
) -> Result<Endpoint, ClientConfigError> {
    let connector = match proxy {
        None => connector::tcp(),
        Some(proxy) => connector::through(server, config, proxy, clock)?,
    };
    Endpoint::new(server, config, connector, Arc::clone(clock))
}

/// Requests with the address and the credentials of `config`, on the connections of `pool`.
pub(super) fn channel(server: &Server, config: &Config, pool: Pool) -> Result<Channel, ClientConfigError> {
    let auth = config.auth_layer().map_err(|error| ClientConfigError::caused(server, &error))?;
    let extra = config.extra_headers_layer().map_err(|error| ClientConfigError::caused(server, &error))?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(auth)
        .layer(extra)
        .map_err(BoxError::from)
        .service(pool);
    Ok(service.boxed_clone())
}
