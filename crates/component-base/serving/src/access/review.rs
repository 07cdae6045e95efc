//! Asking an API server about somebody.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use kcm_api::ApiError;
use kcm_client::{ApiClient, Request};
use kcm_clock::Clock;
use serde::{Serialize, de::DeserializeOwned};

/// However often it is tried: somebody waits for the answer.
const IN_ALL: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 5;
/// Before the second attempt; half as long again before each further one.
const FIRST_WAIT: Duration = Duration::from_millis(500);

#[derive(serde::Deserialize)]
struct Reviewed<S> {
    status: S,
}

/// The status that the API server gives the review `spec` of type `kind` in the group `group`. Asks again when the
/// server is not well, for ten seconds in all. A review changes nothing, so it may be asked twice.
///
/// # Errors
///
/// What the server or the way there says, and when the answer is no review. In one line, without the spec.
///
/// Upstream counterpart: `webhook.WithExponentialBackoff`.
pub(super) async fn review<S: DeserializeOwned>(
    client: &ApiClient,
    clock: &dyn Clock,
    (group, kind, plural): (&str, &str, &str),
    spec: &(impl Serialize + Sync),
) -> Result<S, Arc<str>> {
    let api_version = format!("{group}/v1");
    let review = serde_json::json!({ "apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec });
    let request = Request::post(format!("/apis/{api_version}/{plural}"), review.to_string());
    let answer = tokio::select! {
        biased;
        answer = insist(client, clock, &request) => answer.map_err(|error| error.to_string())?,
        () = clock.sleep(IN_ALL) => return Err(format!("POST {}: request timed out", request.path).into()),
    };
    // What serde says of a body can quote it.
    let reviewed = serde_json::from_slice::<Reviewed<S>>(&answer);
    reviewed
        .map(|reviewed| reviewed.status)
        .map_err(|_| format!("POST {}: the answer is no {kind}", request.path).into())
}

async fn insist(client: &ApiClient, clock: &dyn Clock, request: &Request) -> Result<Bytes, ApiError> {
    let mut wait = FIRST_WAIT;
    for _ in 1..ATTEMPTS {
        match client.send(request).await {
            Err(error) if is_passing(&error) => {
                tracing::debug!(err = %error, path = request.path, delay = ?wait, "Asking again");
                clock.sleep(wait).await;
                wait = wait * 3 / 2;
            }
            outcome => return outcome,
        }
    }
    client.send(request).await
}

fn is_passing(error: &ApiError) -> bool {
    match error {
        ApiError::Status(status) => {
            matches!(status.code, 429 | 500 | 504) || error.retry_after_seconds().is_some()
        }
        ApiError::Timeout(_) => true,
        _ => false,
    }
}
