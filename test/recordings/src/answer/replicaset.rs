//! Syncs of the ReplicaSet controller with recorded cases.

use std::{
    error::Error,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use kcm_api::{ApiError, ObjectKey, Pod, PodDecoder, ReplicaSet, error::reason};
use kcm_clock::{FakeClock, SeededRandom};
use kcm_controller_ref_manager::OwnerPatch;
use kcm_controller_util::{PodControl, PodManifest, ReplicaSetControl};
use kcm_events::FakeRecorder;
use kcm_replicaset_controller::{
    ReplicaSetController, ReplicaSetControllerConfig, ReplicaSetControllerOptions, SyncError,
};
use kcm_runtime::Requeue;
use serde_json::{Value, json};

use super::cluster::{Actions, Caches, answer_with, clock_of, list, mask_now, not_found, patch_body};

/// Runs one sync with the case `case` of `replicaset.jsonl`. Returns its `output`, or the error as `unanswered`.
pub fn answer(case: &Value) -> Value {
    answer_with(sync_once(case))
}

async fn sync_once(case: &Value) -> Result<Value, Box<dyn Error>> {
    let input = &case["input"];
    let clock = clock_of(case);
    let subject: ReplicaSet = serde_json::from_value(input["replicaSet"].clone())?;
    let mut replica_sets = list(&input["siblings"], |value| serde_json::from_value(value.clone()))?;
    replica_sets.push(subject.clone());
    let decoder = PodDecoder::default();
    let pods = list(&input["pods"], |pod| decoder.decode_value(pod))?;

    let client = Arc::new(RecordingClient {
        subject: subject.clone(),
        pods: pods.clone(),
        decoder,
        creates_allowed: AtomicI64::new(input["createsAllowed"].as_i64().unwrap_or(-1)),
        ..RecordingClient::default()
    });
    let events = Arc::new(FakeRecorder::new());
    let caches = Caches::new(pods, replica_sets, &clock);
    let controller = ReplicaSetController::new(ReplicaSetControllerConfig {
        clock: Arc::new(clock.clone()),
        random: Arc::new(SeededRandom::new(0)),
        pods: caches.pods.clone(),
        replica_sets: caches.replica_sets.clone(),
        pod_control: client.clone(),
        replica_set_control: client.clone(),
        recorder: events.clone(),
        options: ReplicaSetControllerOptions {
            coalesce_status_writes: false,
            ..ReplicaSetControllerOptions::default()
        },
    });
    caches.fill().await;

    let key = subject.metadata.key();
    let result = controller.sync(&key).await;
    let expectations = controller.expectations(&key).unwrap_or_default();
    Ok(client.output(&clock, &events, result, expectations))
}

/// Client that records requests, and responds as described in the README of the vectors.
#[derive(Default)]
struct RecordingClient {
    /// State on the API server, equal to the cache.
    subject: ReplicaSet,
    pods: Vec<Pod>,
    decoder: PodDecoder,
    /// Number of creates that still succeed; unlimited if negative.
    creates_allowed: AtomicI64,
    creates_attempted: AtomicUsize,
    /// First created pod, as sent.
    created_pod: Mutex<Option<Value>>,
    deleted: Mutex<Vec<String>>,
    actions: Actions,
}

impl RecordingClient {
    fn output(
        &self,
        clock: &FakeClock,
        events: &FakeRecorder,
        result: Result<Requeue, SyncError>,
        (expectations_add, expectations_del): (i64, i64),
    ) -> Value {
        let mut deleted = lock(&self.deleted).clone();
        deleted.sort();
        let mut events = events.take();
        events.sort();
        let mut actions = self.actions.take();
        actions.sort_by_key(|action| ["verb", "what", "name"].map(|field| action[field].to_string()));
        actions.iter_mut().for_each(|action| mask_now(action, clock));

        let mut output = json!({
            "createsAttempted": self.creates_attempted.load(Ordering::SeqCst),
            "createdPod": *lock(&self.created_pod),
            "deleted": deleted,
            "actions": actions,
            "events": events,
            "requeue": [],
            "expectationsAdd": expectations_add,
            "expectationsDel": expectations_del,
        });
        match result {
            Ok(Requeue::Done) => {}
            Ok(Requeue::After(delay)) => {
                output["requeue"] = json!([format!("after {:.0}", delay.as_secs_f64())]);
            }
            Ok(Requeue::RateLimited) => output["requeue"] = json!(["rate limited"]),
            Err(error) => output["error"] = error.to_string().into(),
        }
        output
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn decode_error(error: impl Error) -> ApiError {
    ApiError::Decode(error.to_string().into())
}

#[async_trait]
impl PodControl for RecordingClient {
    /// Names pods like the recorded API server, which generated the names.
    async fn create_pod(&self, key: &ObjectKey, manifest: &PodManifest) -> Result<Pod, ApiError> {
        let number = self.creates_attempted.fetch_add(1, Ordering::SeqCst) + 1;
        let mut pod: Value = serde_json::from_str(&manifest.to_json(&key.name)).map_err(decode_error)?;
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            metadata.remove("name");
        }
        lock(&self.created_pod).get_or_insert_with(|| pod.clone());
        let allowed = self.creates_allowed.load(Ordering::SeqCst);
        if allowed == 0 {
            let message = "pods is forbidden: exceeded quota";
            return Err(ApiError::status(403, reason::FORBIDDEN, message));
        }
        self.creates_allowed.store((allowed - 1).max(-1), Ordering::SeqCst);
        pod["metadata"]["name"] = format!("new-{number}").into();
        pod["metadata"]["namespace"] = key.namespace.to_string().into();
        self.decoder.decode_value(&pod).map_err(decode_error)
    }

    async fn delete_pod(&self, pod: &ObjectKey) -> Result<(), ApiError> {
        lock(&self.deleted).push(pod.name.to_string());
        Ok(())
    }

    async fn patch_pod(&self, key: &ObjectKey, patch: &OwnerPatch) -> Result<Pod, ApiError> {
        self.actions.record(
            "patch",
            "pods",
            &key.name,
            Some(("patch", patch_body(&patch.strategic_merge()))),
        );
        self.pods.iter().find(|pod| pod.key == *key).cloned().ok_or_else(|| not_found("pods", key))
    }

    async fn find_pod(&self, key: &ObjectKey) -> Result<Option<Pod>, ApiError> {
        Err(ApiError::Transport(format!("unexpected read of pod {key}").into()))
    }
}

#[async_trait]
impl ReplicaSetControl for RecordingClient {
    async fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, ApiError> {
        self.actions.record("get", "replicasets", &key.name, None);
        Ok(self.subject.clone())
    }

    async fn update_replica_set_status(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        let object = serde_json::to_value(replica_set).map_err(decode_error)?;
        self.actions.record(
            "update",
            "replicasets/status",
            &replica_set.metadata.name,
            Some(("object", object)),
        );
        Ok(replica_set.clone())
    }

    async fn create_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        Err(unexpected("create", &replica_set.metadata.key()))
    }

    async fn update_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        Err(unexpected("update", &replica_set.metadata.key()))
    }

    async fn delete_replica_set(&self, key: &ObjectKey) -> Result<(), ApiError> {
        Err(unexpected("delete", key))
    }

    async fn patch_replica_set(&self, key: &ObjectKey, _patch: &OwnerPatch) -> Result<ReplicaSet, ApiError> {
        Err(unexpected("patch", key))
    }
}

/// Error for a request that this controller never sends (US-5.9).
fn unexpected(verb: &str, key: &ObjectKey) -> ApiError {
    ApiError::Transport(format!("unexpected {verb} of replica set {key}").into())
}

#[cfg(test)]
mod tests;
