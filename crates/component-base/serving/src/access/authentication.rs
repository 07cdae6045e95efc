//! Authentication of requests.
//!
//! Upstream counterpart: `authenticatorfactory.DelegatingAuthenticatorConfig`.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use http::{HeaderMap, header::AUTHORIZATION};
use kcm_client::ApiClient;
use kcm_clock::Clock;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::{
    attempt::{Attempt, Refusal},
    cache::{Cache, Key, ReviewError, ReviewQueue},
    cluster::{CONFIG_MAP, Cluster},
    proxy::{FrontProxy, ProxyHeaders},
    review::{Review, perform},
    trust::{ClientChain, Trust},
    user::User,
};
use crate::{AuthenticationOptions, ServingError, files::Watched, tls};

const AUTHENTICATED: &str = "system:authenticated";
/// Extra attribute with the fingerprint of the client certificate.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// Maximum number of cached token reviews.
const MAX_TOKENS: usize = 2048;

/// Authenticators in upstream's order: authenticating proxy, client certificate, bearer token.
pub(super) struct Authentication {
    clock: Arc<dyn Clock>,
    clients_file: Option<Watched<Arc<Trust>>>,
    proxy_file: Option<(Watched<Arc<Trust>>, Arc<ProxyHeaders>)>,
    cluster: Option<Cluster>,
    tokens: Option<Tokens>,
}

impl Authentication {
    pub(super) async fn new(
        options: &AuthenticationOptions,
        client: Option<ApiClient>,
        queue: ReviewQueue,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServingError> {
        let watch = |what, path: &std::path::PathBuf| Trust::watch(what, path.clone(), Arc::clone(&clock));
        let clients_file = options.client_ca_file.as_ref();
        let clients_file = clients_file.map(|path| watch("client CA file", path)).transpose()?;
        let proxy = &options.request_header;
        let proxy_file = proxy.client_ca_file.as_ref();
        let proxy_file = proxy_file.map(|path| watch("request-header client CA file", path)).transpose()?;
        let proxy_file = proxy_file.map(|trust| (trust, Arc::new(ProxyHeaders::new(proxy))));
        let uses_cluster = !options.skip_lookup && (clients_file.is_none() || proxy_file.is_none());
        let cluster = match &client {
            _ if !uses_cluster => None,
            None => {
                tracing::warn!(
                    "No authentication-kubeconfig provided in order to lookup client-ca-file and \
                     requestheader-client-ca-file in {CONFIG_MAP}, so client certificate authentication by them \
                     won't work."
                );
                None
            }
            Some(client) => Some(read_cluster(options, client, &clock).await?),
        };
        let tokens =
            client.map(|client| Tokens::new(client, options.token_cache_ttl, queue, Arc::clone(&clock)));
        let tokens = tokens.transpose()?;
        Ok(Self { clock, clients_file, proxy_file, cluster, tokens })
    }

    pub(super) fn uses_certificates(&self) -> bool {
        self.clients_file.is_some() || self.proxy_file.is_some() || self.cluster.is_some()
    }

    pub(super) async fn reload_loop(&self, shutdown: &CancellationToken) {
        match &self.cluster {
            Some(cluster) => cluster.reload_loop(shutdown).await,
            None => shutdown.cancelled().await,
        }
    }

    /// Returns the user of a request. Without credentials, the user is anonymous.
    ///
    /// # Errors
    ///
    /// If the credentials are invalid, or there are too many reviews of others.
    pub(super) async fn authenticate(&self, attempt: &Attempt<'_>) -> Result<User, Refusal> {
        let mut errors = Vec::new();
        let by_certificate = self.by_certificate(attempt.chain, attempt.headers, &mut errors);
        let user = match (by_certificate, &self.tokens) {
            (Some(user), _) => Some(user),
            (None, Some(tokens)) => match bearer(attempt.headers) {
                None => None,
                Some(token) => match tokens.user(token).await {
                    Ok(user) => Some(user),
                    Err(ReviewError::Busy) => return Err(Refusal::Busy),
                    Err(ReviewError::Failed(error)) => {
                        errors.push(error.to_string());
                        None
                    }
                },
            },
            (None, None) => None,
        };
        match user {
            Some(mut user) => {
                if !user.is_anonymous() && !user.groups.iter().any(|group| group == AUTHENTICATED) {
                    user.groups.push(AUTHENTICATED.to_owned());
                }
                Ok(user)
            }
            None if errors.is_empty() => Ok(User::anonymous()),
            None => {
                tracing::error!(err = errors.join(", "), "Unable to authenticate the request");
                Err(Refusal::Unauthorized)
            }
        }
    }

    fn by_certificate(
        &self,
        chain: &ClientChain,
        headers: &HeaderMap,
        errors: &mut Vec<String>,
    ) -> Option<User> {
        let certificate = chain.certificates.first()?;
        let now = self.clock.now();
        let cluster = self.cluster.as_ref().map(Cluster::current);
        let cluster = cluster.as_deref();
        let proxy = match &self.proxy_file {
            Some((trust, headers)) => Some(Arc::new(FrontProxy {
                trust: trust.current().as_ref().clone(),
                headers: Arc::clone(headers),
            })),
            None => cluster.and_then(|cluster| cluster.proxy.clone()),
        };
        if let Some(proxy) = proxy {
            match proxy.user(chain, headers, now) {
                Ok(Some(user)) => return Some(user),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        let clients = match &self.clients_file {
            Some(trust) => trust.current().as_ref().clone(),
            None => cluster.and_then(|cluster| cluster.clients.clone())?,
        };
        let verified = clients.verify(&chain.certificates, &chain.as_client, now);
        let user = verified.and_then(|()| certificate_user(certificate));
        user.unwrap_or_else(|error| {
            errors.push(format!("verifying the client certificate failed: {error}"));
            None
        })
    }
}

/// Reads the CA bundles of clients and proxies from the cluster.
///
/// DEVIATION: upstream always continues without the CA bundle of clients, and without the one of proxies only with
/// `--authentication-tolerate-lookup-failure`. Both are in one ConfigMap, so the flag applies to both.
async fn read_cluster(
    options: &AuthenticationOptions,
    client: &ApiClient,
    clock: &Arc<dyn Clock>,
) -> Result<Cluster, ServingError> {
    let cluster = Cluster::new(client.clone(), Arc::clone(clock));
    if let Err(error) = cluster.read().await {
        if !options.tolerate_lookup_failure {
            return Err(ServingError::Lookup(error));
        }
        tracing::warn!(
            err = error,
            "Error looking up in-cluster authentication configuration. Continuing without it until it can be read, \
             which may treat all requests as anonymous. To require the lookup to succeed, set \
             --authentication-tolerate-lookup-failure=false"
        );
    }
    Ok(cluster)
}

impl User {
    /// Returns the user of a verified certificate in DER. `None` if the certificate has no common name, or is invalid.
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        certificate_user(&CertificateDer::from(der)).ok().flatten()
    }
}

/// User of a verified certificate. `None` if the certificate has no common name.
fn certificate_user(certificate: &CertificateDer<'_>) -> Result<Option<User>, String> {
    let name = tls::Name::of(certificate)?;
    if name.common_name.is_empty() {
        return Ok(None);
    }
    let mut id = "X509SHA256=".to_owned();
    for byte in Sha256::digest(certificate.as_ref()) {
        // Writing to a `String` does not fail.
        let _ = write!(id, "{byte:02x}");
    }
    Ok(Some(User {
        name: name.common_name,
        uid: String::new(),
        groups: name.organizations,
        extra: BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![id])]),
    }))
}

