//! How a candidate reaches the Lease.

use async_trait::async_trait;
use kcm_api::{ApiError, Lease, ObjectKey};

/// Reads and writes Leases.
///
/// Upstream counterpart: the Lease client below `resourcelock.LeaseLock`. What upstream's lock does on top of it,
/// remembering the last object and mapping records, is the [`Candidate`](crate::Candidate)'s here.
///
/// # Cancel safety
///
/// A candidate drops the futures when they take too long; the request may take effect all the same, at any later
/// time. The resource version in it sees to it that it has no effect once somebody else has written.
#[async_trait]
pub trait LeaseLock: Send + Sync + 'static {
    /// The newest state of a Lease, past all caches.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn get(&self, key: &ObjectKey) -> Result<Lease, ApiError>;

    /// Creates a Lease; answers with it as stored.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    async fn create(&self, lease: &Lease) -> Result<Lease, ApiError>;

    /// Replaces a Lease that still has the resource version of `lease`; answers with it as stored.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); a conflict when the Lease has changed since.
    async fn update(&self, lease: &Lease) -> Result<Lease, ApiError>;
}
