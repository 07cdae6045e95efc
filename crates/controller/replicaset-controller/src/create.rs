//! Creation of pods. `pending_names.rs` of `kcm_expectations` describes when a pod is created at most once.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kcm_api::{ApiError, ObjectKey, Pod, ReplicaSet, Selector};
use kcm_clock::{Clock, Random, generate_name};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::{PodControl, PodManifest, slow_start_batch};
use kcm_events::EventType;
use kcm_expectations::{Attempts, GroupResource, NextStep, OwnWrites};
use kcm_informer::{Store, is_newer};
use parking_lot::Mutex;
use tracing::debug;

use crate::{ManageError, events::ReplicaSetEvents, performed::Performed};

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
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) pods: Store<Pod>,
    pub(crate) pod_control: Arc<dyn PodControl>,
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
    /// Version of the cached pods before the first request.
    cached_version: Option<String>,
}

/// Name of a pod to create.
struct PodName {
    key: ObjectKey,
    /// Requests of earlier syncs for this pod, if there are any. Its event may have been handled before the expectations
    /// of this sync were set.
    earlier: Option<Attempts>,
}

/// Pod that has the name of a pod to create.
enum Existing {
    /// The pod was created by a request of this controller, or is an orphan that the next sync adopts: a webhook may have
    /// removed its owner.
    Ours(Arc<Pod>),
    /// The pod has another owner, or is being deleted.
    NotOurs,
    /// The pod does not exist any more.
    Gone,
}

