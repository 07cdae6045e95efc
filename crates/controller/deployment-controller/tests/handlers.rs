//! Memory that event handlers allocate, which must not grow with the namespace: they run on the task of the reflector.
//!
//! The test has its own binary because it counts all bytes that the process allocates.

#![expect(clippy::unwrap_used, reason = "helper functions of a test")]

use std::{alloc::System, sync::Arc, time::Duration};

use async_trait::async_trait;
use kcm_api::{ApiError, Deployment, ObjectKey, Pod, PodDecoder, ReplicaSet};
use kcm_clock::{Clock, SeededRandom, SimulatedClock, Timestamp};
use kcm_controller_ref_manager::OwnerPatch;
use kcm_controller_util::{
    DeploymentControl, ReplicaSetControl, deployment_indexers, pod_indexers, replica_set_indexers,
};
use kcm_deployment_controller::{
    DeploymentController, DeploymentControllerConfig, DeploymentControllerOptions,
};
use kcm_events::FakeRecorder;
use kcm_informer::{
    Indexers, InformerConfig, SharedInformer,
    testing::{FakeSource, SetResourceVersion},
};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn metadata(name: &str, labels: &Value, owner: Option<(&str, &str)>) -> Value {
    let reference = |(kind, name)| json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true});
    json!({
        "name": name, "namespace": "default", "uid": name, "labels": labels,
        "ownerReferences": owner.map(reference).into_iter().collect::<Vec<_>>(),
    })
}

fn deployment(name: &str) -> Deployment {
    let labels = json!({"app": name, "team": "shop"});
    serde_json::from_value(json!({
        "metadata": metadata(name, &labels, None),
        "spec": {"selector": {"matchLabels": labels}, "strategy": {"type": "Recreate"}},
    }))
    .unwrap()
}

fn replica_set(name: &str, app: &str, owner: Option<(&str, &str)>) -> ReplicaSet {
    let labels = json!({"app": app, "team": "shop"});
    serde_json::from_value(json!({"metadata": metadata(name, &labels, owner)})).unwrap()
}

fn pod(name: &str, owner: &str) -> Pod {
    let object = json!({"metadata": metadata(name, &json!({"app": "web-0"}), Some(("ReplicaSet", owner)))});
    PodDecoder::default().decode_value(&object).unwrap()
}

/// API server without connection. The controller only handles events in this test.
struct Unreachable;

fn unreachable<T>() -> Result<T, ApiError> {
    Err(ApiError::NotSent("unreachable".into()))
}

#[async_trait]
impl DeploymentControl for Unreachable {
    async fn get_deployment(&self, _key: &ObjectKey) -> Result<Deployment, ApiError> {
        unreachable()
    }

    async fn update_deployment(&self, _deployment: &Deployment) -> Result<Deployment, ApiError> {
        unreachable()
    }

    async fn update_deployment_status(&self, _deployment: &Deployment) -> Result<Deployment, ApiError> {
        unreachable()
    }
}

#[async_trait]
impl ReplicaSetControl for Unreachable {
    async fn get_replica_set(&self, _key: &ObjectKey) -> Result<ReplicaSet, ApiError> {
        unreachable()
    }

    async fn create_replica_set(&self, _set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        unreachable()
    }

    async fn update_replica_set(&self, _set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        unreachable()
    }

    async fn update_replica_set_status(&self, _set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        unreachable()
    }

    async fn delete_replica_set(&self, _key: &ObjectKey) -> Result<(), ApiError> {
        unreachable()
    }

    async fn patch_replica_set(&self, _key: &ObjectKey, _: &OwnerPatch) -> Result<ReplicaSet, ApiError> {
        unreachable()
    }
}

fn informer<K: SetResourceVersion + Clone>(
    clock: &Arc<dyn Clock>,
    indexers: Indexers<K>,
    stop: &CancellationToken,
) -> (Arc<FakeSource<K>>, SharedInformer<K>) {
    let source = Arc::new(FakeSource::new(Arc::clone(clock)));
    let random = Arc::new(SeededRandom::new(1));
    let config = InformerConfig::new("test", Arc::clone(&source) as _, Arc::clone(clock), random);
    let informer = SharedInformer::new(InformerConfig { indexers, ..config });
    let (running, stop) = (informer.clone(), stop.clone());
    tokio::spawn(async move { running.run(stop).await });
    (source, informer)
}

/// Waits until the informers have delivered all events.
async fn delivered() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Returns the bytes that are allocated when one of `size` pods is deleted, and when an orphan is created in a namespace
/// with `size` Deployments.
async fn allocated(size: usize) -> [usize; 2] {
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let stop = CancellationToken::new();
    let (deployments, deployment_informer) = informer(&clock, deployment_indexers(), &stop);
    let (replica_sets, replica_set_informer) = informer(&clock, replica_set_indexers(), &stop);
    let (pods, pod_informer) = informer(&clock, pod_indexers(), &stop);
    for n in 0..size {
        deployments.apply(deployment(&format!("web-{n}")));
        pods.apply(pod(&format!("pod-{n}"), "owned"));
    }
    replica_sets.apply(replica_set("owned", "web-0", Some(("Deployment", "web-0"))));
    let server = Arc::new(Unreachable);
    let _controller = DeploymentController::new(DeploymentControllerConfig {
        clock,
        deployments: deployment_informer,
        replica_sets: replica_set_informer,
        pods: pod_informer,
        deployment_control: server.clone(),
        replica_set_control: server,
        recorder: Arc::new(FakeRecorder::new()),
        options: DeploymentControllerOptions::default(),
    });
    delivered().await;

    let region = Region::new(ALLOCATOR);
    pods.delete(&ObjectKey::new("default", "pod-1"));
    delivered().await;
    let deletion = region.change().bytes_allocated;

    let orphan = replica_set("orphan", "web-3", None);
    let region = Region::new(ALLOCATOR);
    replica_sets.apply(orphan);
    delivered().await;
    let creation = region.change().bytes_allocated;
    stop.cancel();
    [deletion, creation]
}

#[tokio::test(start_paused = true)]
async fn handlers_allocate_independently_of_the_namespace() {
    // Includes what is allocated once in a process.
    allocated(10).await;
    let (small, large) = (allocated(100).await, allocated(1000).await);
    for (small, large) in small.into_iter().zip(large) {
        assert!(small > 0 && large < small + 500, "{small} bytes with 100 objects, {large} with 1000");
    }
}
