//! Client of the Lease.

use async_trait::async_trait;
use kcm_api::{ApiError, Lease, ObjectKey};

/// Reads and writes Leases.
///
/// Upstream counterpart: the Lease client of `resourcelock.LeaseLock`. The other tasks of upstream's lock, caching
/// the last object and converting records, belong to [`Candidate`](crate::Candidate).
///
/// # Cancel safety
///
/// A candidate drops the futures after a timeout. The request may take effect at any later time. Its resource version
/// ensures that it has no effect after another write.
#[async_trait]
pub trait LeaseLock: Send + Sync + 'static {
    /// Returns the newest state of a Lease, from the API server and not from a cache.
    ///
    /// # Errors
    ///
    /// The error of the API server or of the transport.
    async fn get(&self, key: &ObjectKey) -> Result<Lease, ApiError>;

    /// Creates a Lease and returns it as stored.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get).
    async fn create(&self, lease: &Lease) -> Result<Lease, ApiError>;

    /// Replaces a Lease and returns it as stored.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get). A conflict if the Lease has changed since the resource version of `lease`.
    async fn update(&self, lease: &Lease) -> Result<Lease, ApiError>;
}