impl PodCreator {
    /// Creates `count` pods.
    ///
    /// Pods with pending names are among them. Their requests follow those for new names, so that a name that always fails
    /// does not stop the creation of other pods.
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
        let controller = owner.controller_reference();
        let (created, performed) = match PodManifest::from_template(&replica_set.spec.template, &controller) {
            Ok(manifest) => self.request_pods(replica_set, owner, manifest, count).await,
            Err(error) => {
                let error = Some(ManageError::Manifest(Arc::new(error)));
                (0, Performed { error, ..Performed::default() })
            }
        };
        // No watch event arrives for pods whose creation failed or was skipped.
        let skipped = count - created;
        if skipped > 0 {
            debug!(skipped, "Slow-start failure. Skipping creation of pods, decrementing expectations");
            self.own_writes.expectations.lower(&key, i64::try_from(skipped).unwrap_or(i64::MAX), 0);
        }
        performed
    }

    /// Requests pods by slow start, those with new names first. Returns the number of pods that exist.
    async fn request_pods(
        &self,
        replica_set: &ReplicaSet,
        owner: &OwnerIdentity,
        manifest: PodManifest,
        count: usize,
    ) -> (usize, Performed) {
        let now = self.clock.monotonic();
        let pending = self.own_writes.names.pending(&owner.key(), &owner.uid);
        let creation = Creation {
            replica_set,
            owner,
            manifest,
            names: Mutex::new(pending.iter().map(|(name, _)| Arc::clone(name)).collect()),
            has_pod: AtomicBool::new(false),
            cached_version: self.pods.last_sync_resource_version(),
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
                Some((name, attempts)) => PodName::new(owner, &name, Some(attempts)),
                None => self.generate_name(&creation),
            };
            self.create_pod(&creation, name)
        };
        let (created, failed) = slow_start_batch(requests, SLOW_START_INITIAL_BATCH_SIZE, create).await;
        let mut performed = Performed { error: failed, ..Performed::default() };
        if performed.error.is_none() {
            performed.error = waiting.first().map(still_pending);
            performed.retry_after = waiting.iter().map(|(_, attempts)| attempts.wait(now)).min();
        }
        performed.has_events = creation.has_pod.into_inner();
        (created.len(), performed)
    }

    /// Generates a name that this sync has not used and no cached pod has.
    fn generate_name(&self, Creation { owner, manifest, names, .. }: &Creation<'_>) -> PodName {
        let generate = || -> Arc<str> { generate_name(&*self.random, manifest.generate_name()).into() };
        let mut name = generate();
        for _ in 1..MAX_NAMES {
            let is_free = self.pods.get(&PodName::new(owner, &name, None).key).is_none();
            if is_free && names.lock().insert(Arc::clone(&name)) {
                break;
            }
            name = generate();
        }
        PodName::new(owner, &name, None)
    }

    async fn create_pod(&self, creation: &Creation<'_>, mut name: PodName) -> Result<(), ManageError> {
        match self.request_pod(creation, &mut name).await {
            Ok(pod) => {
                creation.has_pod.store(true, Ordering::Relaxed);
                let is_awaited = creation.is_owned(&pod) && creation.is_newer(&pod);
                let (owner, version) = (creation.owner, &pod.resource_version);
                self.own_writes.created(&owner.key(), &owner.uid, GroupResource::PODS, version, is_awaited);
                let message = format!("Created pod: {}", pod.key.name);
                self.events.record(creation.replica_set, EventType::Normal, "SuccessfulCreate", message);
                Ok(())
            }
            // No pod can be created in this namespace any more. The expectation is kept, so that the create is not
            // repeated until the namespace is deleted (US-5.4).
            Err(error) if error.is_namespace_terminating() => Ok(()),
            Err(error) => {
                let (pod, base) = (&name.key.name, creation.manifest.generate_name());
                debug!(pod = %name.key, err = error.to_string().replace(&**pod, base), "Failed to create pod");
                let error = without_suffix(error, pod, base);
                let message = format!("Error creating: {error}");
                self.events.record(creation.replica_set, EventType::Warning, "FailedCreate", message);
                Err(ManageError::Create(error))
            }
        }
    }

    /// Requests a pod until it exists or a request fails. Replaces `name` if it belongs to another pod.
    async fn request_pod(&self, creation: &Creation<'_>, name: &mut PodName) -> Result<Arc<Pod>, ApiError> {
        let Creation { owner, manifest, .. } = creation;
        let now = self.clock.monotonic();
        if name.earlier.as_ref().is_some_and(|attempts| attempts.next_step(now) == NextStep::LookUp) {
            let existing = self.existing_pod(&name.key, creation).await?;
            debug!(pod = %name.key, ?existing, "Looked up pod with a pending name");
            match existing {
                Existing::Ours(pod) => return Ok(self.created_before(owner, name, pod)),
                Existing::NotOurs | Existing::Gone => self.replace_name(creation, name),
            }
        }
        let mut requests = 1;
        loop {
            let names = &self.own_writes.names;
            let earlier = names.requested(&owner.key(), &owner.uid, &name.key.name, self.clock.monotonic());
            let error = match self.pod_control.create_pod(&name.key, manifest).await {
                Ok(pod) => {
                    names.remove(&owner.key(), &name.key.name);
                    return Ok(Arc::new(pod));
                }
                Err(error) => error,
            };
            if !error.is_already_exists() {
                self.failed(creation, name, earlier, &error);
                return Err(error);
            }
            let existing = self.existing_pod(&name.key, creation).await?;
            debug!(pod = %name.key, ?existing, "Pod already exists");
            match existing {
                Existing::Ours(pod) => return Ok(self.created_before(owner, name, pod)),
                Existing::NotOurs => self.replace_name(creation, name),
                // This request has not taken effect.
                Existing::Gone => self.failed(creation, name, earlier, &error),
            }
            if requests == MAX_NAMES {
                return Err(error);
            }
            requests += 1;
        }
    }

    /// Records that the pod of `name` was created by an earlier request.
    fn created_before(&self, owner: &OwnerIdentity, name: &PodName, pod: Arc<Pod>) -> Arc<Pod> {
        self.own_writes.names.remove(&owner.key(), &name.key.name);
        if name.earlier.is_some() {
            // If the event is still to come, it lowers the expectation again. This is harmless, because the next sync waits
            // for the version of this pod. An expectation that is not lowered would block the ReplicaSet until it expires.
            self.own_writes.expectations.creation_observed(&owner.key());
        }
        pod
    }

    /// Records that the last request for a name failed. A definite refusal has not taken effect and never will.
    fn failed(&self, creation: &Creation<'_>, name: &PodName, earlier: Option<Attempts>, error: &ApiError) {
        let is_taken = error.is_already_exists() && !error.may_have_taken_effect();
        let is_unresolved = !is_taken && !error.is_definite_refusal();
        let (name, base) = (&name.key.name, creation.manifest.generate_name());
        let unresolved = is_unresolved.then(|| without_suffix(error.clone(), name, base).to_string().into());
        let now = self.clock.monotonic();
        self.own_writes.names.failed(&creation.owner.key(), name, earlier, unresolved, now);
    }

    fn replace_name(&self, creation: &Creation<'_>, name: &mut PodName) {
        self.own_writes.names.remove(&creation.owner.key(), &name.key.name);
        *name = self.generate_name(creation);
    }

    /// Reads the pod that has the name of a pod to create, from the cache if possible.
    async fn existing_pod(&self, key: &ObjectKey, creation: &Creation<'_>) -> Result<Existing, ApiError> {
        let cached = self.pods.get(key);
        let pod = match cached {
            Some(pod) => Some(pod),
            None => self.pod_control.find_pod(key).await?.map(Arc::new),
        };
        let Some(pod) = pod else { return Ok(Existing::Gone) };
        let is_ours = creation.is_owned(&pod) && pod.deletion_timestamp.is_none();
        Ok(if is_ours { Existing::Ours(pod) } else { Existing::NotOurs })
    }
}

impl Creation<'_> {
    /// Returns `true` if the pod has this controller, or is an orphan that the next sync adopts.
    fn is_owned(&self, pod: &Pod) -> bool {
        match &pod.controller {
            Some(controller) => controller.uid == self.owner.uid,
            None => Selector::new(self.replica_set.spec.selector.as_ref())
                .is_ok_and(|selector| selector.matches(&pod.labels) && !pod.is_finished()),
        }
    }

    /// Returns `true` unless the pod has a version that the cache seems to contain. After a restore of etcd, that is the
    /// case until the cache has been listed again.
    fn is_newer(&self, pod: &Pod) -> bool {
        self.cached_version.as_ref().is_none_or(|cached| is_newer(&pod.resource_version, cached))
    }
}

impl PodName {
    fn new(owner: &OwnerIdentity, name: &Arc<str>, earlier: Option<Attempts>) -> Self {
        let key = ObjectKey { namespace: Arc::clone(&owner.namespace), name: Arc::clone(name) };
        Self { key, earlier }
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

/// Returns the last error of a pod that this sync does not request, because an earlier request may still be executed.
fn still_pending((name, attempts): &(Arc<str>, Attempts)) -> ManageError {
    let unknown = || ApiError::Timeout(format!("creation of pod {name}")).to_string().into();
    ManageError::Pending(attempts.error.clone().unwrap_or_else(unknown))
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
