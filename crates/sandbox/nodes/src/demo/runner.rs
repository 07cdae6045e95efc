//! Runs the steps of the demo and collects statistics.

use std::{collections::HashSet, sync::Arc, time::Duration};

use kcm_api::{Deployment, ReplicaSet};
use kcm_apiserver::{
    ApiServer, ApiStatus, DeleteOptions, DeletionPropagation, Object, Patch, Resource, WriteOptions,
};
use kcm_clock::Clock;
use kcm_rollouts::diagnose;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    frame::{Frame, RolloutBounds},
    output::{DemoError, DemoOutput, NAME, NAMESPACE, RolloutStats, STEP_TIMEOUT, Summary},
};
use crate::{
    api::{Api, Change, Changes},
    rollouts::rollout_snapshot,
};

pub(super) struct DemoRunner<'a> {
    server: Arc<ApiServer>,
    api: Api,
    clock: Arc<dyn Clock>,
    output: &'a mut dyn DemoOutput,
    changes: Changes,
    /// UIDs of all objects seen.
    seen: HashSet<String>,
    stats: RolloutStats,
    first_revision: u64,
    step: String,
    began: Duration,
    steps: Vec<(String, Duration)>,
}

impl<'a> DemoRunner<'a> {
    pub(super) fn new(server: Arc<ApiServer>, clock: Arc<dyn Clock>, output: &'a mut dyn DemoOutput) -> Self {
        let api = Api::new(Arc::clone(&server), Arc::clone(&clock));
        let (changes, first_revision, began) = (api.watch(None), server.revision(), clock.monotonic());
        Self {
            server,
            api,
            clock,
            output,
            changes,
            seen: HashSet::new(),
            stats: RolloutStats::default(),
            first_revision,
            step: String::new(),
            began,
            steps: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, title: &str) {
        self.close_step();
        self.step = title.to_owned();
        self.output.step(title);
    }

    fn close_step(&mut self) {
        let now = self.clock.monotonic();
        if !self.step.is_empty() {
            self.steps.push((std::mem::take(&mut self.step), now.saturating_sub(self.began)));
        }
        self.began = now;
    }

    pub(super) fn end(mut self) -> Summary {
        self.close_step();
        self.stats.revisions = self.server.revision() - self.first_revision;
        Summary { steps: self.steps, stats: self.stats }
    }

    pub(super) fn create(&self, deployment: &Value) -> Result<(), ApiStatus> {
        let options = WriteOptions::default();
        self.server.create(Resource::DEPLOYMENTS, NAMESPACE, deployment.clone(), &options).map(drop)
    }

    pub(super) fn patch(&self, patch: &Value) -> Result<(), ApiStatus> {
        let (patch, options) = (Patch::strategic(patch.clone()), WriteOptions::default());
        self.server.patch(Resource::DEPLOYMENTS, NAMESPACE, NAME, None, patch, &options).map(drop)
    }

    pub(super) fn delete(&self) -> Result<(), ApiStatus> {
        let options =
            DeleteOptions { propagation: Some(DeletionPropagation::Background), ..DeleteOptions::default() };
        self.server.delete(Resource::DEPLOYMENTS, NAMESPACE, NAME, &options).map(drop)
    }

    /// Waits until `done` returns `true`.
    pub(super) async fn until(&mut self, done: impl Fn(&Frame) -> bool + Send) -> Result<(), DemoError> {
        self.wait(done, false).await
    }

    /// Like [`until`](Self::until), and counts the states that violate the bounds of the rolling update.
    pub(super) async fn until_within_bounds(
        &mut self,
        done: impl Fn(&Frame) -> bool + Send,
    ) -> Result<(), DemoError> {
        self.wait(done, true).await
    }

    async fn wait(
        &mut self,
        done: impl Fn(&Frame) -> bool + Send,
        check_bounds: bool,
    ) -> Result<(), DemoError> {
        let deadline = self.began + STEP_TIMEOUT;
        let mut shown: Option<Frame> = None;
        loop {
            let frame = self.observe()?;
            if check_bounds {
                self.check(&frame);
            }
            if shown.as_ref() != Some(&frame) {
                self.output.frame(&frame);
                if done(&frame) {
                    return Ok(());
                }
                // Changes during this pause are part of the next frame.
                self.clock.sleep(self.output.frame_interval()).await;
                shown = Some(frame);
            }
            let left = deadline.saturating_sub(self.clock.monotonic());
            let change = tokio::select! {
                change = self.changes.next() => change,
                () = self.clock.sleep(left) => None,
            };
            let Some(change) = change else {
                let last = shown.map(|frame| frame.line()).unwrap_or_default();
                return Err(DemoError::Timeout { step: self.step.clone(), last });
            };
            self.count(&change);
            let mut rest = Vec::new();
            self.changes.drain(|change| rest.push(change.clone())).await;
            for change in &rest {
                self.count(change);
            }
        }
    }

    fn count(&mut self, change: &Change) {
        let object = &change.object;
        let created = !change.deleted && self.seen.insert(object.uid().to_owned());
        match object.resource() {
            Resource::PODS if created => self.stats.pods_created += 1,
            Resource::PODS if change.deleted => self.stats.pods_deleted += 1,
            Resource::REPLICA_SETS if created => self.stats.replica_sets += 1,
            _ => {}
        }
    }

    fn check(&mut self, frame: &Frame) {
        let Some(deployment) = &frame.deployment else { return };
        let bounds = RolloutBounds::of(deployment);
        let desired: i32 = frame.replica_sets.iter().map(ReplicaSet::replicas).sum();
        self.stats.above_max += usize::from(desired > bounds.max_total);
        self.stats.below_min += usize::from(deployment.status.available_replicas < bounds.min_available);
    }

    fn observe(&self) -> Result<Frame, DemoError> {
        let (deployment, diagnosis) = match self.server.get(Resource::DEPLOYMENTS, NAMESPACE, NAME) {
            Ok(object) => {
                let snapshot = rollout_snapshot(&self.server, NAMESPACE);
                let diagnosis = diagnose(&snapshot, object.value(), self.clock.now())?;
                (Some(decode::<Deployment>(&object)?), Some(diagnosis))
            }
            Err(error) if error.is_not_found() => (None, None),
            Err(error) => return Err(error.into()),
        };
        let sets = self.api.list(Resource::REPLICA_SETS, NAMESPACE);
        let mut replica_sets = sets.iter().map(|set| decode(set)).collect::<Result<Vec<ReplicaSet>, _>>()?;
        replica_sets.sort_by(|a, b| {
            let of = |set: &ReplicaSet| (set.metadata.creation_timestamp, Arc::clone(&set.metadata.name));
            of(a).cmp(&of(b))
        });
        let pods = self.api.list(Resource::PODS, NAMESPACE);
        let terminating = pods.iter().filter(|pod| pod.is_deleting()).count();
        Ok(Frame { deployment, replica_sets, pods: pods.len(), terminating, diagnosis })
    }
}

fn decode<T: DeserializeOwned>(object: &Object) -> Result<T, DemoError> {
    serde_json::from_value(object.value().clone())
        .map_err(|source| DemoError::Decode { what: format!("{object:?}"), source })
}
