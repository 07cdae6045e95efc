use std::fmt;

use async_trait::async_trait;
use http::Method;
use kcm_api::{ApiError, Lease, ObjectKey};
use kcm_leader_election::LeaseLock;
use kube_client::Client;

use crate::request::{JSON, send};

/// Lease of an election, read and written with a kube client. Unknown fields of the Lease are kept.
///
/// Use a separate client: requests for other objects must not delay a renewal. Set the timeouts of that client to
/// [`request_timeout`](kcm_leader_election::LeaderElectionConfig::request_timeout).
///
/// Upstream counterpart: the Lease client of `resourcelock.LeaseLock`.
#[derive(Clone)]
pub struct LeaseClient(Client);

impl LeaseClient {
    /// Creates a lock that sends requests through `client`.
    pub fn new(client: Client) -> Self {
        Self(client)
    }
}

fn collection(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

fn path(key: &ObjectKey) -> String {
    format!("{}/{}", collection(&key.namespace), key.name)
}

fn body(lease: &Lease) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(lease).map_err(|error| ApiError::InvalidRequest(error.to_string()))
}

#[async_trait]
impl LeaseLock for LeaseClient {
    async fn get(&self, key: &ObjectKey) -> Result<Lease, ApiError> {
        send(&self.0, Method::GET, &path(key), JSON, Vec::new()).await
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, ApiError> {
        send(&self.0, Method::POST, &collection(&lease.metadata.namespace), JSON, body(lease)?).await
    }

    async fn update(&self, lease: &Lease) -> Result<Lease, ApiError> {
        send(&self.0, Method::PUT, &path(&lease.metadata.key()), JSON, body(lease)?).await
    }
}

impl fmt::Debug for LeaseClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseClient").finish_non_exhaustive()
    }
}
