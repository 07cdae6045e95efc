//! Authentication as a service account.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::{HeaderValue, StatusCode};
use kcm_api::{ApiError, ErrorCause, ObjectKey, Time};
use kcm_clock::Clock;
use kcm_meta::ApiResource;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;

use crate::{
    ApiClient,
    authenticator::Authenticator,
    request::{Request, collection_path, object_path},
    transport::Channel,
};

const SERVICE_ACCOUNTS: ApiResource = ApiResource::namespaced("", "v1", "ServiceAccount", "serviceaccounts");

/// Requested lifetime of a token.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Minimum assumed lifetime of a token. A shorter one indicates that the clocks of server and client differ.
const MIN_LIFETIME: Duration = Duration::from_secs(600);

/// Number of attempts to get a token.
const ATTEMPTS: u32 = 4;
/// Time to wait after the first attempt. It doubles with each attempt: 0.5 s, 1 s, 2 s.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);

/// Configuration of [`ClientFactory::with_service_accounts`](crate::ClientFactory::with_service_accounts).
#[derive(Clone)]
pub(crate) struct ServiceAccounts {
    /// Namespace of the service accounts.
    pub(crate) namespace: Arc<str>,
    /// Client that requests tokens.
    pub(crate) client: ApiClient,
    /// Connections without a client certificate, which would take precedence over the token.
    pub(crate) requests: Channel,
    pub(crate) watches: Channel,
}

impl ServiceAccounts {
    pub(crate) fn of(&self, name: &str) -> Arc<ServiceAccount> {
        let (client, key) = (self.client.clone(), ObjectKey::new(&*self.namespace, name));
        Arc::new(ServiceAccount { client, key, token: Mutex::default() })
    }
}

/// A service account and its token.
///
/// Upstream counterpart: `tokenSourceImpl` and its cache.
pub(crate) struct ServiceAccount {
    client: ApiClient,
    key: ObjectKey,
    token: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    header: HeaderValue,
    /// Monotonic time at which the token is renewed: after four fifths of its lifetime.
    renew_at: Duration,
}

#[derive(Deserialize)]
struct TokenRequest {
    status: TokenRequestStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenRequestStatus {
    token: String,
    expiration_timestamp: Time,
}

impl ServiceAccount {
    /// Returns the user name of the service account.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.key.namespace, self.key.name)
    }

    fn path(&self) -> String {
        object_path(&SERVICE_ACCOUNTS, &self.key.namespace, &self.key.name)
    }

    fn clock(&self) -> &dyn Clock {
        &**self.client.clock()
    }

    async fn obtain(&self) -> Result<Token, ApiError> {
        let mut pause = INITIAL_BACKOFF;
        let mut attempt = 1;
        loop {
            let error = match self.request_token().await {
                Ok(token) => return Ok(token),
                Err(error) => error,
            };
            if attempt == ATTEMPTS {
                let ObjectKey { namespace, name } = &self.key;
                let text = format!("failed to get token for {namespace}/{name}: {error}");
                return Err(ApiError::NotSent(ErrorCause::new(text, error)));
            }
            tracing::warn!(user = self.user(), err = %error, "Failed to get token");
            self.clock().sleep(pause).await;
            pause *= 2;
            attempt += 1;
        }
    }

    async fn request_token(&self) -> Result<Token, ApiError> {
        self.get_or_create().await?;
        let path = format!("{}/token", self.path());
        let request = json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "spec": {"expirationSeconds": LIFETIME.as_secs()},
        });
        let answer = self.client.send(&Request::post(&*path, request.to_string())).await?;
        // Neither error contains the token.
        let invalid = |why: &str| ApiError::Decode(format!("POST {path}: {why}").into());
        let TokenRequest { status } =
            serde_json::from_slice(&answer).map_err(|_| invalid("the response is not a TokenRequest"))?;
        let mut header = HeaderValue::from_str(&format!("Bearer {}", status.token))
            .map_err(|_| invalid("the token cannot be sent in a header"))?;
        header.set_sensitive(true);
        let left = status.expiration_timestamp.timestamp().duration_since(self.clock().now());
        let lifetime = Duration::try_from(left).unwrap_or_default().max(MIN_LIFETIME);
        Ok(Token { header, renew_at: self.clock().monotonic().saturating_add(lifetime / 5 * 4) })
    }

    async fn get_or_create(&self) -> Result<(), ApiError> {
        match self.client.send(&Request::get(self.path())).await {
            Err(error) if error.is_not_found() => {}
            other => return other.map(drop),
        }
        let ObjectKey { namespace, name } = &self.key;
        let account = json!({
            "kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": &**name, "namespace": &**namespace},
        });
        let path = collection_path(&SERVICE_ACCOUNTS, namespace);
        match self.client.send(&Request::create(path, account.to_string())).await {
            // Created concurrently.
            Err(error) if error.code() == Some(StatusCode::CONFLICT.as_u16()) => Ok(()),
            other => other.map(drop),
        }
    }
}

impl Authenticator for ServiceAccount {
    /// Concurrent callers share one token request. Its error responses are converted to [`ApiError::NotSent`].
    fn authorization(&self) -> BoxFuture<'_, Result<HeaderValue, ApiError>> {
        Box::pin(async move {
            let mut token = self.token.lock().await;
            if let Some(token) = token.as_ref().filter(|token| self.clock().monotonic() < token.renew_at) {
                return Ok(token.header.clone());
            }
            let fresh = match self.obtain().await {
                Ok(fresh) => fresh,
                Err(error) => {
                    let old = token.as_ref().ok_or(error.clone())?;
                    tracing::error!(user = self.user(), err = %error, "Unable to rotate token, using the old one");
                    return Ok(old.header.clone());
                }
            };
            Ok(token.insert(fresh).header.clone())
        })
    }

    fn refused<'a>(&'a self, header: &'a HeaderValue) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut token = self.token.lock().await;
            // A concurrent request may have renewed it.
            if token.as_ref().is_some_and(|token| token.header == header) {
                *token = None;
            }
        })
    }
}
