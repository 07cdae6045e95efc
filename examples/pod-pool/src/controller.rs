//! Performs the plan, with `kcm`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kcm::{
    api::Selector,
    client::{OwnerClient, Preconditions},
    expectations::NotReady,
    owners::{ClaimErrors, OwnerIdentity, claim},
    prelude::*,
    runtime::owner_of,
    workload::{
        CreateError, Creation, OwnedObjects,
        index::{orphan_pods, pods_of},
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
    /// A pod was not created.
    #[error(transparent)]
    Create(#[from] CreateError),
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
    /// Pods, with [`pod_indexers`] and [`NODE`].
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
    /// Creates and deletes pods.
    pub owned_pods: OwnedObjects<Pod>,
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
}

impl<R: Reservations> Reconciler for PodPools<R> {
    type Error = Error;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
        let is_current = self.owned_pods.begin(key)?;
        let Some(pool) = self.caches.pools.get(key) else {
            self.owned_pods.own_writes.forget(key);
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
        let again = plan.again.or_else(|| self.owned_pods.own_writes.expectations.expires_in(key));
        Ok(again.map_or(Requeue::Done, Requeue::After))
    }

    fn classify(error: &Error) -> ErrorClass {
        match error {
            Error::NotReady(_) => ErrorClass::StaleCache,
            Error::Api(error) if error.is_temporary() => ErrorClass::Temporary,
            Error::Api(error) if error.is_not_found() => ErrorClass::ObjectDeleted,
            _ => ErrorClass::Failed,
        }
    }
}

impl<R: Reservations> PodPools<R> {
    /// Returns the pods of the pool. Adopts and releases pods by their labels.
    async fn claim(&self, pool: &PodPool) -> Result<Vec<Arc<Pod>>, Error> {
        let Ok(selector) = Selector::from_set(&pool.spec.selector) else { return Ok(Vec::new()) };
        let owner = OwnerIdentity::of(pool);
        let pods: Vec<_> = {
            let cache = self.caches.pods.read();
            pods_of(&cache, &owner).chain(orphan_pods(&cache, &owner.namespace)).cloned().collect()
        };
        Ok(claim(&owner, &selector, pods, &OwnerClient::new(&self.client, pool)).await.into_result()?)
    }

    async fn perform(&self, key: &ObjectKey, pool: &PodPool, operation: Operation) -> Result<(), Error> {
        match operation {
            Operation::AddFinalizer => {
                self.client.api().add_finalizer(pool, FINALIZER).await?;
                Ok(())
            }
            Operation::RemoveFinalizer => {
                self.client.api().remove_finalizer(pool, FINALIZER).await?;
                Ok(())
            }
            Operation::WriteStatus(status) => self.write_status(key, &status).await,
            Operation::CreatePods(count) => self.create_pods(pool, count).await,
            Operation::DeletePods(pods) => self.delete_pods(pool, &pods).await,
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

    async fn create_pods(&self, pool: &PodPool, count: usize) -> Result<(), Error> {
        let creation = PoolPods { pool, pod: pod(pool), pods: self.client.api(), recorder: &*self.recorder };
        let created = self.owned_pods.create(&OwnerIdentity::of(pool), count, &creation).await;
        Ok(created.error.map_or(Ok(()), Err)?)
    }

    async fn delete_pods(&self, pool: &PodPool, pods: &[Arc<Pod>]) -> Result<(), Error> {
        let api = self.client.api::<Pod>();
        let delete = async |pod: Arc<Pod>| {
            let options =
                DeleteOptions { preconditions: Preconditions::uid_of(&*pod), ..DeleteOptions::default() };
            api.delete(&pod.key(), &options).await?;
            let message = format!("Deleted pod {}", pod.key().name);
            self.recorder.event(&ObjectReference::of(pool), EventType::Normal, "SuccessfulDelete", message);
            Ok(())
        };
        let requests = pods.iter().map(|pod| (Arc::clone(pod), delete(Arc::clone(pod))));
        let deleted = self.owned_pods.delete(&OwnerIdentity::of(pool), requests).await;
        Ok(deleted.error.map_or(Ok(()), Err)?)
    }

    async fn write_status(&self, key: &ObjectKey, status: &PodPoolStatus) -> Result<(), Error> {
        self.client.api::<PodPool>().patch_status(key, &Patch::merge(&json!({ "status": status }))).await?;
        Ok(())
    }

    fn event(&self, pool: &PodPool, type_: EventType, reason: &str, message: String) {
        self.recorder.event(&ObjectReference::of(pool), type_, reason, message);
    }

    fn reserved(&self) -> std::sync::MutexGuard<'_, HashMap<String, Reservation>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests and events of the pods of a pool.
struct PoolPods<'a> {
    pool: &'a PodPool,
    /// Pod without a name.
    pod: Pod,
    pods: Api<Pod>,
    recorder: &'a dyn EventRecorder,
}

impl PoolPods<'_> {
    fn event(&self, type_: EventType, reason: &str, message: String) {
        self.recorder.event(&ObjectReference::of(self.pool), type_, reason, message);
    }
}

impl Creation<Pod> for PoolPods<'_> {
    fn generate_name(&self) -> &str {
        self.pod.metadata.generate_name.as_deref().unwrap_or_default()
    }

    async fn create(&self, key: &ObjectKey) -> Result<Pod, ApiError> {
        let mut pod = self.pod.clone();
        pod.metadata.name = Some(key.name.to_string());
        self.pods.create(&pod).await
    }

    async fn find(&self, key: &ObjectKey) -> Result<Option<Pod>, ApiError> {
        self.pods.find(key).await
    }

    fn adopts(&self, orphan: &Pod) -> bool {
        selects(self.pool, orphan)
    }

    fn created(&self, pod: &Pod) {
        self.event(EventType::Normal, "SuccessfulCreate", format!("Created pod {}", pod.key().name));
    }

    fn failed(&self, _: &ObjectKey, error: &ApiError) {
        self.event(EventType::Warning, "FailedCreate", format!("Error creating: {error}"));
    }
}
