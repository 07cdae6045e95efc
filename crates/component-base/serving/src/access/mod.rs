//! Who is let in.
//!
//! *Upstream counterpart:* `DelegatingAuthenticationOptions` and `DelegatingAuthorizationOptions` of
//! `k8s.io/apiserver/pkg/server/options`, and what they make.

mod authentication;
mod authorization;
mod cache;
mod cluster;
mod proxy;
mod review;
mod trust;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::HeaderMap;
use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, Server};
use kcm_clock::Clock;
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use self::{authentication::Authentication, authorization::Authorization};
use crate::{AuthenticationOptions, AuthorizationOptions, ServingError};

/// Who did not say who he is.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// A client that asks about others must not make them wait.
const RATE_LIMIT: RateLimit = RateLimit { qps: 200.0, burst: 400 };
const TIMEOUT: Duration = Duration::from_secs(10);

/// Somebody who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name; `system:anonymous` for who did not say.
    pub name: String,
    /// What tells apart two of the same name, if known.
    pub uid: String,
    /// The groups he is in.
    pub groups: Vec<String>,
    /// What else is known.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Who is let in: authentication and authorization, mostly by asking an API server. Cheap to clone.
#[derive(Clone)]
pub struct Access(Arc<Inner>);

struct Inner {
    authentication: Authentication,
    authorization: Authorization,
}

/// What somebody shows of himself, and what he wants.
pub(crate) struct Presented<'a> {
    pub(crate) certificates: &'a [CertificateDer<'static>],
    pub(crate) headers: &'a HeaderMap,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
}

/// Why somebody is not let in.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// He is not who he says that he is.
    Unauthorized,
    /// He may not.
    Forbidden {
        user: User,
        /// Why; often empty.
        reason: String,
    },
    /// Nobody can say whether he may.
    Unknown(String),
}

impl User {
    /// Whether he did not say who he is.
    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }
}

impl Access {
    /// Finds the API servers that are to be asked, in the files that the options name, or around the pod that
    /// this process runs in. Without either, nobody has a token, and only who needs no permission is let in.
    /// `client` says how to introduce oneself; its time-out is not used.
    ///
    /// # Errors
    ///
    /// When a file cannot be used, or the cluster's client CAs cannot be read and that is not tolerated.
    pub async fn connect(
        authentication: &AuthenticationOptions,
        authorization: &AuthorizationOptions,
        client: &ClientOptions,
    ) -> Result<Self, ServingError> {
        let options = ClientOptions { timeout: TIMEOUT, ..client.clone() };
        let tokens = delegate("authentication", authentication.kubeconfig.as_ref(), &options).await?;
        // Mostly the same file, and then the same connection.
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

    /// As [`connect`](Self::connect), with API servers that have been found: `tokens` is asked about tokens and for
    /// the cluster's client CAs, `permissions` what somebody may.
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
        let authorization = Authorization::new(authorization, permissions, Arc::clone(&clock))?;
        let authentication = Authentication::new(authentication, tokens, clock).await?;
        Ok(Self(Arc::new(Inner { authentication, authorization })))
    }

    /// Whether certificates of clients can mean anything.
    pub(crate) fn asks_for_certificates(&self) -> bool {
        self.0.authentication.asks_for_certificates()
    }

    /// Who asks, if he may what he asks for.
    pub(crate) async fn admit(&self, presented: &Presented<'_>) -> Result<User, Refusal> {
        let user = self.0.authentication.authenticate(presented).await?;
        self.0.authorization.authorize(user, presented.method, presented.path).await
    }

    /// Keeps up with the cluster's client CAs until `shutdown`.
    pub(crate) async fn keep_up(&self, shutdown: &CancellationToken) {
        self.0.authentication.keep_up(shutdown).await;
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

/// The way to the API server that is to be asked.
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
