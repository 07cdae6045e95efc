//! Read-your-own-writes: checks that caches contain the writes of a controller.
//!
//! Upstream counterpart: `pkg/controller/util/consistency`, new in 1.36 (US-3.7).

use std::{fmt, sync::Arc};

use dashmap::{DashMap, Entry};
use kcm_meta::{ObjectKey, is_comparable, is_newer};
use thiserror::Error;

/// API group and resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupResource {
    /// Group. Empty for the core group.
    pub group: &'static str,
    /// Resource, such as `pods`.
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

/// Returns the latest resource version of a cache, or `None` if it is unknown.
pub type ReadVersion = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// A cache does not contain a write yet.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("read version: {read} is not as new as written version: {written} for group resource {resource}")]
pub struct NotReady {
    /// Cached resource.
    pub resource: GroupResource,
    /// Resource version of the cache.
    pub read: String,
    /// Resource version of the write.
    pub written: String,
}

/// Stores the resource versions of writes by owner, so that the next sync of the owner can wait until the caches contain
/// them.
///
/// A sync that reads a cache without its own writes would repeat them. Expectations cover creations and deletions of pods;
/// this store also covers adoptions and status updates.
pub struct ConsistencyStore {
    caches: Vec<(GroupResource, ReadVersion)>,
    records: DashMap<ObjectKey, Record>,
}

/// Writes for one owner.
#[derive(Debug)]
struct Record {
    owner_uid: Arc<str>,
    /// Latest version by resource. There are at most two resources.
    written: Vec<(GroupResource, String)>,
}

impl ConsistencyStore {
    /// Returns a store for the resources of `caches`. Writes of other resources are ignored.
    pub fn new(caches: impl IntoIterator<Item = (GroupResource, ReadVersion)>) -> Self {
        Self { caches: caches.into_iter().collect(), records: DashMap::new() }
    }

    /// Records the resource version that the API server returned for a write.
    ///
    /// Replaces the record of an earlier owner of the same name. Returns `false` if the write is ignored: its version is
    /// invalid, or the store has no cache of its resource.
    pub fn wrote_at(
        &self,
        owner: &ObjectKey,
        owner_uid: impl AsRef<str> + Into<Arc<str>>,
        resource: GroupResource,
        version: &str,
    ) -> bool {
        if !is_comparable(version) || !self.caches.iter().any(|(cached, _)| *cached == resource) {
            return false;
        }
        let fresh = |owner_uid| Record { owner_uid, written: Vec::new() };
        let mut entry = match self.records.entry(owner.clone()) {
            Entry::Occupied(mut entry) => {
                if *entry.get().owner_uid != *owner_uid.as_ref() {
                    entry.insert(fresh(owner_uid.into()));
                }
                entry.into_ref()
            }
            Entry::Vacant(entry) => entry.insert(fresh(owner_uid.into())),
        };
        match entry.written.iter_mut().find(|(known, _)| *known == resource) {
            Some((_, highest)) => {
                if is_newer(version, highest) {
                    version.clone_into(highest);
                }
            }
            None => entry.written.push((resource, version.to_owned())),
        }
        true
    }

    /// Checks that the caches contain all writes for `owner`, and removes their record.
    ///
    /// # Errors
    ///
    /// If a cache does not contain a write.
    pub fn ensure_ready(&self, owner: &ObjectKey) -> Result<(), NotReady> {
        // Compared and removed under one lock, so that no write that is recorded meanwhile is lost.
        let Entry::Occupied(entry) = self.records.entry(owner.clone()) else { return Ok(()) };
        if let Some(behind) = self.first_behind(entry.get()) {
            return Err(behind);
        }
        entry.remove();
        Ok(())
    }

    /// Returns the first cache that does not contain a write for `owner`. As [`ensure_ready`](Self::ensure_ready), without
    /// removing the record.
    pub fn not_ready(&self, owner: &ObjectKey) -> Option<NotReady> {
        self.records.get(owner).and_then(|record| self.first_behind(&record))
    }

    /// Returns `true` if the caches contain all writes.
    pub fn all_ready(&self) -> bool {
        self.records.iter().all(|record| self.first_behind(&record).is_none())
    }

    fn first_behind(&self, record: &Record) -> Option<NotReady> {
        record.written.iter().find_map(|(resource, written)| {
            let (_, read) = self.caches.iter().find(|(cached, _)| cached == resource)?;
            let read = read()?;
            is_newer(written, &read).then(|| NotReady { resource: *resource, read, written: written.clone() })
        })
    }

    /// Returns the owners with writes that no sync has found in the caches.
    pub fn owners(&self) -> Vec<ObjectKey> {
        self.records.iter().map(|record| record.key().clone()).collect()
    }

    /// Removes the record of `owner`. If `owner_uid` is given, only the record of that UID.
    pub fn clear(&self, owner: &ObjectKey, owner_uid: Option<&str>) {
        self.records.remove_if(owner, |_, record| owner_uid.is_none_or(|uid| *record.owner_uid == *uid));
    }

    /// Removes all records. Used when a cache is restored from a backup, because its version may never reach those of earlier
    /// writes.
    pub fn clear_all(&self) {
        self.records.clear();
    }
}

impl fmt::Debug for ConsistencyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsistencyStore").field("records", &self.records).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
