//! Lease in memory.

use async_trait::async_trait;
use kcm_api::{ApiError, Lease, ObjectKey, error::reason};
use parking_lot::Mutex;

use crate::LeaseLock;

/// Lease in memory, with the API server's rules for resource versions. For tests, examples, and elections among tasks
/// of one process.
///
/// ```
/// use kcm_api::{Lease, ObjectKey};
/// use kcm_leader_election::{LeaseLock, MemoryLock};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let lock = MemoryLock::new();
/// assert!(lock.get(&ObjectKey::new("default", "operator")).await.unwrap_err().is_not_found());
/// lock.create(&Lease::default()).await.unwrap();
/// lock.edit(|lease| lease.spec.holder_identity = Some("node-a".to_owned()));
/// assert_eq!(lock.lease().unwrap().holder(), Some("node-a"));
/// # });
/// ```
#[derive(Debug, Default)]
pub struct MemoryLock {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lease: Option<Lease>,
    version: u64,
}

impl MemoryLock {
    /// Creates a lock without a Lease.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the current Lease.
    pub fn lease(&self) -> Option<Lease> {
        self.state.lock().lease.clone()
    }

    /// Deletes the Lease.
    pub fn delete(&self) {
        self.state.lock().lease = None;
    }

    /// Sets the version of the Lease, as the restore of a backup does.
    #[cfg(test)]
    pub(crate) fn restore(&self, version: u64) {
        let mut state = self.state.lock();
        state.version = version;
        if let Some(lease) = &mut state.lease {
            lease.metadata.resource_version = version.to_string();
        }
    }

    /// Changes the Lease as another client would. Does nothing if it does not exist.
    pub fn edit(&self, change: impl FnOnce(&mut Lease)) {
        let mut state = self.state.lock();
        if let Some(mut lease) = state.lease.take() {
            change(&mut lease);
            state.store(lease);
        }
    }
}

impl State {
    fn store(&mut self, mut lease: Lease) -> Lease {
        self.version += 1;
        lease.metadata.resource_version = self.version.to_string();
        self.lease = Some(lease.clone());
        lease
    }
}

fn not_found(key: &ObjectKey) -> ApiError {
    let message = format!("leases.coordination.k8s.io \"{}\" not found", key.name);
    ApiError::status(404, reason::NOT_FOUND, message)
}

#[async_trait]
impl LeaseLock for MemoryLock {
    async fn get(&self, key: &ObjectKey) -> Result<Lease, ApiError> {
        self.lease().ok_or_else(|| not_found(key))
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, ApiError> {
        let mut state = self.state.lock();
        if state.lease.is_some() {
            let message = format!("leases.coordination.k8s.io \"{}\" already exists", lease.metadata.name);
            return Err(ApiError::status(409, reason::ALREADY_EXISTS, message));
        }
        Ok(state.store(lease.clone()))
    }

    async fn update(&self, lease: &Lease) -> Result<Lease, ApiError> {
        let mut state = self.state.lock();
        let Some(stored) = &state.lease else { return Err(not_found(&lease.metadata.key())) };
        if stored.metadata.resource_version != lease.metadata.resource_version {
            let message = format!(
                "Operation cannot be fulfilled on leases.coordination.k8s.io \"{}\": the object has been modified; \
                 please apply your changes to the latest version and try again",
                lease.metadata.name
            );
            return Err(ApiError::status(409, reason::CONFLICT, message));
        }
        // As in an API server, a write without a change keeps the resource version.
        if stored == lease {
            return Ok(lease.clone());
        }
        Ok(state.store(lease.clone()))
    }
}
