//! Creation of pods. `pending_creates.rs` describes when a pod is created at most once.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kcm_api::{ApiError, ObjectKey, Pod, ReplicaSet};
use kcm_clock::{Random, generate_name};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::{PodControl, PodManifest, slow_start_batch};
use kcm_events::EventType;
use kcm_informer::Store;
use parking_lot::Mutex;
use tracing::debug;

use crate::{
    ManageError, events::ReplicaSetEvents, execute::Performed, own_writes::OwnWrites,
    pending_creates::PendingCreates,
};

/// Size of the first batch of creates. Each following batch is twice as large.
///
/// Upstream counterpart: `SlowStartInitialBatchSize`.
const SLOW_START_INITIAL_BATCH_SIZE: usize = 1;

/// Maximum number of names that are generated, and of requests that are sent, for one pod in one sync.
///
/// Upstream counterpart: the number of names that the API server generates for one request.
const MAX_NAMES: usize = 8;

/// Creates pods.
pub(crate) struct PodCreator {
    pub(crate) random: Arc<dyn Random>,
    pub(crate) pods: Store<Pod>,
    pub(crate) pod_control: Arc<dyn PodControl>,
    pub(crate) pending_creates: PendingCreates,
    pub(crate) own_writes: Arc<OwnWrites>,
    pub(crate) events: Arc<ReplicaSetEvents>,
}

/// Pods that one sync creates.
struct Creation<'a> {
    replica_set: &'a ReplicaSet,
    owner: &'a OwnerIdentity,
    manifest: PodManifest,
    /// Names that were pending before, and names that this sync has generated. The cache may not contain their pods.
    names: Mutex<HashSet<Arc<str>>>,
    /// `true` if the API server has returned one of the pods.
    has_pod: AtomicBool,
}

/// Name of a pod to create.
struct PodName {
    key: ObjectKey,
    /// `true` if an earlier sync has requested this pod: its event may have been handled before the expectations of
    /// this sync were set.
    requested_before: bool,
}

/// Pod that has the name of a pod to create.
enum Existing {
    /// The pod was created by a request of this controller.
    Ours(Arc<Pod>),
    /// The pod has another owner, or is being deleted.
    NotOurs,
    /// The pod does not exist any more.
    Gone,
}

impl PodCreator {
    /// Creates `count` pods.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the names of requests without a response stay pending.
    pub(crate) async fn create_pods(
        &self,
        replica_set: &ReplicaSet,
        owner: &OwnerIdentity,
        count: usize,
    ) -> Performed {
        let key = owner.key();
        // Set before the first request, because the watch event may precede the response.
        self.own_writes.expectations.expect_creations(&key, count);
        let mut has_events = false;
        let (created, error) =
            match PodManifest::from_template(&replica_set.spec.template, &owner.controller_reference()) {
                Ok(manifest) => {
                    let pending = self.pending_creates.names(owner);
                    let names = Mutex::new(pending.iter().cloned().collect());
                    let has_pod = AtomicBool::new(false);
                    let creation = Creation { replica_set, owner, manifest, names, has_pod };
                    let mut pending = pending.into_iter();
                    let create = || {
                        let name = match pending.next() {
                            Some(name) => PodName::new(owner, &name, true),
                            None => self.generate_name(&creation),
                        };
                        self.create_pod(&creation, name)
                    };
                    let result = slow_start_batch(count, SLOW_START_INITIAL_BATCH_SIZE, create).await;
                    has_events = creation.has_pod.into_inner();
                    result
                }
                Err(error) => (0, Some(ManageError::Manifest(Arc::new(error)))),
            };
        // No watch event arrives for pods whose creation failed or was skipped.
        let skipped = count - created;
        if skipped > 0 {
            debug!(skipped, "Slow-start failure. Skipping creation of pods, decrementing expectations");
            self.own_writes.expectations.lower(&key, i64::try_from(skipped).unwrap_or(i64::MAX), 0);
        }
        Performed { error, has_events }
    }

