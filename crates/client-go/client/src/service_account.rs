//! Acting as a service account.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::{HeaderValue, StatusCode};
use kcm_api::{ApiError, ObjectKey, Time};
use kcm_clock::Clock;
use kube_client::Client;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;

use crate::{
    ApiClient,
    request::{Request, namespaced_path, object_path},
};

const CORE: &str = "v1";
const PLURAL: &str = "serviceaccounts";

/// How long a token is asked for.
const LIFETIME: Duration = Duration::from_secs(3600);

/// If the server's clock says that a token is good for less, that clock is not believed.
const SHORTEST_LIFETIME: Duration = Duration::from_secs(600);

/// How often a token is asked for in a row, and how long is waited the first time; each time twice as long.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// What [`ClientFactory::with_service_accounts`](crate::ClientFactory::with_service_accounts) needs.
#[derive(Clone)]
pub(crate) struct ServiceAccounts {
    /// Where they are.
    pub(crate) namespace: Arc<str>,
    /// Asks for their tokens, as who we are.
    pub(crate) client: ApiClient,
    /// Connections on which nobody says who he is. Who shows a client certificate is taken for whom that names,
    /// whatever token he has.
    pub(crate) requests: Client,
    pub(crate) watches: Client,
}

impl ServiceAccounts {
    pub(crate) fn of(&self, name: &str) -> Arc<ServiceAccount> {
        let (client, key) = (self.client.clone(), ObjectKey::new(&*self.namespace, name));
        Arc::new(ServiceAccount { client, key, token: Mutex::default() })
    }
}

/// One service account, and the token with which one acts as it.
///
/// Upstream counterpart: `tokenSourceImpl`, with the cache around it.
pub(crate) struct ServiceAccount {
    client: ApiClient,
    key: ObjectKey,
    token: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    header: HeaderValue,
    /// When to ask for another, by the monotonic clock: well before it runs out.
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
    /// What the service account is called as a user.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.key.namespace, self.key.name)
    }

    /// The header that says that it asks. One request for a token at a time; the others wait for it.
    ///
    /// # Errors
    ///
    /// When there is no token to be had. None of the server's refusals: those are of the request that needs it.
    pub(crate) fn authorization(&self) -> BoxFuture<'_, Result<HeaderValue, ApiError>> {
        // Boxed, for it sends requests, and is a part of sending one.
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

    /// Notes that the server did not believe `header`.
    pub(crate) async fn refused(&self, header: &HeaderValue) {
        let mut token = self.token.lock().await;
        // Another request may have brought a new one meanwhile.
        if token.as_ref().is_some_and(|token| token.header == header) {
            *token = None;
        }
    }

    fn clock(&self) -> &dyn Clock {
        &**self.client.clock()
    }

    async fn obtain(&self) -> Result<Token, ApiError> {
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            let error = match self.ask().await {
                Ok(token) => return Ok(token),
                Err(error) => error,
            };
            if attempt == ATTEMPTS {
                let ObjectKey { namespace, name } = &self.key;
                return Err(ApiError::NotSent(format!(
                    "failed to get token for {namespace}/{name}: {error}"
                )));
            }
            tracing::warn!(user = self.user(), err = %error, "Failed to get token");
            self.clock().sleep(pause).await;
            pause *= 2;
            attempt += 1;
        }
    }

    async fn ask(&self) -> Result<Token, ApiError> {
        self.get_or_create().await?;
        let path = format!("{}/token", object_path(CORE, PLURAL, &self.key));
        let request = json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "spec": {"expirationSeconds": LIFETIME.as_secs()},
        });
        let answer = self.client.send(&Request::post(&*path, request.to_string())).await?;
        // Neither error may quote what it is about.
        let useless = |why: &str| ApiError::Decode(format!("POST {path}: {why}"));
        let TokenRequest { status } =
            serde_json::from_slice(&answer).map_err(|_| useless("the answer is no TokenRequest"))?;
        let mut header = HeaderValue::from_str(&format!("Bearer {}", status.token))
            .map_err(|_| useless("the token cannot be sent"))?;
        header.set_sensitive(true);
        let left = status.expiration_timestamp.timestamp().duration_since(self.clock().now());
        let lifetime = Duration::try_from(left).unwrap_or_default().max(SHORTEST_LIFETIME);
        Ok(Token { header, renew_at: self.clock().monotonic().saturating_add(lifetime / 5 * 4) })
    }

    async fn get_or_create(&self) -> Result<(), ApiError> {
        match self.client.send(&Request::get(object_path(CORE, PLURAL, &self.key))).await {
            Err(error) if error.is_not_found() => {}
            other => return other.map(drop),
        }
        let ObjectKey { namespace, name } = &self.key;
        let account = json!({
            "kind": "ServiceAccount", "apiVersion": CORE, "metadata": {"name": &**name, "namespace": &**namespace},
        });
        let path = namespaced_path(CORE, PLURAL, namespace);
        match self.client.send(&Request::create(path, account.to_string())).await {
            // Somebody else was faster.
            Err(error) if error.code() == Some(StatusCode::CONFLICT.as_u16()) => Ok(()),
            other => other.map(drop),
        }
    }
}
