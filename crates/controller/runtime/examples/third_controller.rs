//! A controller in forty lines: deletes the failed pods of each ReplicaSet, except the newest one.
//!
//! `cargo run -p kcm-runtime --example third_controller`

use std::{error::Error, sync::Arc, time::Duration};

use async_trait::async_trait;
use kcm_api::{ApiError, Phase, Pod, PodDecoder, ReplicaSet};
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_controller_ref_manager::{OwnerIdentity, OwnerPatch};
use kcm_controller_util::{PodControl, PodManifest, index::pods_of, pod_indexers};
use kcm_informer::{InformerConfig, SharedInformer, Store, testing::FakeSource};
use kcm_runtime::{Controller, ObjectKey, Reconciler, Requeue, Watch};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::debug;

// The controller.

struct FailedPods {
    replica_sets: Store<ReplicaSet>,
    pods: Store<Pod>,
    pod_control: Arc<dyn PodControl>,
}

impl Reconciler for FailedPods {
    type Error = ApiError;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, ApiError> {
        let Some(replica_set) = self.replica_sets.get(key) else { return Ok(Requeue::Done) };
        let owner = OwnerIdentity::from(&*replica_set);
        let pods = pods_of(&self.pods.read(), &owner).cloned().collect();
        for pod in plan(pods) {
            debug!(%pod, "Deleting failed pod");
            match self.pod_control.delete_pod(&pod).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(Requeue::Done)
    }
}

/// Returns the pods to delete. Pure, so that it can be tested without a cluster.
fn plan(mut pods: Vec<Arc<Pod>>) -> Vec<ObjectKey> {
    pods.retain(|pod| pod.phase == Phase::Failed && pod.deletion_timestamp.is_none());
    pods.sort_by_key(|pod| (pod.creation_timestamp, pod.key.clone()));
    pods.pop();
    pods.iter().map(|pod| pod.key.clone()).collect()
}

fn failed_pods_controller(
    replica_sets: &SharedInformer<ReplicaSet>,
    pods: &SharedInformer<Pod>,
    pod_control: Arc<dyn PodControl>,
    clock: Arc<dyn Clock>,
) -> Controller<FailedPods> {
    Controller::builder("failed-pods", clock)
        .reconciles(replica_sets)
        .owns(Watch::new(pods).when(|change| change.object().phase == Phase::Failed))
        .workers(2)
        .build(FailedPods { replica_sets: replica_sets.store(), pods: pods.store(), pod_control })
}

// A fake API server for the controller.

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
        Err(ApiError::NotSent("not used by this controller".into()))
    }

    async fn find_pod(&self, _: &ObjectKey) -> Result<Option<Pod>, ApiError> {
        Ok(None)
    }

    async fn patch_pod(&self, _: &ObjectKey, _: &OwnerPatch) -> Result<Pod, ApiError> {
        Err(ApiError::NotSent("not used by this controller".into()))
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
    let replica_sets = SharedInformer::new(config);

    let server = Arc::new(Server { pods: pod_source.clone() });
    let controller = failed_pods_controller(&replica_sets, &pods, server, clock.clone());
    let stop = CancellationToken::new();
    let until_done = async {
        while pod_source.objects().len() > 1 {
            clock.sleep(Duration::from_millis(10)).await;
        }
        stop.cancel();
    };
    let _ = tokio::join!(
        pods.run(stop.clone()),
        replica_sets.run(stop.clone()),
        controller.run(stop.clone()),
        until_done
    );
    println!("kept {}", pod_source.objects()[0].key);
    Ok(())
}
