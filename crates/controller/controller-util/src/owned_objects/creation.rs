//! Creation of owned objects. `pending_names.rs` of `kcm_expectations` describes when an object is created at most once.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kcm_api::{ApiError, ObjectKey};
use kcm_clock::generate_name;
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_expectations::{Attempts, NextStep};
use kcm_informer::{Object, is_newer};
use parking_lot::Mutex;
use thiserror::Error;
use tracing::debug;

use crate::{OwnedObjects, slow_start_batch};

/// Size of the first batch of creates. Each following batch is twice as large.
///
/// Upstream counterpart: `SlowStartInitialBatchSize`.
const SLOW_START_INITIAL_BATCH_SIZE: usize = 1;

/// Maximum number of names that are generated, and of requests that are sent, for one object in one sync.
///
/// Upstream counterpart: the number of names that the API server generates for one request.
const MAX_NAMES: usize = 8;

/// Requests and events of the objects that a sync creates.
pub trait Creation<K>: Send + Sync {
    /// Prefix of generated names, such as the name of the owner and a hyphen.
    fn generate_name(&self) -> &str;

    /// Requests the creation of the object `key`. A dropped or failed request may have taken effect.
    fn create(&self, key: &ObjectKey) -> impl Future<Output = Result<K, ApiError>> + Send;

    /// Reads an object from the API server, without a cache. Returns `None` if it does not exist.
    fn find(&self, key: &ObjectKey) -> impl Future<Output = Result<Option<K>, ApiError>> + Send;

    /// Returns `true` if the next sync adopts `orphan`: admission may have removed the owner reference of a created object.
    fn adopts(&self, orphan: &K) -> bool {
        let _ = orphan;
        false
    }

    /// Handles an object that exists now, such as by an event.
    fn created(&self, object: &K) {
        let _ = object;
    }

    /// Handles the failure of a creation, such as by an event. In messages of refusals, the generated suffix of the name is missing, so that all
    /// of them are equal, as those for `generateName`.
    fn failed(&self, key: &ObjectKey, error: &ApiError) {
        let _ = (key, error);
    }
}

/// Result of creations.
#[derive(Debug, Default)]
pub struct Created {
    /// First error.
    pub error: Option<CreateError>,
    /// `true` if the API server has returned one of the objects.
    pub has_objects: bool,
    /// Time after which the sync can make progress, if the error is that of an earlier request.
    pub retry_after: Option<Duration>,
}

/// Error of a creation.
#[derive(Debug, Clone, Error)]
pub enum CreateError {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// An earlier request failed, and may still be executed.
    #[error("{0}")]
    Pending(Arc<str>),
}

/// Objects that one sync creates.
struct Batch<'a, K, C> {
    objects: &'a OwnedObjects<K>,
    owner: &'a OwnerIdentity,
    /// Key of the owner.
    key: ObjectKey,
    creation: &'a C,
    /// Names that were pending before, and names that this sync has generated. The cache may not contain their objects.
    names: Mutex<HashSet<Arc<str>>>,
    /// `true` if the API server has returned one of the objects.
    has_objects: AtomicBool,
    /// Version of the cache before the first request.
    cached_version: Option<String>,
}

/// Name of an object to create.
struct Name {
    key: ObjectKey,
    /// Requests of earlier syncs for this object, if there are any. Its event may have been handled before the expectations
    /// of this sync were set.
    earlier: Option<Attempts>,
}

/// Object that has the name of an object to create.
enum Existing<K> {
    /// The object was created by a request of this controller, or is an orphan that the next sync adopts.
    Ours(Arc<K>),
    /// The object has another owner, or is being deleted.
    NotOurs,
    /// The object does not exist any more.
    Gone,
}

