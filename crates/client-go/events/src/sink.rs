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

    /// Returns the number of events that may be written at the same time now; at least one is written. More than 16 have
    /// no effect.
    ///
    /// A sink that shares a rate limit with other writers returns 1 while requests of the other writers could be delayed.
    fn max_concurrent_writes(&self) -> usize {
        1
    }
}