    /// Generates a name that this sync has not used and no cached pod has, and marks it as pending.
    fn generate_name(&self, Creation { owner, manifest, names, .. }: &Creation<'_>) -> PodName {
        let generate = || -> Arc<str> { generate_name(&*self.random, manifest.generate_name()).into() };
        let mut name = generate();
        for _ in 1..MAX_NAMES {
            let is_free = self.pods.get(&PodName::new(owner, &name, false).key).is_none();
            if is_free && names.lock().insert(Arc::clone(&name)) {
                break;
            }
            name = generate();
        }
        self.pending_creates.insert(owner, &name);
        PodName::new(owner, &name, false)
    }

    async fn create_pod(&self, creation: &Creation<'_>, name: PodName) -> Result<(), ManageError> {
        match self.request_pod(creation, name).await {
            Ok(pod) => {
                creation.has_pod.store(true, Ordering::Relaxed);
                self.own_writes.pod_written(creation.owner, &pod);
                self.own_writes.expectations.creation_answered(&creation.owner.key());
                let message = format!("Created pod: {}", pod.key.name);
                self.events.record(creation.replica_set, EventType::Normal, "SuccessfulCreate", message);
                Ok(())
            }
            // No pod can be created in this namespace any more. The expectation is kept, so that the create is not
            // repeated until the namespace is deleted (US-5.4).
            Err(error) if error.is_namespace_terminating() => Ok(()),
            Err(error) => {
                let message = format!("Error creating: {error}");
                self.events.record(creation.replica_set, EventType::Warning, "FailedCreate", message);
                Err(ManageError::Create(error))
            }
        }
    }

    /// Requests a pod until it exists or a request fails. Uses another name if the name belongs to another pod.
    async fn request_pod(&self, creation: &Creation<'_>, mut name: PodName) -> Result<Arc<Pod>, ApiError> {
        let Creation { owner, manifest, .. } = creation;
        let mut requests = 1;
        loop {
            let error = match self.pod_control.create_pod(&name.key, manifest).await {
                Ok(pod) => {
                    self.pending_creates.remove(owner, &name.key.name);
                    return Ok(Arc::new(pod));
                }
                Err(error) if error.is_already_exists() => error,
                Err(error) => return Err(without_suffix(error, &name.key.name, manifest.generate_name())),
            };
            let existing = self.existing_pod(&name.key, owner).await?;
            debug!(pod = %name.key, ?existing, "Pod already exists");
            match existing {
                Existing::Ours(pod) => {
                    self.pending_creates.remove(owner, &name.key.name);
                    if name.requested_before {
                        // If the event is still to come, it lowers the expectation again. This is harmless, because the
                        // next sync waits for the version of this pod. An expectation that is not lowered would block
                        // the ReplicaSet until it expires.
                        self.own_writes.expectations.creation_observed(&owner.key());
                    }
                    return Ok(pod);
                }
                Existing::NotOurs if requests < MAX_NAMES => {
                    self.pending_creates.remove(owner, &name.key.name);
                    name = self.generate_name(creation);
                }
                Existing::Gone if requests < MAX_NAMES => {}
                Existing::NotOurs | Existing::Gone => return Err(error),
            }
            requests += 1;
        }
    }

    /// Reads the pod that has the name of a pod to create, from the cache if possible.
    async fn existing_pod(&self, key: &ObjectKey, owner: &OwnerIdentity) -> Result<Existing, ApiError> {
        let cached = self.pods.get(key);
        let pod = match cached {
            Some(pod) => Some(pod),
            None => self.pod_control.find_pod(key).await?.map(Arc::new),
        };
        let Some(pod) = pod else { return Ok(Existing::Gone) };
        let is_owned = pod.controller.as_ref().is_some_and(|controller| controller.uid == owner.uid);
        Ok(if is_owned && pod.deletion_timestamp.is_none() { Existing::Ours(pod) } else { Existing::NotOurs })
    }
}

impl PodName {
    fn new(owner: &OwnerIdentity, name: &Arc<str>, requested_before: bool) -> Self {
        let key = ObjectKey { namespace: Arc::clone(&owner.namespace), name: Arc::clone(name) };
        Self { key, requested_before }
    }
}

impl std::fmt::Debug for Existing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ours(_) => "ours",
            Self::NotOurs => "not ours",
            Self::Gone => "gone",
        })
    }
}

/// Replaces the name of the pod in the message of a rejected request by the `generateName` prefix.
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

#[cfg(test)]
mod tests;
