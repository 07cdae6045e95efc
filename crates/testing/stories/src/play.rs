//! Plays a story.

use std::{path::PathBuf, time::Duration};

use kcm_invariants::Entry;
use serde_json::{Map, Value, json};
use serde_saphyr::Spanned;
use thiserror::Error;

use crate::{
    client::{StepError, StoryClient},
    cluster::{Activity, ClusterError, IDLE_INTERVAL, StoryCluster, wait_until_idle},
    recording::{Recording, StepWrites},
    step::{PatchForm, PodStatusReport, ReplicaSetStatusReport, Settle, Step},
    story::Story,
    target::{ObjectKind, Target, TargetName},
};

/// Error while playing a story.
#[derive(Debug, Error)]
pub enum PlayError {
    /// A step failed.
    #[error("{}:{line}: {cause}", file.display())]
    Step {
        /// Story file.
        file: PathBuf,
        /// Line of the step.
        line: u64,
        /// Cause.
        cause: StepError,
    },
    /// The namespace cannot be created.
    #[error("failed to create namespace {name:?}: {cause}")]
    Namespace {
        /// Name of the namespace.
        name: String,
        /// Cause.
        cause: StepError,
    },
    /// The story needs simulated nodes or fault injection.
    #[error("{}:1: the story requires the in-process cluster", file.display())]
    NeedsSimulation {
        /// Story file.
        file: PathBuf,
    },
    /// The manager cannot be started or stopped.
    #[error("{}: {cause}", file.display())]
    Cluster {
        /// Story file.
        file: PathBuf,
        /// Cause.
        cause: ClusterError,
    },
}

/// Time for the initial syncs of the manager.
const START_DELAY: Duration = Duration::from_millis(1450);

/// Maximum time to wait until the manager is idle; a manager that retries is never idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time without writes after which the cluster is settled. Longer than the default progress deadline.
const SETTLED: Duration = Duration::from_secs(11 * 60);

/// Time without writes that is required after the cluster has settled.
const SILENCE: Duration = Duration::from_secs(10 * 60);

/// Maximum time to settle.
const TIMEOUT: Duration = Duration::from_secs(2 * 3600);

/// Creates `namespace`, plays a story in it, and returns the writes of the manager.
///
/// The manager is started after the steps in `before` and stopped at the end. In simulated time, the cluster must settle
/// first and stay silent.
pub async fn play(
    story: &Story,
    cluster: &mut StoryCluster,
    namespace: &str,
) -> Result<Recording, PlayError> {
    let failed = |cause| PlayError::Cluster { file: story.file.clone(), cause };
    if story.needs_simulation() && cluster.checker().is_none() {
        return Err(PlayError::NeedsSimulation { file: story.file.clone() });
    }
    let api = cluster.api().clone();
    let mut player =
        Player { story, client: StoryClient::new(&api, namespace), cluster, namespace, steps: Vec::new() };
    player.create_namespace().await?;
    player.run_steps(&story.before).await?;
    player.cluster.log().clear();
    player.cluster.start_manager(&story.controllers).await.map_err(failed)?;
    let clock = player.cluster.clock();
    clock.sleep(START_DELAY).await;
    player.wait_until_idle().await;
    if story.before.is_empty() {
        player.cluster.log().clear();
    } else {
        player.settle(&Settle::labelled("on start")).await;
    }
    // The manager is stopped even if a step failed, so that the cluster can play another story.
    let result = player.run_steps(&story.steps).await;
    if result.is_ok() {
        player.settle_at_end().await;
    }
    player.cluster.stop_manager().await.map_err(failed)?;
    result?;
    let steps = player.steps;
    Ok(Recording { story: story.name.clone(), kubernetes: cluster.version().to_owned(), steps })
}

struct Player<'a> {
    story: &'a Story,
    client: StoryClient<'a>,
    cluster: &'a mut StoryCluster,
    namespace: &'a str,
    steps: Vec<StepWrites>,
}

