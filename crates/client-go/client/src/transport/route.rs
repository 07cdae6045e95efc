//! The way of requests to an API server.

use std::sync::Arc;

use http::{
    HeaderMap, Request, Response, Uri,
    uri::{Authority, PathAndQuery, Scheme},
};
use kcm_clock::Clock;
use kube_client::Config;

use super::{
    connector::{self, Endpoint},
    credentials::{ClientConfigError, Server},
    liveness::PingTrigger,
    pool::{Pool, PooledBody, SendError},
    proxy::Proxy,
};
use crate::Body;

/// Connections, and the address and credentials of the requests on them.
pub(super) struct Route {
    pool: Pool,
    address: Address,
    /// Credentials.
    headers: HeaderMap,
}

/// URI without the path of a request.
#[derive(Clone)]
struct Address {
    scheme: Option<Scheme>,
    authority: Option<Authority>,
    /// Path to which those of requests are appended. Does not end with a slash.
    root: String,
}

/// The API server of `config`, through `proxy` if there is one.
pub(super) fn endpoint(
    server: &Server,
    config: &Config,
    proxy: Option<&Arc<Proxy>>,
    pings: PingTrigger,
    clock: &Arc<dyn Clock>,
) -> Result<Endpoint, ClientConfigError> {
    let connector = match proxy {
        None => connector::tcp(&config.cluster_url, clock),
        Some(proxy) => connector::through(server, config, proxy, clock)?,
    };
    Endpoint::new(server, config, connector, pings, Arc::clone(clock))
}

impl Route {
    /// The route to the server of `config`, on the connections of `pool`. `headers` contain credentials.
    pub(super) fn new(config: &Config, headers: HeaderMap, pool: Pool) -> Self {
        Self { pool, address: Address::new(&config.cluster_url), headers }
    }

    /// The same route with other credentials.
    pub(super) fn with_headers(&self, headers: HeaderMap) -> Self {
        Self { pool: self.pool.clone(), address: self.address.clone(), headers }
    }

    /// The same route on other connections.
    pub(super) fn separate(&self) -> Self {
        Self { pool: self.pool.separate(), address: self.address.clone(), headers: self.headers.clone() }
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Sends a request with a relative URI.
    pub(super) async fn send(
        &self,
        mut request: Box<Request<Body>>,
    ) -> Result<Response<PooledBody>, SendError> {
        self.address.prepend_to(request.uri_mut()).map_err(|error| SendError::Unsendable(error.into()))?;
        request.headers_mut().extend(self.headers.clone());
        self.pool.send(request).await
    }
}

impl Address {
    fn new(uri: &Uri) -> Self {
        Self {
            scheme: uri.scheme().cloned(),
            authority: uri.authority().cloned(),
            root: uri.path().trim_end_matches('/').to_owned(),
        }
    }

    /// Makes `uri` absolute.
    fn prepend_to(&self, uri: &mut Uri) -> Result<(), http::Error> {
        let mut parts = std::mem::take(uri).into_parts();
        if !self.root.is_empty() {
            let path = parts.path_and_query.as_ref().map_or("/", PathAndQuery::as_str);
            parts.path_and_query = Some(PathAndQuery::try_from(format!("{}{path}", self.root))?);
        }
        (parts.scheme, parts.authority) = (self.scheme.clone(), self.authority.clone());
        *uri = Uri::from_parts(parts)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_appended_to_that_of_the_server() {
        struct Case {
            server: &'static str,
            expected: &'static str,
        }
        let cases = [
            Case { server: "https://a:6443", expected: "https://a:6443/api/v1/pods?watch=true" },
            Case { server: "https://a:6443/", expected: "https://a:6443/api/v1/pods?watch=true" },
            Case { server: "http://[::1]/k8s/c", expected: "http://[::1]/k8s/c/api/v1/pods?watch=true" },
            Case { server: "https://a/k8s/c//", expected: "https://a/k8s/c/api/v1/pods?watch=true" },
        ];
        for Case { server, expected } in cases {
            let mut uri = Uri::from_static("/api/v1/pods?watch=true");
            Address::new(&server.parse().unwrap()).prepend_to(&mut uri).unwrap();
            assert_eq!(uri, expected);
        }
    }
}
