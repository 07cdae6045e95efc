use http::{Method, Request, header};
use kcm_api::ApiError;
use kube_client::Client;
use serde::de::DeserializeOwned;

use crate::error::api_error;

/// Content types of patches.
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
pub(crate) const JSON: &str = "application/json";

/// Sends a request with a body, and decodes the response.
pub(crate) async fn send<T: DeserializeOwned>(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: Vec<u8>,
) -> Result<T, ApiError> {
    let request =
        Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content_type).body(body);
    let request = request.map_err(|error| ApiError::InvalidRequest(error.to_string()))?;
    client.request(request).await.map_err(api_error)
}
