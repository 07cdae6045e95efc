//! Performs the plan, with `kcm`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kcm::{
    api::{LabelSelector, Selector},
    client::{OwnerClient, Preconditions},
    clock::generate_name,
    expectations::{DeletedObject, GroupResource, NotReady},
    owners::{ClaimErrors, OwnerIdentity, claim},
    prelude::*,
    runtime::owner_of,
    workload::{
        index::{orphan_pods, pods_of},
        slow_start_batch,
    },
};
use serde_json::json;
use thiserror::Error;

use crate::{
    plan::{FINALIZER, Operation, Reservation, View, is_cordoned, plan, pod, selects},
    pool::{PodPool, PodPoolStatus},
    reservations::{ReservationError, Reservations},
};

/// Name of the operator.
pub const NAME: &str = "pod-pool";

/// Index of pods by node.
pub const NODE: IndexName = IndexName("node");

/// Error of a reconciliation.
#[derive(Debug, Error)]
pub enum Error {
    /// The cache does not contain the pods that were created before.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// A request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A pod was not adopted or released.
    #[error(transparent)]
    Claim(#[from] ClaimErrors),
    /// The external system failed.
    #[error(transparent)]
    Reservation(#[from] ReservationError),
}

/// Caches of all types.
#[derive(Debug, Clone)]
pub struct Caches {
    /// Pools.
    pub pools: Store<PodPool>,
    /// Pods, with [`pod_indexers`](kcm::workload::pod_indexers) and [`NODE`].
    pub pods: Store<Pod>,
    /// Nodes.
    pub nodes: Store<Node>,
}

impl Caches {
    /// Returns the pools that may adopt an orphan.
    pub fn adopters(&self, pod: &Pod) -> Vec<ObjectKey> {
        self.pools.list().iter().filter(|pool| selects(pool, pod)).map(|pool| pool.key()).collect()
    }

    /// Returns the pools with pods on a node.
    pub fn pools_on(&self, node: &Node) -> Vec<ObjectKey> {
        let pods = self.pods.by_index(NODE, &node.key().name);
        pods.iter().filter_map(|pod| Some(owner_of(&self.pools, &**pod)?.key())).collect()
    }
}

/// Reconciles pools.
pub struct PodPools<R> {
    /// Caches.
    pub caches: Caches,
    /// Creations and deletions that the caches may not contain.
    pub own_writes: Arc<OwnWrites>,
    /// External system.
    pub reservations: R,
    /// Last reservations, by UID.
    pub reserved: Mutex<HashMap<String, Reservation>>,
    /// Client for writes.
    pub client: ApiClient,
    /// Recorder of events.
    pub recorder: Arc<dyn EventRecorder>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Source of the names of pods.
    pub random: Arc<dyn Random>,
}

impl<R: Reservations> Reconciler for PodPools<R> {
    type Error = Error;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
        let is_current = self.own_writes.begin(key, |pod| self.caches.pods.get(pod).is_some())?;
        let Some(pool) = self.caches.pools.get(key) else {
            self.own_writes.forget(key);
            return Ok(Requeue::Done);
        };
        let pods = self.claim(&pool).await?;
        let nodes = self.caches.nodes.list();
        let cordoned = nodes.iter().filter(|node| is_cordoned(node)).map(|node| node.key().name.to_string());
        let view = View {
            pool: &pool,
            pods: &pods,
            cordoned: &cordoned.collect(),
            reservation: self.reserved().get(pool.uid_str()).copied(),
            is_current,
        };
        let plan = plan(&view, self.clock.now());
        for operation in plan.operations {
            self.perform(key, &pool, operation).await?;
        }
        // The events of own writes may never arrive.
        let again = plan.again.or_else(|| self.own_writes.expectations.expires_in(key));
        Ok(again.map_or(Requeue::Done, Requeue::After))
    }

    fn classify(error: &Error) -> ErrorClass {
        match error {
            Error::NotReady(_) => ErrorClass::StaleCache,
            Error::Api(error) if error.is_conflict() => ErrorClass::StaleCache,
            Error::Api(error) if error.is_not_found() => ErrorClass::ObjectDeleted,
            _ => ErrorClass::Failed,
        }
    }
}

impl<R: Reservations> PodPools<R> {
    /// Returns the pods of the pool. Adopts and releases pods by their labels.
    async fn claim(&self, pool: &PodPool) -> Result<Vec<Arc<Pod>>, Error> {
        let labels = LabelSelector { match_labels: pool.spec.selector.clone(), ..LabelSelector::default() };
        let Ok(selector) = Selector::new(Some(&labels)) else { return Ok(Vec::new()) };
        let owner = OwnerIdentity::of(pool);
        let pods: Vec<_> = {
            let cache = self.caches.pods.read();
            pods_of(&cache, &owner).chain(orphan_pods(&cache, &owner.namespace)).cloned().collect()
        };
        Ok(claim(&owner, &selector, pods, &OwnerClient::new(&self.client, pool)).await.into_result()?)
    }

