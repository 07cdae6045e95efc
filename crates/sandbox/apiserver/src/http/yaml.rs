//! Responses in YAML.

use bytes::Bytes;
use http::{HeaderValue, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::response::ApiResponse;

const YAML: HeaderValue = HeaderValue::from_static("application/yaml");

/// Converts a response from JSON. A response that is no JSON remains as it is.
pub(super) async fn convert(response: ApiResponse) -> ApiResponse {
    let (mut parts, body) = response.into_parts();
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes);
    let value = serde_json::from_slice::<Value>(&body).ok();
    let body = match value.and_then(|value| serde_saphyr::to_string(&value).ok()) {
        Some(text) => {
            parts.headers.insert(CONTENT_TYPE, YAML);
            Bytes::from(text)
        }
        None => body,
    };
    ApiResponse::from_parts(parts, Full::new(body).boxed_unsync())
}
