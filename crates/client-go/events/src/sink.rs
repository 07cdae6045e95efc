use async_trait::async_trait;
use kcm_api::ApiError;
use serde_json::Value;

/// Writes events to an API server, as JSON of core/v1.
///
/// Upstream counterpart: `record.EventSink`.
#[async_trait]
pub trait EventSink: Send + Sync + 'static {
    /// Creates an event. Returns it as stored.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn create(&self, namespace: &str, event: &Value) -> Result<Value, ApiError>;

    /// Modifies an event with a strategic merge patch. Returns it as stored.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<Value, ApiError>;
}