impl<K: Object> OwnedObjects<K> {
    /// Creates `count` objects by slow start.
    ///
    /// Objects with pending names are among them. Their requests follow those for new names, so that a name that always fails
    /// does not stop the creation of other objects.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the names of requests without a response stay pending.
    pub async fn create(&self, owner: &OwnerIdentity, count: usize, creation: &impl Creation<K>) -> Created {
        let key = owner.key();
        // Set before the first request, because the watch event may precede the response.
        self.own_writes.expect_creations(&key, &owner.uid, count);
        let now = self.clock.monotonic();
        let pending = self.own_writes.names.pending(&key, &owner.uid);
        let batch = Batch {
            objects: self,
            owner,
            key: key.clone(),
            creation,
            names: Mutex::new(pending.iter().map(|(name, _)| Arc::clone(name)).collect()),
            has_objects: AtomicBool::new(false),
            cached_version: self.cache.last_sync_resource_version(),
        };
        let (mut waiting, mut repeated): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|(_, attempts)| attempts.next_step(now) == NextStep::Wait);
        waiting.truncate(count);
        repeated.truncate(count - waiting.len());
        let requests = count - waiting.len();
        let new = std::iter::repeat_n(None, requests - repeated.len());
        let mut names = new.chain(repeated.into_iter().map(Some));
        let create = || {
            let name = match names.next().flatten() {
                Some((name, attempts)) => Name::new(owner, &name, Some(attempts)),
                None => batch.generate_name(),
            };
            batch.create_one(name)
        };
        let (created, failed) = slow_start_batch(requests, SLOW_START_INITIAL_BATCH_SIZE, create).await;
        // No watch event arrives for objects whose creation failed or was skipped.
        let skipped = count - created.len();
        if skipped > 0 {
            let resource = self.resource;
            debug!(skipped, "Slow-start failure. Skipping creation of {resource}, decrementing expectations");
            self.own_writes.expectations.lower(&key, i64::try_from(skipped).unwrap_or(i64::MAX), 0);
        }
        let has_objects = batch.has_objects.into_inner();
        match failed {
            Some(error) => Created { error: Some(error.into()), has_objects, retry_after: None },
            None => Created {
                error: waiting.first().map(still_pending),
                has_objects,
                retry_after: waiting.iter().map(|(_, attempts)| attempts.wait(now)).min(),
            },
        }
    }
}

