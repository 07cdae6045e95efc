//! Syncs of the Deployment controller with recorded cases.

use std::{error::Error, sync::Arc};

use async_trait::async_trait;
use kcm_api::{ApiError, Deployment, ObjectKey, PodDecoder, ReplicaSet, error::reason};
use kcm_clock::FakeClock;
use kcm_controller_ref_manager::OwnerPatch;
use kcm_controller_util::{DeploymentControl, ReplicaSetControl, deployment_indexers};
use kcm_deployment_controller::{
    DeploymentController, DeploymentControllerConfig, DeploymentControllerOptions, ProgressCheck, SyncError,
    SyncOutcome,
};
use kcm_events::FakeRecorder;
use serde::Serialize;
use serde_json::{Value, json};

use super::cluster::{
    Actions, Caches, answer_with, clock_of, fill, informer, list, mask_now, not_found, patch_body,
};

/// Runs one sync with the case `case` of `deployment.jsonl`. Returns its `output`, or the error as `unanswered`.
pub fn answer(case: &Value) -> Value {
    answer_with(sync_once(case))
}

async fn sync_once(case: &Value) -> Result<Value, Box<dyn Error>> {
    let input = &case["input"];
    let clock = clock_of(case);
    let deployment: Deployment = serde_json::from_value(input["deployment"].clone())?;
    let replica_sets = list(&input["replicaSets"], |set| serde_json::from_value(set.clone()))?;
    let decoder = PodDecoder::default();
    let pods = list(&input["pods"], |pod| decoder.decode_value(pod))?;

    let client = Arc::new(RecordingClient {
        deployment: deployment.clone(),
        replica_sets: replica_sets.clone(),
        actions: Actions::default(),
    });
    let events = Arc::new(FakeRecorder::new());
    let key = deployment.metadata.key();
    let deployments = informer("deployments", vec![deployment], deployment_indexers(), &clock);
    let caches = Caches::new(pods, replica_sets, &clock);
    let controller = DeploymentController::new(DeploymentControllerConfig {
        clock: Arc::new(clock.clone()),
        deployments: deployments.clone(),
        replica_sets: caches.replica_sets.clone(),
        pods: caches.pods.clone(),
        deployment_control: client.clone(),
        replica_set_control: client.clone(),
        recorder: events.clone(),
        options: DeploymentControllerOptions {
            coalesce_status_writes: false,
            ..DeploymentControllerOptions::default()
        },
    });
    fill(&deployments).await;
    caches.fill().await;

    let result = controller.sync(&key).await;
    Ok(client.output(&clock, &events, result))
}

/// Client that records requests, and responds as described in the README of the vectors.
struct RecordingClient {
    /// State on the API server, equal to the cache.
    deployment: Deployment,
    replica_sets: Vec<ReplicaSet>,
    actions: Actions,
}

impl RecordingClient {
    fn output(
        &self,
        clock: &FakeClock,
        events: &FakeRecorder,
        result: Result<Option<SyncOutcome>, SyncError>,
    ) -> Value {
        let mut actions = self.actions.take();
        actions.iter_mut().for_each(|action| mask_now(action, clock));
        let mut output = json!({ "actions": actions, "events": events.take(), "requeue": [] });
        match result {
            Err(error) => output["error"] = error.to_string().into(),
            // Upstream requeues after every progress check, including those of rollouts that cannot time out.
            Ok(outcome) => match outcome.and_then(|outcome| outcome.progress_check) {
                None => {}
                Some(ProgressCheck { after: Some(delay), .. }) => {
                    output["requeue"] = json!([format!("after {:.0}", delay.as_secs_f64())]);
                }
                Some(ProgressCheck { after: None, .. }) => output["requeue"] = json!(["ratelimited"]),
            },
        }
        output
    }

    fn record<K: Serialize>(&self, verb: &str, what: &str, name: &str, object: &K) -> Result<(), ApiError> {
        let object =
            serde_json::to_value(object).map_err(|error| ApiError::Decode(error.to_string().into()))?;
        self.actions.record(verb, what, name, Some(("object", object)));
        Ok(())
    }

    fn stored(&self, key: &ObjectKey) -> Option<&ReplicaSet> {
        self.replica_sets.iter().find(|set| set.metadata.key() == *key)
    }
}

#[async_trait]
impl DeploymentControl for RecordingClient {
    async fn get_deployment(&self, key: &ObjectKey) -> Result<Deployment, ApiError> {
        self.actions.record("get", "deployments", &key.name, None);
        Ok(self.deployment.clone())
    }

    async fn update_deployment(&self, deployment: &Deployment) -> Result<Deployment, ApiError> {
        self.record("update", "deployments", &deployment.metadata.name, deployment)?;
        Ok(deployment.clone())
    }

    async fn update_deployment_status(&self, deployment: &Deployment) -> Result<Deployment, ApiError> {
        self.record("update", "deployments/status", &deployment.metadata.name, deployment)?;
        Ok(deployment.clone())
    }
}

#[async_trait]
impl ReplicaSetControl for RecordingClient {
    async fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, ApiError> {
        self.actions.record("get", "replicasets", &key.name, None);
        self.stored(key).cloned().ok_or_else(|| not_found("replicasets.apps", key))
    }

    async fn create_replica_set(&self, set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        let name = &set.metadata.name;
        self.record("create", "replicasets", name, set)?;
        if self.stored(&set.metadata.key()).is_some() {
            let message = format!("replicasets.apps \"{name}\" already exists");
            return Err(ApiError::status(409, reason::ALREADY_EXISTS, message));
        }
        Ok(set.clone())
    }

    async fn update_replica_set(&self, set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.record("update", "replicasets", &set.metadata.name, set)?;
        Ok(set.clone())
    }

    async fn update_replica_set_status(&self, set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.record("update", "replicasets/status", &set.metadata.name, set)?;
        Ok(set.clone())
    }

    async fn delete_replica_set(&self, key: &ObjectKey) -> Result<(), ApiError> {
        self.actions.record("delete", "replicasets", &key.name, None);
        Ok(())
    }

    async fn patch_replica_set(&self, key: &ObjectKey, patch: &OwnerPatch) -> Result<ReplicaSet, ApiError> {
        self.actions.record(
            "patch",
            "replicasets",
            &key.name,
            Some(("patch", patch_body(&patch.strategic_merge()))),
        );
        self.stored(key).cloned().ok_or_else(|| not_found("replicasets.apps", key))
    }
}
