use async_trait::async_trait;
use kcm_api::ApiError;

use crate::event::{Event, StoredEvent};

/// Writes events to an API server, as objects of `core/v1` in [`Event::namespace`].
///
/// A write is retried after [`ApiError::NotSent`], [`ApiError::Timeout`], [`ApiError::Transport`] and
/// [`ApiError::Decode`].
///
/// Upstream counterpart: `record.EventSink`.
#[async_trait]
pub trait EventSink: Send + Sync + 'static {
    /// Creates an event.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn create(&self, event: &Event) -> Result<StoredEvent, ApiError>;

    /// Updates the stored event of the same name with the strategic merge patch [`Event::patch`].
    ///
    /// # Errors
    ///
    /// If the request fails. If the event is not found, it is created.
    async fn patch(&self, event: &Event) -> Result<StoredEvent, ApiError>;

    /// Returns the number of events that may be written at the same time now. Values below 1 are treated as 1, values
    /// above 16 as 16.
    ///
    /// A sink that shares a rate limit with other writers returns 1 while requests of the other writers could be delayed.
    fn max_concurrent_writes(&self) -> usize {
        1
    }

    /// Returns `true` while a write would wait for a rate limit. Repeated events that wait are then written as one.
    fn must_wait(&self) -> bool {
        false
    }
}
