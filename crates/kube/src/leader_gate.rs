use std::{
    fmt,
    task::{Context, Poll},
};

use futures_util::{FutureExt, TryFutureExt, future::BoxFuture};
use http::{Method, Request};
use kcm_api::ApiError;
use kcm_leader_election::LeaderGate;
use tower::{BoxError, Layer, Service};

/// Layer of a kube client that refuses writes while this process does not lead.
///
/// A refused request is not sent, and fails with [`ApiError::NotLeading`] in [`kube_client::Error::Service`]. Reads and
/// watches are not affected. A write in progress is not stopped when the leadership ends. The client of the [Lease](crate::LeaseClient) must not have this layer.
///
/// ```no_run
/// use kcm_kube::LeaderGateLayer;
/// use kcm_leader_election::LeaderElector;
/// use kube_client::{Client, Config, client::ClientBuilder};
///
/// fn client(config: Config, elector: &LeaderElector) -> Result<Client, kube_client::Error> {
///     Ok(ClientBuilder::try_from(config)?.with_layer(&LeaderGateLayer::new(elector.gate())).build())
/// }
/// ```
#[derive(Debug, Clone)]
pub struct LeaderGateLayer(LeaderGate);

impl LeaderGateLayer {
    /// Creates a layer that checks `gate` before each write.
    pub fn new(gate: LeaderGate) -> Self {
        Self(gate)
    }
}

impl<S> Layer<S> for LeaderGateLayer {
    type Service = GatedService<S>;

    fn layer(&self, inner: S) -> GatedService<S> {
        GatedService { inner, gate: self.0.clone() }
    }
}

/// Service of a [`LeaderGateLayer`].
#[derive(Clone)]
pub struct GatedService<S> {
    inner: S,
    gate: LeaderGate,
}

impl<S, B> Service<Request<B>> for GatedService<S>
where
    S: Service<Request<B>, Error: Into<BoxError> + 'static>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if is_read || self.gate.is_leader() {
            return self.inner.call(request).map_err(Into::into).boxed();
        }
        let refused = ApiError::NotLeading(format!("{} {}", request.method(), request.uri().path()));
        std::future::ready(Err(refused.into())).boxed()
    }
}

impl<S> fmt::Debug for GatedService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatedService").field("gate", &self.gate).finish_non_exhaustive()
    }
}