    async fn perform(&self, key: &ObjectKey, pool: &PodPool, operation: Operation) -> Result<(), Error> {
        match operation {
            Operation::AddFinalizer => self.set_finalizer(key, pool, true).await,
            Operation::RemoveFinalizer => self.set_finalizer(key, pool, false).await,
            Operation::WriteStatus(status) => self.write_status(key, &status).await,
            Operation::CreatePods(count) => self.create_pods(key, pool, count).await,
            Operation::DeletePods(pods) => self.delete_pods(key, pool, &pods).await,
            Operation::Reserve(seats) => {
                self.reservations.reserve(pool.uid_str(), seats).await?;
                let reservation = Reservation { seats, at: self.clock.now() };
                let old = self.reserved().insert(pool.uid_str().to_owned(), reservation);
                if old.is_none_or(|old| old.seats != seats) {
                    self.event(pool, EventType::Normal, "Reserved", format!("Reserved {seats} seats"));
                }
                Ok(())
            }
            Operation::Release => {
                self.reservations.release(pool.uid_str()).await?;
                self.reserved().remove(pool.uid_str());
                Ok(())
            }
        }
    }

    /// Creates `count` pods. The names of earlier requests without a known result are repeated first, so that no pod is created
    /// twice.
    async fn create_pods(&self, key: &ObjectKey, pool: &PodPool, count: usize) -> Result<(), Error> {
        let uid: Arc<str> = pool.uid_str().into();
        let base = format!("{}-", key.name);
        let pending = self.own_writes.names.pending(key, &uid).into_iter().map(|(name, _)| name);
        let new = std::iter::repeat_with(|| generate_name(&*self.random, &base).into());
        let mut names = pending.chain(new).take(count);
        self.own_writes.expectations.expect_creations(key, count);
        let create = || self.create_pod(key, &uid, pool, names.next());
        let (created, error) = slow_start_batch(count, 1, create).await;
        let created = created.len();
        let failed = i64::try_from(count - created).unwrap_or(i64::MAX);
        self.own_writes.expectations.lower(key, failed, 0);
        if created > 0 {
            self.event(pool, EventType::Normal, "SuccessfulCreate", format!("Created {created} pods"));
        }
        match error {
            None => Ok(()),
            Some(error) => {
                self.event(pool, EventType::Warning, "FailedCreate", format!("Error creating: {error}"));
                Err(error.into())
            }
        }
    }

    async fn create_pod(
        &self,
        key: &ObjectKey,
        uid: &Arc<str>,
        pool: &PodPool,
        name: Option<Arc<str>>,
    ) -> Result<(), ApiError> {
        let Some(name) = name else { return Ok(()) };
        let OwnWrites { names, .. } = &*self.own_writes;
        let pods = self.client.api::<Pod>();
        let mut pod = pod(pool);
        pod.metadata.name = Some(name.to_string());
        let earlier = names.requested(key, uid, &name, self.clock.monotonic());
        let created = match pods.create(&pod).await {
            // An earlier request has created it.
            Err(error) if error.is_already_exists() => {
                pods.get(&ObjectKey { namespace: key.namespace.clone(), name: name.clone() }).await
            }
            created => created,
        };
        match created {
            Ok(pod) => {
                names.remove(key, &name);
                self.own_writes.created(key, uid, GroupResource::PODS, pod.resource_version_str(), true);
                Ok(())
            }
            Err(error) => {
                let unresolved = (!error.is_definite_refusal()).then(|| error.to_string().into());
                names.failed(key, &name, earlier, unresolved, self.clock.monotonic());
                Err(error)
            }
        }
    }

    async fn delete_pods(&self, key: &ObjectKey, pool: &PodPool, pods: &[Arc<Pod>]) -> Result<(), Error> {
        let deletions = pods.iter().map(|pod| DeletedObject::of(&**pod));
        self.own_writes.expect_deletions(key, deletions, |pod, uid| self.caches.pods.contains(pod, uid));
        let api = self.client.api::<Pod>();
        let mut failed = None;
        for pod in pods {
            let options =
                DeleteOptions { preconditions: Preconditions::uid_of(&**pod), ..DeleteOptions::default() };
            if let Err(error) = api.delete(&pod.key(), &options).await {
                self.own_writes.observe_deletion(key, pod.uid_str());
                if !error.is_not_found() && !error.is_conflict() {
                    failed = failed.or(Some(error));
                }
            }
        }
        match failed {
            None => {
                self.event(
                    pool,
                    EventType::Normal,
                    "SuccessfulDelete",
                    format!("Deleted {} pods", pods.len()),
                );
                Ok(())
            }
            Some(error) => Err(error.into()),
        }
    }

    async fn write_status(&self, key: &ObjectKey, status: &PodPoolStatus) -> Result<(), Error> {
        self.client.api::<PodPool>().patch_status(key, &Patch::merge(&json!({ "status": status }))).await?;
        Ok(())
    }

    /// Adds or removes the finalizer. The resource version makes the request fail if the cache is behind.
    async fn set_finalizer(&self, key: &ObjectKey, pool: &PodPool, present: bool) -> Result<(), Error> {
        let mut finalizers = pool.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        if present {
            finalizers.push(FINALIZER.to_owned());
        }
        let metadata = json!({"resourceVersion": pool.resource_version_str(), "finalizers": finalizers});
        self.client.api::<PodPool>().patch(key, &Patch::merge(&json!({ "metadata": metadata }))).await?;
        Ok(())
    }

    fn event(&self, pool: &PodPool, type_: EventType, reason: &str, message: String) {
        self.recorder.event(&ObjectReference::of(pool), type_, reason, message);
    }

    fn reserved(&self) -> std::sync::MutexGuard<'_, HashMap<String, Reservation>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