impl<K: Object, C: Creation<K>> Batch<'_, K, C> {
    /// Generates a name that this sync has not used and no cached object has.
    fn generate_name(&self) -> Name {
        let generate =
            || -> Arc<str> { generate_name(&*self.objects.random, self.creation.generate_name()).into() };
        let mut name = generate();
        for _ in 1..MAX_NAMES {
            let is_free = self.objects.cache.get(&Name::new(self.owner, &name, None).key).is_none();
            if is_free && self.names.lock().insert(Arc::clone(&name)) {
                break;
            }
            name = generate();
        }
        Name::new(self.owner, &name, None)
    }

    async fn create_one(&self, mut name: Name) -> Result<(), ApiError> {
        match self.request(&mut name).await {
            Ok(object) => {
                self.has_objects.store(true, Ordering::Relaxed);
                let version = object.resource_version_str();
                let is_awaited = self.is_owned(&object) && self.is_newer(version);
                let OwnedObjects { own_writes, resource, .. } = self.objects;
                own_writes.created(&self.key, &self.owner.uid, *resource, version, is_awaited);
                self.creation.created(&object);
                Ok(())
            }
            // No object can be created in this namespace any more. The expectation is kept, so that the create is not
            // repeated until the namespace is deleted (US-5.4).
            Err(error) if error.is_namespace_terminating() => Ok(()),
            Err(error) => {
                let error = without_suffix(error, &name.key.name, self.creation.generate_name());
                self.creation.failed(&name.key, &error);
                Err(error)
            }
        }
    }

    /// Requests an object until it exists or a request fails. Replaces `name` if it belongs to another object.
    async fn request(&self, name: &mut Name) -> Result<Arc<K>, ApiError> {
        let OwnedObjects { clock, own_writes, .. } = self.objects;
        let now = clock.monotonic();
        if name.earlier.as_ref().is_some_and(|attempts| attempts.next_step(now) == NextStep::LookUp) {
            let existing = self.existing(&name.key).await?;
            debug!(object = %name.key, ?existing, "Looked up object with a pending name");
            match existing {
                Existing::Ours(object) => return Ok(self.created_before(name, object)),
                Existing::NotOurs | Existing::Gone => self.replace_name(name),
            }
        }
        let mut requests = 1;
        loop {
            let names = &own_writes.names;
            let earlier = names.requested(&self.key, &self.owner.uid, &name.key.name, clock.monotonic());
            let error = match self.creation.create(&name.key).await {
                Ok(object) => {
                    names.remove(&self.key, &name.key.name);
                    return Ok(Arc::new(object));
                }
                Err(error) => error,
            };
            if !error.is_already_exists() {
                self.failed(name, earlier, &error);
                return Err(error);
            }
            let existing = self.existing(&name.key).await?;
            debug!(object = %name.key, ?existing, "Object already exists");
            match existing {
                Existing::Ours(object) => return Ok(self.created_before(name, object)),
                Existing::NotOurs => self.replace_name(name),
                // This request has not taken effect.
                Existing::Gone => self.failed(name, earlier, &error),
            }
            if requests == MAX_NAMES {
                return Err(error);
            }
            requests += 1;
        }
    }

    /// Records that the object of `name` was created by an earlier request.
    fn created_before(&self, name: &Name, object: Arc<K>) -> Arc<K> {
        let own_writes = &self.objects.own_writes;
        own_writes.names.remove(&self.key, &name.key.name);
        if name.earlier.is_some() {
            // If the event is still to come, it lowers the expectation again. This is harmless, because the next sync waits
            // for the version of this object. An expectation that is not lowered would block the owner until it expires.
            own_writes.expectations.creation_observed(&self.key);
        }
        object
    }

    /// Records that the last request for a name failed. A definite refusal has not taken effect and never will.
    fn failed(&self, name: &Name, earlier: Option<Attempts>, error: &ApiError) {
        let is_taken = error.is_already_exists() && !error.may_have_taken_effect();
        let is_unresolved = !is_taken && !error.is_definite_refusal();
        let (name, base) = (&name.key.name, self.creation.generate_name());
        let unresolved = is_unresolved.then(|| without_suffix(error.clone(), name, base).to_string().into());
        let now = self.objects.clock.monotonic();
        self.objects.own_writes.names.failed(&self.key, name, earlier, unresolved, now);
    }

    fn replace_name(&self, name: &mut Name) {
        self.objects.own_writes.names.remove(&self.key, &name.key.name);
        *name = self.generate_name();
    }

    /// Reads the object that has the name of an object to create, from the cache if possible.
    async fn existing(&self, key: &ObjectKey) -> Result<Existing<K>, ApiError> {
        let object = match self.objects.cache.get(key) {
            Some(object) => Some(object),
            None => self.creation.find(key).await?.map(Arc::new),
        };
        let Some(object) = object else { return Ok(Existing::Gone) };
        let is_ours = self.is_owned(&object) && !object.is_being_deleted();
        Ok(if is_ours { Existing::Ours(object) } else { Existing::NotOurs })
    }

    /// Returns `true` if the object has this controller, or is an orphan that the next sync adopts.
    fn is_owned(&self, object: &K) -> bool {
        match object.controller() {
            Some(controller) => *controller.uid == *self.owner.uid,
            None => self.creation.adopts(object),
        }
    }

    /// Returns `true` unless the cache seems to contain the version. After a restore of etcd, that is the case until the cache
    /// has been listed again.
    fn is_newer(&self, version: &str) -> bool {
        self.cached_version.as_ref().is_none_or(|cached| is_newer(version, cached))
    }
}

impl Name {
    fn new(owner: &OwnerIdentity, name: &Arc<str>, earlier: Option<Attempts>) -> Self {
        let key = ObjectKey { namespace: Arc::clone(&owner.namespace), name: Arc::clone(name) };
        Self { key, earlier }
    }
}

impl<K> fmt::Debug for Existing<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours(_) => "ours",
            Self::NotOurs => "not ours",
            Self::Gone => "gone",
        })
    }
}

/// Returns the last error of an object that this sync does not request, because an earlier request may still be executed.
fn still_pending((name, attempts): &(Arc<str>, Attempts)) -> CreateError {
    let unknown = || ApiError::Timeout(format!("creation of {name}")).to_string().into();
    CreateError::Pending(attempts.error.clone().unwrap_or_else(unknown))
}

/// Replaces the name of the object in the message of a rejected request by the `generateName` prefix.
///
/// Upstream's requests contain only the prefix, and so do messages of admission. Without the random suffix, the events
/// of all rejected requests are equal and are aggregated.
fn without_suffix(error: ApiError, name: &str, base: &str) -> ApiError {
    match error {
        ApiError::Status(mut status) if status.code == 403 => {
            status.message = status.message.replace(name, base);
            ApiError::Status(status)
        }
        other => other,
    }
}