/// Bearer token in `headers`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let mut parts = value.splitn(3, ' ');
    let scheme = parts.next()?;
    parts.next().filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// Token reviews. The cache contains salted hashes of tokens, not the tokens.
struct Tokens {
    client: ApiClient,
    clock: Arc<dyn Clock>,
    ttl: Duration,
    salt: Key,
    cache: Cache<Option<Arc<User>>>,
}

#[derive(Serialize)]
struct TokenReviewSpec<'a> {
    token: &'a str,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct TokenReviewStatus {
    authenticated: bool,
    user: TokenUser,
    error: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenUser {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Tokens {
    fn new(
        client: ApiClient,
        ttl: Duration,
        queue: ReviewQueue,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServingError> {
        let mut salt = [0; 32];
        let filled = tls::provider().secure_random.fill(&mut salt);
        filled.map_err(|_| ServingError::Tls("no random numbers available".to_owned()))?;
        let cache = Cache::new(MAX_TOKENS, queue, Arc::clone(&clock));
        Ok(Self { client, clock, ttl, salt, cache })
    }

    /// User of `token`.
    ///
    /// # Errors
    ///
    /// If the token is invalid, or the review fails or cannot be started.
    async fn user(&self, token: &str) -> Result<User, ReviewError> {
        let key: Key = Sha256::new().chain_update(self.salt).chain_update(token).finalize().into();
        let (client, clock, ttl) = (self.client.clone(), Arc::clone(&self.clock), self.ttl);
        let kind = ("authentication.k8s.io", "TokenReview", "tokenreviews");
        let review = Review::new(kind, &TokenReviewSpec { token });
        let review = async move {
            let status: TokenReviewStatus = perform(&client, &*clock, review?).await?;
            if !status.authenticated && !status.error.is_empty() {
                // Not cached, as upstream: the API server may have failed.
                return Err(status.error.into());
            }
            let TokenUser { username, uid, groups, extra } = status.user;
            let user = User { name: username, uid, groups, extra };
            Ok((status.authenticated.then(|| Arc::new(user)), ttl))
        };
        let user = self.cache.get(key, review).await?;
        user.map(|user| User::clone(&user)).ok_or_else(|| ReviewError::Failed("invalid bearer token".into()))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn finds_bearer_tokens_as_upstream() {
        let found = |value: &'static str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(found("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(found(" bearer abc def").as_deref(), Some("abc"));
        for nothing in ["", "Bearer", "Bearer  abc", "Basic abc", "Bearerabc"] {
            assert_eq!(found(nothing), None, "{nothing:?}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
