//! Leases over the client.

use async_trait::async_trait;
use kcm_api::{ApiError, Lease, ObjectKey};
use kcm_leader_election::LeaseLock;

use crate::{Api, ApiClient};

/// Client of a candidate for the Lease of its election.
///
/// Upstream counterpart: the Lease client of `resourcelock.LeaseLock`.
#[derive(Debug, Clone)]
pub struct LeaseClient(Api<Lease>);

impl LeaseClient {
    /// Creates a client that sends requests through `client`, see
    /// [`for_election`](crate::ClientFactory::for_election).
    pub fn new(client: &ApiClient) -> Self {
        Self(client.api())
    }
}

#[async_trait]
impl LeaseLock for LeaseClient {
    async fn get(&self, key: &ObjectKey) -> Result<Lease, ApiError> {
        self.0.get(key).await
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.0.create(lease).await
    }

    async fn update(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.0.replace(lease).await
    }
}

#[cfg(test)]
mod tests;
