//! A complete controller: deletes the failed pods of each ReplicaSet, except the newest one.
//!
//! It has the shape of the controllers of this workspace: handlers, sync, plan, execute. `docs/architecture.md` describes
//! how the manager runs a controller.
//!
//! `cargo run -p kcm-controller-util --example third_controller`

use std::{error::Error, sync::Arc, time::Duration};

use async_trait::async_trait;
use kcm_api::{ApiError, ObjectKey, Phase, Pod, PodDecoder, ReplicaSet};
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_controller_ref_manager::{OwnerIdentity, OwnerPatch};
use kcm_controller_util::{
    Controller, ControllerConfig, ErrorClass, PodControl, PodManifest, Reconciler, Requeue, index::pods_of,
    pod_indexers,
};
use kcm_informer::{
    Deleted, EventHandler, Indexers, InformerConfig, SharedInformer, Store, testing::FakeSource,
};
use kcm_workqueue::RateLimitingQueue;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::{Span, debug, error_span};

// handlers.rs

/// Enqueues the ReplicaSet of each failed pod.
struct Handlers {
    queue: RateLimitingQueue<ObjectKey>,
}

impl EventHandler<Pod> for Handlers {
    fn on_add(&self, pod: &Arc<Pod>, _initial: bool) {
        if let Some(owner) = &pod.controller
            && pod.phase == Phase::Failed
        {
            self.queue.add(ObjectKey::new(&*pod.key.namespace, &*owner.name));
        }
    }

    fn on_update(&self, _: &Arc<Pod>, new: &Arc<Pod>) {
        self.on_add(new, false);
    }

    fn on_delete(&self, _: &Deleted<Pod>) {}
}

/// ReplicaSets are only looked up.
impl EventHandler<ReplicaSet> for Handlers {
    fn on_add(&self, _: &Arc<ReplicaSet>, _: bool) {}
    fn on_update(&self, _: &Arc<ReplicaSet>, _: &Arc<ReplicaSet>) {}
    fn on_delete(&self, _: &Deleted<ReplicaSet>) {}
}

// plan.rs

/// Returns the pods to delete: all failed pods except the newest one. Pure, so that it can be tested without a cluster.
fn plan(mut pods: Vec<Arc<Pod>>) -> Vec<ObjectKey> {
    pods.retain(|pod| pod.phase == Phase::Failed && pod.deletion_timestamp.is_none());
    pods.sort_by_key(|pod| (pod.creation_timestamp, pod.key.clone()));
    pods.pop();
    pods.iter().map(|pod| pod.key.clone()).collect()
}

// sync.rs and execute.rs

/// Dependencies of a sync.
struct Syncer {
    pods: Store<Pod>,
    replica_sets: Store<ReplicaSet>,
    pod_control: Arc<dyn PodControl>,
}

impl Syncer {
    async fn execute(&self, deletions: &[ObjectKey]) -> Result<(), ApiError> {
        for pod in deletions {
            debug!(%pod, "Deleting failed pod");
            match self.pod_control.delete_pod(pod).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Reconciler for Syncer {
    type Error = ApiError;

    async fn sync(&self, key: &ObjectKey) -> Result<Requeue, ApiError> {
        let Some(replica_set) = self.replica_sets.get(key) else { return Ok(Requeue::Never) };
        let owner = OwnerIdentity::from(&*replica_set);
        let pods = pods_of(&self.pods.read(), &owner).cloned().collect();
        self.execute(&plan(pods)).await?;
        Ok(Requeue::Never)
    }

    fn classify(error: &ApiError) -> ErrorClass {
        if error.is_namespace_terminating() { ErrorClass::Terminal } else { ErrorClass::Failed }
    }

    fn span(&self, key: &ObjectKey) -> Span {
        error_span!("sync", replicaSet = %key)
    }
}

// controller.rs

/// Constructs the controller and registers its handlers.
fn failed_pods_controller(
    clock: Arc<dyn Clock>,
    pods: &SharedInformer<Pod>,
    replica_sets: &SharedInformer<ReplicaSet>,
    pod_control: Arc<dyn PodControl>,
) -> Controller<Syncer> {
    let syncer = Syncer { pods: pods.store(), replica_sets: replica_sets.store(), pod_control };
    let mut controller = Controller::new(ControllerConfig::new("failedpods", clock), Arc::new(syncer));
    let handlers = Arc::new(Handlers { queue: controller.queue() });
    controller.watch(pods, Arc::clone(&handlers) as _);
    controller.watch(replica_sets, handlers);
    controller
}

/// Fake API server that accepts deletions.
struct Server {
    pods: FakeSource<Pod>,
}

#[async_trait]
impl PodControl for Server {
    async fn delete_pod(&self, pod: &ObjectKey) -> Result<(), ApiError> {
        println!("DELETE {pod}");
        self.pods.delete(pod);
        Ok(())
    }

    async fn create_pod(&self, _: &ObjectKey, _: &PodManifest) -> Result<Pod, ApiError> {
        Err(ApiError::NotSent("not used by this controller".to_owned()))
    }

    async fn find_pod(&self, _: &ObjectKey) -> Result<Option<Pod>, ApiError> {
        Ok(None)
    }

    async fn patch_pod(&self, _: &ObjectKey, _: &OwnerPatch) -> Result<Pod, ApiError> {
        Err(ApiError::NotSent("not used by this controller".to_owned()))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
    let (pod_source, replica_set_source) = (FakeSource::new(clock.clone()), FakeSource::new(clock.clone()));
    let replica_set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "web-uid"},
    }))?;
    let owner = OwnerIdentity::from(&replica_set).controller_reference();
    replica_set_source.apply(replica_set);
    for (day, name) in ["web-a", "web-b", "web-c"].into_iter().enumerate() {
        pod_source.apply(PodDecoder::default().decode_value(&json!({
            "metadata": {
                "name": name, "namespace": "default", "uid": name, "ownerReferences": [&owner],
                "creationTimestamp": format!("2026-01-0{}T00:00:00Z", day + 1),
            },
            "status": {"phase": "Failed"},
        }))?);
    }

    let config = InformerConfig::new("pods", Arc::new(pod_source.clone()), clock.clone(), random.clone());
    let pods = SharedInformer::new(InformerConfig { indexers: pod_indexers(), ..config });
    let config = InformerConfig::new("replicasets", Arc::new(replica_set_source), clock.clone(), random);
    let replica_sets = SharedInformer::new(InformerConfig { indexers: Indexers::new(), ..config });

    let server = Arc::new(Server { pods: pod_source.clone() });
    let controller = failed_pods_controller(clock.clone(), &pods, &replica_sets, server);
    let stop = CancellationToken::new();
    let until_done = async {
        while pod_source.objects().len() > 1 {
            clock.sleep(Duration::from_millis(10)).await;
        }
        stop.cancel();
    };
    tokio::join!(
        pods.run(stop.clone()),
        replica_sets.run(stop.clone()),
        controller.run(1, stop.clone()),
        until_done
    );
    println!("kept {}", pod_source.objects()[0].key);
    Ok(())
}
