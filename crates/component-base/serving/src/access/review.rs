//! Reviews by an API server.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use kcm_api::ApiError;
use kcm_client::{ApiClient, Request};
use kcm_clock::Clock;
use serde::{Serialize, de::DeserializeOwned};

/// Time limit of a review, including retries.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of requests of a review.
const ATTEMPTS: u32 = 5;
/// Back-off before the second request. Each further back-off is 1.5 times as long: 0.5 s, 0.75 s, 1.1 s, 1.7 s.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);

#[derive(serde::Deserialize)]
struct Reviewed<S> {
    status: S,
}

/// Review of type `kind`.
pub(super) struct Review {
    kind: &'static str,
    request: Request,
}

impl Review {
    /// Creates a review with `spec`, of type `kind` in the group `group`.
    ///
    /// # Errors
    ///
    /// If `spec` cannot be encoded.
    pub(super) fn new(
        (group, kind, plural): (&str, &'static str, &str),
        spec: &impl Serialize,
    ) -> Result<Self, String> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Object<'a, S> {
            api_version: &'a str,
            kind: &'a str,
            metadata: BTreeMap<(), ()>,
            spec: &'a S,
        }
        let api_version = format!("{group}/v1");
        let object = Object { api_version: &api_version, kind, metadata: BTreeMap::new(), spec };
        let body = serde_json::to_vec(&object).map_err(|error| error.to_string())?;
        Ok(Self { kind, request: Request::post(format!("/apis/{api_version}/{plural}"), body) })
    }

    /// Encoded object.
    pub(super) fn body(&self) -> &[u8] {
        &self.request.body
    }
}

/// Performs `review` and returns its status. Retries transient errors; a review changes no state.
///
/// # Errors
///
/// The error of the API server or of the transport, or if the response is not a review. The message is one line and does
/// not contain the spec.
///
/// Upstream counterpart: `webhook.WithExponentialBackoff`.
pub(super) async fn perform<S: DeserializeOwned>(
    client: &ApiClient,
    clock: &dyn Clock,
    Review { kind, request }: Review,
) -> Result<S, Arc<str>> {
    let response = tokio::select! {
        biased;
        response = send_with_retries(client, clock, &request) => response.map_err(|error| error.to_string())?,
        () = clock.sleep(TIMEOUT) => return Err(format!("POST {}: request timed out", request.path).into()),
    };
    // The message of serde can contain parts of the body.
    let reviewed = serde_json::from_slice::<Reviewed<S>>(&response);
    reviewed
        .map(|reviewed| reviewed.status)
        .map_err(|_| format!("POST {}: the response is not a {kind}", request.path).into())
}

async fn send_with_retries(
    client: &ApiClient,
    clock: &dyn Clock,
    request: &Request,
) -> Result<Bytes, ApiError> {
    let mut wait = INITIAL_BACKOFF;
    for _ in 1..ATTEMPTS {
        match client.send(request).await {
            Err(error) if is_transient(&error) => {
                tracing::debug!(err = %error, path = request.path, delay = ?wait, "Retrying review");
                clock.sleep(wait).await;
                wait = wait * 3 / 2;
            }
            result => return result,
        }
    }
    client.send(request).await
}

fn is_transient(error: &ApiError) -> bool {
    match error {
        ApiError::Status(status) => {
            matches!(status.code, 429 | 500 | 504) || error.retry_after_seconds().is_some()
        }
        ApiError::Timeout(_) => true,
        _ => false,
    }
}