impl Player<'_> {
    async fn create_namespace(&mut self) -> Result<(), PlayError> {
        let made = self.cluster.create_namespace(self.namespace).await;
        made.map_err(|cause| PlayError::Namespace { name: self.namespace.to_owned(), cause: cause.into() })
    }

    async fn run_steps(&mut self, steps: &[Spanned<Step>]) -> Result<(), PlayError> {
        for step in steps {
            if let Step::Repeat(repeat) = &step.value {
                for round in 1..=repeat.times {
                    self.client.round = Some(round);
                    Box::pin(self.run_steps(&repeat.steps)).await?;
                }
                self.client.round = None;
                continue;
            }
            if let Step::Attempt(steps) = &step.value {
                match Box::pin(self.run_steps(steps)).await {
                    Ok(()) | Err(PlayError::Step { .. }) => continue,
                    Err(error) => return Err(error),
                }
            }
            if let Some(checker) = self.cluster.checker() {
                checker.begin_step(&format!("{}:{}", self.story.file.display(), step.referenced.line()));
            }
            if let Step::RestartManager(_) = &step.value {
                let cluster = |cause| PlayError::Cluster { file: self.story.file.clone(), cause };
                self.cluster.stop_manager().await.map_err(cluster)?;
                self.cluster.start_manager(&self.story.controllers).await.map_err(cluster)?;
            }
            self.run_step(&step.value).await.map_err(|cause| PlayError::Step {
                file: self.story.file.clone(),
                line: step.referenced.line(),
                cause,
            })?;
        }
        Ok(())
    }

    async fn run_step(&mut self, step: &Step) -> Result<(), StepError> {
        self.execute(step).await?;
        if !matches!(step, Step::Settle(_) | Step::Wait(_) | Step::Until(_) | Step::Expect(_)) {
            self.wait_until_idle().await;
        }
        Ok(())
    }

    /// Waits until the manager is idle. Otherwise, results would depend on the relative speed of story and manager.
    async fn wait_until_idle(&self) {
        wait_until_idle(&*self.cluster.clock(), IDLE_TIMEOUT, || self.cluster.activity()).await;
    }

    async fn execute(&mut self, step: &Step) -> Result<(), StepError> {
        match step {
            Step::Create(object) => self.client.create(object).await,
            Step::Patch(patch) => {
                let part = patch.subresource.as_deref();
                self.client.patch(&patch.object, part, patch.form, &patch.body).await
            }
            Step::Scale(scale) => {
                let body = json!({"spec": {"replicas": scale.replicas}});
                self.client.patch(&scale.object, None, PatchForm::Merge, &body).await
            }
            Step::Delete(delete) => {
                let mut options = Map::new();
                if let Some(seconds) = delete.grace_period_seconds {
                    options.insert("gracePeriodSeconds".to_owned(), seconds.into());
                }
                if let Some(policy) = &delete.propagation_policy {
                    options.insert("propagationPolicy".to_owned(), policy.as_str().into());
                }
                self.client.delete(&delete.object, &options).await
            }
            Step::ReplicaSetStatus(report) => self.report_replica_sets(report).await,
            Step::PodStatus(report) => self.report_pods(report).await,
            Step::Bind(bind) => {
                let name = self.client.name(&bind.object).await?;
                let target = json!({"kind": "Node", "name": bind.node});
                let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
                self.client.post_below(&bind.object, "binding", &binding).await
            }
            Step::Settle(settle) => {
                let label = self.client.substitute_text(&settle.label).await?;
                self.settle(&Settle { label, ..settle.clone() }).await;
                Ok(())
            }
            Step::Wait(time) => {
                self.cluster.clock().sleep(*time).await;
                Ok(())
            }
            Step::SetImage(image) => self.client.set_image(image).await,
            Step::Undo(undo) => self.client.undo(undo).await,
            Step::Pause(target) => self.client.set_paused(target, true).await,
            Step::Resume(target) => self.client.set_paused(target, false).await,
            Step::Evict(target) => self.client.evict(target).await,
            Step::Drain(drain) => self.client.drain(drain, &*self.cluster.clock()).await,
            Step::Uncordon(node) => self.client.cordon(node, false).await,
            Step::LoseNode(node) => self.client.lose_node(node, &*self.cluster.clock()).await,
            Step::Until(expectation) => self.client.until(expectation, &*self.cluster.clock()).await,
            Step::Expect(expectation) => self.client.expect(expectation).await,
            // Handled by `run_steps`.
            Step::Repeat(_) | Step::Attempt(_) | Step::RestartManager(_) => Ok(()),
        }
    }

    /// Waits until the manager writes nothing more, then checks that it stays silent.
    async fn settle_at_end(&mut self) {
        let Some(checker) = self.cluster.checker().cloned() else { return };
        checker.begin_step(&format!("{}: the end", self.story.file.display()));
        let clock = self.cluster.clock();
        let end = clock.monotonic().saturating_add(TIMEOUT);
        if !self.is_silent_for(SETTLED, end).await {
            checker.unsettled(None);
        } else if let Some(write) = self.next_write_before(clock.monotonic().saturating_add(SILENCE)).await {
            checker.unsettled(Some(&write));
        }
        checker.end();
    }

    /// Waits for `silence` without writes. Returns `false` if there was none before `end`.
    async fn is_silent_for(&mut self, silence: Duration, end: Duration) -> bool {
        let clock = self.cluster.clock();
        while clock.monotonic() < end {
            let deadline = clock.monotonic().saturating_add(silence);
            if self.next_write_before(deadline).await.is_none() {
                return true;
            }
        }
        false
    }

    async fn next_write_before(&mut self, deadline: Duration) -> Option<Entry> {
        while let Some(entry) = self.cluster.log().next_before(deadline).await {
            if entry.is_write() {
                return Some(entry);
            }
        }
        None
    }

    /// Waits until the manager has written nothing for a time, and records its writes.
    async fn settle(&mut self, settle: &Settle) {
        let clock = self.cluster.clock();
        let end = clock.monotonic().saturating_add(settle.limit);
        let mut deadline = end.min(clock.monotonic().saturating_add(settle.quiet));
        let mut entries = Vec::new();
        loop {
            let before = self.cluster.activity();
            match self.cluster.log().next_before(deadline).await {
                Some(entry) if entry.is_write() => {
                    deadline = end.min(clock.monotonic().saturating_add(settle.quiet));
                    entries.push(entry);
                }
                Some(_) => {}
                // A busy manager is about to write.
                None if deadline < end && (before == Activity::Busy || self.cluster.activity() != before) => {
                    deadline = end.min(clock.monotonic().saturating_add(IDLE_INTERVAL));
                }
                None => break,
            }
        }
        self.steps.push(StepWrites::of(&settle.label, &entries, self.namespace));
    }

    async fn report_replica_sets(&mut self, report: &ReplicaSetStatusReport) -> Result<(), StepError> {
        for target in self.targets(ObjectKind::ReplicaSet, report.object.as_ref()).await? {
            let replica_set = self.client.get(&target).await?;
            let desired = &replica_set["spec"]["replicas"];
            let mut status = json!({
                "replicas": desired,
                "fullyLabeledReplicas": desired,
                "readyReplicas": desired,
                "availableReplicas": desired,
                "observedGeneration": replica_set["metadata"]["generation"],
            });
            let image = replica_set.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str);
            let by_image = image.and_then(|image| report.by_image.get(image));
            for (field, value) in report.status.iter().chain(by_image.into_iter().flatten()) {
                status[field.as_str()] = value.clone();
            }
            self.client.patch(&target, Some("status"), PatchForm::Merge, &json!({"status": status})).await?;
            self.wait_until_idle().await;
        }
        Ok(())
    }

    async fn report_pods(&mut self, report: &PodStatusReport) -> Result<(), StepError> {
        let ready = report.ready.unwrap_or(true);
        let phase = report.phase.as_deref().unwrap_or("Running");
        for target in self.targets(ObjectKind::Pod, report.object.as_ref()).await? {
            let now = self.cluster.clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let condition = json!({
                "type": "Ready",
                "status": if ready { "True" } else { "False" },
                "lastTransitionTime": now,
            });
            let container =
                json!({"name": "c", "image": "i", "imageID": "", "ready": ready, "restartCount": 0});
            let status = json!({"phase": phase, "conditions": [condition], "containerStatuses": [container]});
            self.client.patch(&target, Some("status"), PatchForm::Merge, &json!({"status": status})).await?;
            self.wait_until_idle().await;
        }
        Ok(())
    }

    async fn targets(&mut self, kind: ObjectKind, one: Option<&Target>) -> Result<Vec<Target>, StepError> {
        if let Some(target) = one {
            return Ok(vec![target.clone()]);
        }
        let named = |object: &Value| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            Target { kind, name: TargetName::Given(name) }
        };
        Ok(self.client.list(kind).await?.iter().map(named).collect())
    }
}
