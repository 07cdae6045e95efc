use async_trait::async_trait;
use kcm_api::{ApiError, Lease, ObjectKey};
use kcm_leader_election::LeaseLock;
use kube_client::Client;

use crate::clients::unlimited;

/// Lease of an election, read and written with a kube client. Unknown fields of the Lease are kept.
///
/// Use a separate client: requests for other objects must not delay a renewal. Set the timeouts of that client to
/// [`request_timeout`](kcm_leader_election::LeaderElectionConfig::request_timeout).
///
/// Upstream counterpart: the Lease client of `resourcelock.LeaseLock`.
#[derive(Debug, Clone)]
pub struct LeaseClient(kcm_client::Api<Lease>);

impl LeaseClient {
    /// Creates a lock that sends requests through `client`.
    pub fn new(client: Client) -> Self {
        Self(unlimited(client).api())
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
