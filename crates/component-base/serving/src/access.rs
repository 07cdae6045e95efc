//! Authentication and authorization of requests, delegated to an API server.
//!
//! Upstream counterpart: `DelegatingAuthenticationOptions` and `DelegatingAuthorizationOptions` of
//! `k8s.io/apiserver/pkg/server/options`.

mod attempt;
mod authentication;
mod authorization;
mod cache;
mod cluster;
mod proxy;
mod review;
mod trust;
mod user;

use std::{sync::Arc, time::Duration};

use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, Server};
use kcm_clock::Clock;
use tokio_util::sync::CancellationToken;

pub use self::user::User;
pub(crate) use self::{
    attempt::{Attempt, Refusal},
    trust::ClientChain,
};
use self::{authentication::Authentication, authorization::Authorization, cache::ReviewQueue};
use crate::{AuthenticationOptions, AuthorizationOptions, ServingError};

/// Rate limit of reviews, high enough not to delay requests.
const RATE_LIMIT: RateLimit = RateLimit { qps: 200.0, burst: 400 };
const TIMEOUT: Duration = Duration::from_secs(10);

/// Authentication and authorization of requests. Clones share caches and connections.
#[derive(Clone)]
pub struct Access(Arc<Inner>);

struct Inner {
    authentication: Authentication,
    authorization: Authorization,
}

impl Access {
    /// Connects to the API servers for reviews: those in the kubeconfigs of the options, or else the one of the cluster
    /// that this process runs in. Without either, tokens are ignored and only always-allowed paths are served.
    ///
    /// `client` contains the user agent and clock of the clients. Its request timeout is not used.
    ///
    /// # Errors
    ///
    /// If a file cannot be used, or the cluster's client CA bundle cannot be read and that is not tolerated.
    pub async fn connect(
        authentication: &AuthenticationOptions,
        authorization: &AuthorizationOptions,
        client: &ClientOptions,
    ) -> Result<Self, ServingError> {
        let options = ClientOptions { timeout: Some(TIMEOUT), ..client.clone() };
        let tokens = delegate("authentication", authentication.kubeconfig.as_ref(), &options).await?;
        // The files are usually equal. Then the connections are shared.
        let permissions = if authentication.kubeconfig == authorization.kubeconfig {
            tokens.clone()
        } else {
            delegate("authorization", authorization.kubeconfig.as_ref(), &options).await?
        };
        let client = |purpose, factory: Option<ClientFactory>| {
            factory.map(|factory| factory.client(purpose, RATE_LIMIT))
        };
        let tokens = client("authentication", tokens);
        let permissions = client("authorization", permissions);
        Self::with_clients(authentication, authorization, tokens, permissions, options.clock).await
    }

    /// As [`connect`](Self::connect), with existing clients: `tokens` for token reviews and the cluster's client CA bundle,
    /// `permissions` for subject access reviews.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn with_clients(
        authentication: &AuthenticationOptions,
        authorization: &AuthorizationOptions,
        tokens: Option<ApiClient>,
        permissions: Option<ApiClient>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServingError> {
        let queue = ReviewQueue::new();
        let authorization =
            Authorization::new(authorization, permissions, queue.clone(), Arc::clone(&clock))?;
        let authentication = Authentication::new(authentication, tokens, queue, clock).await?;
        Ok(Self(Arc::new(Inner { authentication, authorization })))
    }

    /// Returns `true` if client certificates can authenticate users.
    pub(crate) fn uses_certificates(&self) -> bool {
        self.0.authentication.uses_certificates()
    }

    /// Authenticates and authorizes a request.
    ///
    /// # Errors
    ///
    /// The reason why the request is denied.
    pub(crate) async fn admit(&self, attempt: &Attempt<'_>) -> Result<User, Refusal> {
        let user = self.0.authentication.authenticate(attempt).await?;
        self.0.authorization.authorize(user, attempt.method, attempt.path).await
    }

    /// Reloads the cluster's client CA bundle periodically until `shutdown`.
    pub(crate) async fn reload_loop(&self, shutdown: &CancellationToken) {
        self.0.authentication.reload_loop(shutdown).await;
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

/// Clients of the API server in `kubeconfig`, or else of the cluster that this process runs in.
async fn delegate(
    purpose: &'static str,
    kubeconfig: Option<&std::path::PathBuf>,
    options: &ClientOptions,
) -> Result<Option<ClientFactory>, ServingError> {
    let connect = |server| ClientFactory::connect(server, options.clone());
    match kubeconfig {
        Some(path) => connect(Server::Kubeconfig { path: path.clone(), master: None })
            .await
            .map(Some)
            .map_err(|cause| ServingError::Client { purpose, cause }),
        None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() => Ok(None),
        None => match connect(Server::InCluster).await {
            Ok(factory) => Ok(Some(factory)),
            Err(error) => {
                tracing::warn!(err = %error, "Failed to read in-cluster kubeconfig for delegated {purpose}");
                Ok(None)
            }
        },
    }
}
