//! Paths that the program around the API server serves: below `/ui/` and `/debug/`.

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

use super::response::{self, ApiResponse};
use crate::ApiStatus;

/// Serves paths below `/ui/` and `/debug/`. `None` responds with 404.
///
/// Requests are authenticated as those of other paths.
pub type Extension = Arc<dyn Fn(ExtensionRequest) -> ExtensionFuture + Send + Sync>;

/// Future of an [`Extension`].
pub type ExtensionFuture = Pin<Box<dyn Future<Output = Option<ExtensionResponse>> + Send>>;

/// Request of an [`Extension`].
#[derive(Debug, Clone)]
pub struct ExtensionRequest {
    /// HTTP method.
    pub method: Method,
    /// Path, not decoded.
    pub path: String,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// Response of an [`Extension`], as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionResponse {
    /// HTTP status code.
    pub status: StatusCode,
    /// Body.
    pub body: Bytes,
}

/// Serves a request.
pub(super) async fn serve(
    extension: Option<&Extension>,
    request: ExtensionRequest,
) -> Result<ApiResponse, ApiStatus> {
    let Some(extension) = extension else { return Err(ApiStatus::unknown_path()) };
    let ExtensionResponse { status, body } = extension(request).await.ok_or_else(ApiStatus::unknown_path)?;
    Ok(response::json_text(status, body))
}
