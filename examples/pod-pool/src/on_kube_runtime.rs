//! The operator with kube-runtime alone, as its documentation suggests: a `Controller` that owns pods, and stores of reflectors
//! for what a reconciliation reads.

use std::{
    collections::HashMap,
    future::ready,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use k8s_openapi::{
    api::core::v1::{Node, ObjectReference, Pod},
    jiff::Timestamp,
};
use kube_client::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use kube_core::{Resource, ResourceExt};
use kube_runtime::{
    Controller, WatchStreamExt,
    controller::{Action, Config},
    events::{Event, EventType, Recorder, Reporter},
    reflector::{self, ObjectRef, Store},
    watcher,
};
use serde_json::json;
use thiserror::Error;

use crate::{
    plan::{FINALIZER, Operation, Reservation, View, is_cordoned, node, plan, pod, selects},
    pool::PodPool,
    reservations::{ReservationError, Reservations},
};

/// Error of a reconciliation.
#[derive(Debug, Error)]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] kube_client::Error),
    /// The external system failed.
    #[error(transparent)]
    Reservation(#[from] ReservationError),
}

/// Source of the time. In tests, the clock of the API server.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Source of the pods of a reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodReads {
    /// Store of a reflector.
    Cache,
    /// A list request for each reconciliation.
    List,
}

struct Context<R> {
    client: Client,
    pods: Store<Pod>,
    nodes: Store<Node>,
    pod_reads: PodReads,
    recorder: Recorder,
    reservations: R,
    /// Last reservations, by UID.
    reserved: Mutex<HashMap<String, Reservation>>,
    now: Now,
}

/// Runs the operator.
pub async fn run<R: Reservations>(client: Client, reservations: R, pod_reads: PodReads, now: Now) {
    let config = watcher::Config::default;
    let (pod_api, node_api) = (Api::<Pod>::all(client.clone()), Api::<Node>::all(client.clone()));
    let (pods, writer) = reflector::store();
    let pod_cache = watcher(pod_api.clone(), config()).default_backoff().reflect(writer);
    let (nodes, writer) = reflector::store();
    let node_cache = watcher(node_api.clone(), config()).default_backoff().reflect(writer);

    let on_node = pods.clone();
    let controller = Controller::new(Api::<PodPool>::all(client.clone()), config())
        .owns(pod_api, config())
        .watches(node_api, config(), move |changed| {
            // A scan: the store has no indexes.
            let pods = on_node.state_filter(|pod| node(pod) == changed.name_any());
            pods.iter().filter_map(|pod| owner_of(pod)).collect::<Vec<_>>()
        })
        .with_config(Config::default().concurrency(4));
    let reporter = Reporter { controller: "pod-pool".to_owned(), instance: None };
    let context = Context {
        recorder: Recorder::new(client.clone(), reporter),
        client,
        pods: pods.clone(),
        nodes: nodes.clone(),
        pod_reads,
        reservations,
        reserved: Mutex::default(),
        now,
    };
    let controller = async {
        let _ = tokio::join!(pods.wait_until_ready(), nodes.wait_until_ready());
        let retry = |_: Arc<PodPool>, _: &Error, _: Arc<Context<R>>| Action::requeue(Duration::from_secs(5));
        controller.run(reconcile, retry, Arc::new(context)).for_each(|_| ready(())).await;
    };
    tokio::join!(pod_cache.for_each(|_| ready(())), node_cache.for_each(|_| ready(())), controller);
}

fn owner_of(pod: &Pod) -> Option<ObjectRef<PodPool>> {
    let namespace = pod.namespace();
    pod.owner_references().iter().find_map(|owner| ObjectRef::from_owner_ref(namespace.as_deref(), owner, ()))
}

async fn reconcile<R: Reservations>(pool: Arc<PodPool>, context: Arc<Context<R>>) -> Result<Action, Error> {
    let pods = context.claim(&pool).await?;
    let cordoned = context.nodes.state_filter(is_cordoned).iter().map(|node| node.name_any()).collect();
    let uid = pool.uid().unwrap_or_default();
    let reservation = context.reserved().get(&uid).copied();
    // Own writes that the store lacks are not known.
    let view = View { pool: &pool, pods: &pods, cordoned: &cordoned, reservation, is_current: true };
    let plan = plan(&view, (context.now)());
    for operation in plan.operations {
        context.perform(&pool, &uid, operation).await?;
    }
    Ok(plan.again.map_or_else(Action::await_change, Action::requeue))
}

