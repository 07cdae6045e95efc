//! DNS provider. It is outside of the cluster, so a finalizer removes its records.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use thiserror::Error;

/// Error of the DNS provider.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("failed to change DNS record {host}: {reason}")]
pub struct DnsError {
    /// Host name of the record.
    pub host: String,
    /// Reason.
    pub reason: String,
}

/// DNS provider. Both methods can be repeated.
#[async_trait]
pub trait Dns: Send + Sync + 'static {
    /// Creates the record of a host.
    ///
    /// # Errors
    ///
    /// If the provider rejects it or cannot be reached.
    async fn publish(&self, host: &str) -> Result<(), DnsError>;

    /// Deletes the record of a host, if it exists.
    ///
    /// # Errors
    ///
    /// If the provider rejects it or cannot be reached.
    async fn withdraw(&self, host: &str) -> Result<(), DnsError>;
}

/// Provider in memory. It does not publish hosts below `.invalid`.
#[derive(Debug, Default)]
pub struct FakeDns {
    hosts: Mutex<BTreeSet<String>>,
}

impl FakeDns {
    /// Returns the hosts that have a record.
    pub fn hosts(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Dns for FakeDns {
    async fn publish(&self, host: &str) -> Result<(), DnsError> {
        if host.ends_with(".invalid") {
            let reason = "not a public domain".to_owned();
            return Err(DnsError { host: host.to_owned(), reason });
        }
        self.lock().insert(host.to_owned());
        Ok(())
    }

    async fn withdraw(&self, host: &str) -> Result<(), DnsError> {
        self.lock().remove(host);
        Ok(())
    }
}
