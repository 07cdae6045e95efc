//! Reading one's own writes.
//!
//! Upstream counterpart: `pkg/controller/util/consistency`, new in 1.36 (US-3.7).

use std::{cmp::Ordering, fmt, sync::Arc};

use dashmap::{DashMap, Entry};
use kcm_api::ObjectKey;
use thiserror::Error;

/// A kind of object, as the API's paths name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupResource {
    /// The group; empty for the core group.
    pub group: &'static str,
    /// The resource.
    pub resource: &'static str,
}

impl GroupResource {
    /// Pods.
    pub const PODS: Self = Self { group: "", resource: "pods" };
    /// ReplicaSets.
    pub const REPLICA_SETS: Self = Self { group: "apps", resource: "replicasets" };
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// The newest version that a cache has seen, or none while it cannot say.
pub type ReadVersion = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// A cache that is behind.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("read version: {read} is not as new as written version: {written} for group resource {resource}")]
pub struct NotReady {
    /// What is cached.
    pub resource: GroupResource,
    /// How far the cache is.
    pub read: String,
    /// How far it has to be.
    pub written: String,
}

/// Remembers, by owner, the versions that writes were answered with, so that the next sync of that owner can
/// wait until the caches have them.
///
/// Without it a controller that acts on a cache from before its own write does the same work twice.
/// Expectations guard creates and deletes of pods only; this guards adoptions and status writes too.
pub struct ConsistencyStore {
    caches: Vec<(GroupResource, ReadVersion)>,
    records: DashMap<ObjectKey, Record>,
}

/// What was written for one owner.
#[derive(Debug)]
struct Record {
    owner_uid: Arc<str>,
    /// The highest version by resource. There are two of them at most.
    written: Vec<(GroupResource, String)>,
}

impl ConsistencyStore {
    /// A store that holds writes against `caches`. Writes to resources that are not among them are forgotten.
    pub fn new(caches: impl IntoIterator<Item = (GroupResource, ReadVersion)>) -> Self {
        Self { caches: caches.into_iter().collect(), records: DashMap::new() }
    }

    /// A store that remembers nothing and is always ready.
    pub fn disabled() -> Self {
        Self::new([])
    }

    /// Returns `true` unless the store remembers nothing.
    pub fn is_enabled(&self) -> bool {
        !self.caches.is_empty()
    }

    /// Notes that a write on behalf of the owner was answered with `version`.
    ///
    /// A record of an earlier owner of that name is dropped. What is no version is ignored.
    pub fn wrote_at(&self, owner: &ObjectKey, owner_uid: &Arc<str>, resource: GroupResource, version: &str) {
        if !is_version(version) || !self.caches.iter().any(|(cached, _)| *cached == resource) {
            return;
        }
        let fresh = || Record { owner_uid: Arc::clone(owner_uid), written: Vec::new() };
        let mut entry = match self.records.entry(owner.clone()) {
            Entry::Occupied(mut entry) => {
                if entry.get().owner_uid != *owner_uid {
                    entry.insert(fresh());
                }
                entry.into_ref()
            }
            Entry::Vacant(entry) => entry.insert(fresh()),
        };
        match entry.written.iter_mut().find(|(known, _)| *known == resource) {
            Some((_, highest)) => {
                if compare_versions(highest, version) == Some(Ordering::Less) {
                    version.clone_into(highest);
                }
            }
            None => entry.written.push((resource, version.to_owned())),
        }
    }

    /// Whether the caches have seen all that was written for `owner`. If so, what was written is forgotten.
    ///
    /// # Errors
    ///
    /// The first cache that is behind.
    pub fn ensure_ready(&self, owner: &ObjectKey) -> Result<(), NotReady> {
        // Looked at and removed under one lock: a write noted in between must not be lost.
        let Entry::Occupied(entry) = self.records.entry(owner.clone()) else { return Ok(()) };
        for (resource, written) in &entry.get().written {
            let read = self.caches.iter().find(|(cached, _)| cached == resource).and_then(|(_, read)| read());
            let Some(read) = read else { continue };
            if compare_versions(&read, written) == Some(Ordering::Less) {
                return Err(NotReady { resource: *resource, read, written: written.clone() });
            }
        }
        entry.remove();
        Ok(())
    }

    /// Forgets what was written for `owner`; with `owner_uid`, only if that owner wrote it.
    pub fn clear(&self, owner: &ObjectKey, owner_uid: Option<&str>) {
        self.records.remove_if(owner, |_, record| owner_uid.is_none_or(|uid| *record.owner_uid == *uid));
    }
}

impl fmt::Debug for ConsistencyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsistencyStore").field("records", &self.records).finish_non_exhaustive()
    }
}

/// Which of two versions is older; none where either is not a decimal number without leading zeros.
///
/// Upstream counterpart: `resourceversion.CompareResourceVersion`.
pub fn compare_versions(a: &str, b: &str) -> Option<Ordering> {
    (is_version(a) && is_version(b)).then(|| a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
}

fn is_version(text: &str) -> bool {
    !text.starts_with('0') && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests;
