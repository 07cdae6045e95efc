//! DNS provider. It is outside of the cluster, so a finalizer removes its records.

use std::{collections::BTreeSet, sync::Mutex};

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

/// Provider in memory. It rejects hosts below `.invalid`.
#[derive(Debug, Default)]
pub struct FakeDns {
    hosts: Mutex<BTreeSet<String>>,
}

impl FakeDns {
    /// Returns the hosts that have a record.
    pub fn hosts(&self) -> Vec<String> {
        self.hosts.lock().map(|hosts| hosts.iter().cloned().collect()).unwrap_or_default()
    }

    fn change(&self, host: &str, change: impl FnOnce(&mut BTreeSet<String>)) -> Result<(), DnsError> {
        let error = |reason: &str| DnsError { host: host.to_owned(), reason: reason.to_owned() };
        if host.ends_with(".invalid") {
            return Err(error("not a public domain"));
        }
        change(&mut *self.hosts.lock().map_err(|_| error("lock is poisoned"))?);
        Ok(())
    }
}

#[async_trait]
impl Dns for FakeDns {
    async fn publish(&self, host: &str) -> Result<(), DnsError> {
        self.change(host, |hosts| _ = hosts.insert(host.to_owned()))
    }

    async fn withdraw(&self, host: &str) -> Result<(), DnsError> {
        self.change(host, |hosts| _ = hosts.remove(host))
    }
}