impl<R: Reservations> Context<R> {
    /// Returns the pods of the pool, and adopts and releases pods by their labels.
    async fn claim(&self, pool: &PodPool) -> Result<Vec<Arc<Pod>>, Error> {
        let (namespace, uid) = (pool.namespace(), pool.uid());
        let api = self.pod_api(pool);
        let pods = match self.pod_reads {
            PodReads::Cache => self.pods.state_filter(|pod| pod.namespace() == namespace),
            PodReads::List => {
                api.list(&ListParams::default()).await?.items.into_iter().map(Arc::new).collect()
            }
        };
        let mut claimed = Vec::new();
        for pod in pods {
            let matches = selects(pool, &pod);
            let controller = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
            let is_ours = controller.map(|owner| Some(&owner.uid) == uid.as_ref());
            let deleting = |meta: &kube_core::ObjectMeta| meta.deletion_timestamp.is_some();
            let owners = match is_ours {
                Some(true) if matches => {
                    claimed.push(pod);
                    continue;
                }
                Some(true) if !deleting(&pool.metadata) => vec![],
                None if matches && !deleting(&pool.metadata) && !deleting(&pod.metadata) => {
                    pool.controller_owner_ref(&()).into_iter().collect()
                }
                _ => continue,
            };
            let metadata = json!({"resourceVersion": pod.resource_version(), "ownerReferences": owners});
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            let patched = api.patch(&pod.name_any(), &PatchParams::default(), &patch).await?;
            if !owners.is_empty() {
                claimed.push(Arc::new(patched));
            }
        }
        Ok(claimed)
    }

    async fn perform(&self, pool: &PodPool, uid: &str, operation: Operation) -> Result<(), Error> {
        match operation {
            Operation::AddFinalizer => self.set_finalizer(pool, true).await,
            Operation::RemoveFinalizer => self.set_finalizer(pool, false).await,
            Operation::WriteStatus(status) => {
                let patch = Patch::Merge(json!({ "status": status }));
                self.pool_api(pool).patch_status(&pool.name_any(), &PatchParams::default(), &patch).await?;
                Ok(())
            }
            Operation::CreatePods(count) => self.create_pods(pool, count).await,
            Operation::DeletePods(pods) => self.delete_pods(pool, &pods).await,
            Operation::Reserve(seats) => {
                self.reservations.reserve(uid, seats).await?;
                let reservation = Reservation { seats, at: (self.now)() };
                let old = self.reserved().insert(uid.to_owned(), reservation);
                if old.is_none_or(|old| old.seats != seats) {
                    self.event(pool, EventType::Normal, "Reserved", format!("Reserved {seats} seats"))
                        .await?;
                }
                Ok(())
            }
            Operation::Release => {
                self.reservations.release(uid).await?;
                self.reserved().remove(uid);
                Ok(())
            }
        }
    }

    async fn create_pods(&self, pool: &PodPool, count: usize) -> Result<(), Error> {
        let (api, pod) = (self.pod_api(pool), pod(pool));
        for _ in 0..count {
            if let Err(error) = api.create(&PostParams::default(), &pod).await {
                self.event(pool, EventType::Warning, "FailedCreate", format!("Error creating: {error}"))
                    .await?;
                return Err(error.into());
            }
        }
        self.event(pool, EventType::Normal, "SuccessfulCreate", format!("Created {count} pods")).await
    }

    async fn delete_pods(&self, pool: &PodPool, pods: &[Arc<Pod>]) -> Result<(), Error> {
        for pod in pods {
            let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match self.pod_api(pool).delete(&pod.name_any(), &params).await {
                Err(kube_client::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                result => drop(result?),
            }
        }
        self.event(pool, EventType::Normal, "SuccessfulDelete", format!("Deleted {} pods", pods.len())).await
    }

    /// Adds or removes the finalizer. The resource version makes the request fail if the cache is behind.
    async fn set_finalizer(&self, pool: &PodPool, present: bool) -> Result<(), Error> {
        let mut finalizers = pool.finalizers().to_vec();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        if present {
            finalizers.push(FINALIZER.to_owned());
        }
        let metadata = json!({"resourceVersion": pool.resource_version(), "finalizers": finalizers});
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        self.pool_api(pool).patch(&pool.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn event(&self, pool: &PodPool, type_: EventType, reason: &str, note: String) -> Result<(), Error> {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        let regarding: ObjectReference = pool.object_ref(&());
        Ok(self.recorder.publish(&event, &regarding).await?)
    }

    fn pool_api(&self, pool: &PodPool) -> Api<PodPool> {
        Api::namespaced(self.client.clone(), &pool.namespace().unwrap_or_default())
    }

    fn pod_api(&self, pool: &PodPool) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pool.namespace().unwrap_or_default())
    }

    fn reserved(&self) -> std::sync::MutexGuard<'_, HashMap<String, Reservation>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
