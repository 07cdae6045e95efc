//! Doing what a story says.

use std::{path::PathBuf, time::Duration};

use serde_json::{Map, Value, json};
use serde_saphyr::Spanned;
use thiserror::Error;

use crate::{
    recording::{Recording, StepWrites},
    stage::{Stage, StageError},
    step::{Kind, Name, PatchForm, PodStatus, ReplicaSetStatus, Settle, Step, Target},
    story::Story,
    trail::Entry,
    world::{Activity, BREATH, World, WorldError, come_to_rest},
};

/// A story that could not be played to its end.
#[derive(Debug, Error)]
pub enum PlayError {
    /// A step could not be taken.
    #[error("{}:{line}: {cause}", file.display())]
    Step {
        /// The story's file.
        file: PathBuf,
        /// The step's line.
        line: u64,
        /// Why not.
        cause: StageError,
    },
    /// There is no namespace to play in.
    #[error("cannot make the namespace {name}: {cause}")]
    Namespace {
        /// Its name.
        name: String,
        /// Why not.
        cause: StageError,
    },
    /// The story needs simulated nodes, or a server that does harm on purpose.
    #[error("{}:1: the story can be played in simulated time only", file.display())]
    NeedsSimulation {
        /// The story's file.
        file: PathBuf,
    },
    /// The manager does not do as it is told.
    #[error("{}: {cause}", file.display())]
    World {
        /// The story's file.
        file: PathBuf,
        /// What is wrong.
        cause: WorldError,
    },
}

/// A manager that is ready may still be at what it finds.
const AFTER_START: Duration = Duration::from_millis(1450);

/// A manager that does not come to rest, such as one that tries again and again, is not waited for any longer.
const REST: Duration = Duration::from_secs(2);

/// Who has written nothing for so long has settled. It is longer than the progress deadline that Deployments have
/// unless they say otherwise.
const SETTLED: Duration = Duration::from_secs(11 * 60);

/// And has nothing to write for so long.
const SILENCE: Duration = Duration::from_secs(10 * 60);

/// What is not settled by then never will be.
const PATIENCE: Duration = Duration::from_secs(2 * 3600);

/// Plays a story in a namespace of its own, which is made for it, and answers with what the manager wrote.
///
/// The manager is started when the time has come, and stopped at the end. In simulated time it is given time to settle
/// first, and is then to be silent.
///
/// # Errors
///
/// When the server refuses a step, or the manager cannot be started.
pub async fn play(story: &Story, world: &mut World, namespace: &str) -> Result<Recording, PlayError> {
    let failed = |cause| PlayError::World { file: story.file.clone(), cause };
    if story.needs_simulation() && world.guard().is_none() {
        return Err(PlayError::NeedsSimulation { file: story.file.clone() });
    }
    let api = world.api().clone();
    let mut player =
        Player { story, stage: Stage::new(&api, namespace), world, namespace, steps: Vec::new() };
    player.make_namespace().await?;
    player.take_all(&story.before).await?;
    player.world.trail().clear();
    player.world.start_manager(&story.controllers).await.map_err(failed)?;
    let clock = player.world.clock();
    clock.sleep(AFTER_START).await;
    player.breathe().await;
    if story.before.is_empty() {
        player.world.trail().clear();
    } else {
        player.settle(&Settle::labelled("on start")).await;
    }
    // Stopped in any case: the next story wants the place.
    let outcome = player.take_all(&story.steps).await;
    if outcome.is_ok() {
        player.settle_for_good().await;
    }
    player.world.stop_manager().await.map_err(failed)?;
    outcome?;
    let steps = player.steps;
    Ok(Recording { story: story.name.clone(), kubernetes: world.version().to_owned(), steps })
}

struct Player<'a> {
    story: &'a Story,
    stage: Stage<'a>,
    world: &'a mut World,
    namespace: &'a str,
    steps: Vec<StepWrites>,
}

impl Player<'_> {
    async fn make_namespace(&mut self) -> Result<(), PlayError> {
        let made = self.world.make_namespace(self.namespace).await;
        made.map_err(|cause| PlayError::Namespace { name: self.namespace.to_owned(), cause: cause.into() })
    }

    async fn take_all(&mut self, steps: &[Spanned<Step>]) -> Result<(), PlayError> {
        for step in steps {
            if let Step::Repeat(repeat) = &step.value {
                for round in 1..=repeat.times {
                    self.stage.round = Some(round);
                    Box::pin(self.take_all(&repeat.steps)).await?;
                }
                self.stage.round = None;
                continue;
            }
            if let Step::Attempt(steps) = &step.value {
                match Box::pin(self.take_all(steps)).await {
                    Ok(()) | Err(PlayError::Step { .. }) => continue,
                    Err(error) => return Err(error),
                }
            }
            if let Some(guard) = self.world.guard() {
                guard.begin_step(&format!("{}:{}", self.story.file.display(), step.referenced.line()));
            }
            if let Step::RestartManager(_) = &step.value {
                let world = |cause| PlayError::World { file: self.story.file.clone(), cause };
                self.world.stop_manager().await.map_err(world)?;
                self.world.start_manager(&self.story.controllers).await.map_err(world)?;
            }
            self.take(&step.value).await.map_err(|cause| PlayError::Step {
                file: self.story.file.clone(),
                line: step.referenced.line(),
                cause,
            })?;
        }
        Ok(())
    }

    async fn take(&mut self, step: &Step) -> Result<(), StageError> {
        self.act(step).await?;
        if !matches!(step, Step::Settle(_) | Step::Wait(_) | Step::Until(_) | Step::Expect(_)) {
            self.breathe().await;
        }
        Ok(())
    }

    /// Gives the manager the time to act on what it has been shown. Without it the outcome would depend on who is faster,
    /// the story or the manager, and upstream was recorded by a story that was slower.
    async fn breathe(&self) {
        come_to_rest(&*self.world.clock(), REST, || self.world.activity()).await;
    }

    async fn act(&mut self, step: &Step) -> Result<(), StageError> {
        match step {
            Step::Create(object) => self.stage.create(object).await,
            Step::Patch(patch) => {
                let part = patch.subresource.as_deref();
                self.stage.patch(&patch.object, part, patch.form, &patch.body).await
            }
            Step::Scale(scale) => {
                let body = json!({"spec": {"replicas": scale.replicas}});
                self.stage.patch(&scale.object, None, PatchForm::Merge, &body).await
            }
            Step::Delete(delete) => {
                let mut options = Map::new();
                if let Some(seconds) = delete.grace_period_seconds {
                    options.insert("gracePeriodSeconds".to_owned(), seconds.into());
                }
                if let Some(policy) = &delete.propagation_policy {
                    options.insert("propagationPolicy".to_owned(), policy.as_str().into());
                }
                self.stage.delete(&delete.object, &options).await
            }
            Step::ReplicaSetStatus(report) => self.report_replica_sets(report).await,
            Step::PodStatus(report) => self.report_pods(report).await,
            Step::Bind(bind) => {
                let name = self.stage.name(&bind.object).await?;
                let target = json!({"kind": "Node", "name": bind.node});
                let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
                self.stage.post_below(&bind.object, "binding", &binding).await
            }
            Step::Settle(settle) => {
                let label = self.stage.substitute_text(&settle.label).await?;
                self.settle(&Settle { label, ..settle.clone() }).await;
                Ok(())
            }
            Step::Wait(time) => {
                self.world.clock().sleep(*time).await;
                Ok(())
            }
            Step::SetImage(image) => self.stage.set_image(image).await,
            Step::Undo(undo) => self.stage.undo(undo).await,
            Step::Pause(target) => self.stage.set_paused(target, true).await,
            Step::Resume(target) => self.stage.set_paused(target, false).await,
            Step::Evict(target) => self.stage.evict(target).await,
            Step::Drain(drain) => self.stage.drain(drain, &*self.world.clock()).await,
            Step::Uncordon(node) => self.stage.cordon(node, false).await,
            Step::LoseNode(node) => self.stage.lose_node(node, &*self.world.clock()).await,
            Step::Until(look) => self.stage.until(look, &*self.world.clock()).await,
            Step::Expect(look) => self.stage.expect(look).await,
            // Dealt with above.
            Step::Repeat(_) | Step::Attempt(_) | Step::RestartManager(_) => Ok(()),
        }
    }

    /// Waits until the manager has nothing more to do, and then for a while longer: there must be nothing.
    async fn settle_for_good(&mut self) {
        let Some(guard) = self.world.guard().cloned() else { return };
        guard.begin_step(&format!("{}: the end", self.story.file.display()));
        let clock = self.world.clock();
        let end = clock.monotonic().saturating_add(PATIENCE);
        if !self.is_silent_for(SETTLED, end).await {
            guard.unsettled(None);
        } else if let Some(write) = self.next_write_before(clock.monotonic().saturating_add(SILENCE)).await {
            guard.unsettled(Some(&write));
        }
        guard.end();
    }

    /// Waits for a time of `silence`; says whether there was one before `end`.
    async fn is_silent_for(&mut self, silence: Duration, end: Duration) -> bool {
        let clock = self.world.clock();
        while clock.monotonic() < end {
            let deadline = clock.monotonic().saturating_add(silence);
            if self.next_write_before(deadline).await.is_none() {
                return true;
            }
        }
        false
    }

    async fn next_write_before(&mut self, deadline: Duration) -> Option<Entry> {
        while let Some(entry) = self.world.trail().next_before(deadline).await {
            if entry.is_write() {
                return Some(entry);
            }
        }
        None
    }

    /// Waits until the manager has written nothing for a while, and files what it has written.
    async fn settle(&mut self, settle: &Settle) {
        let clock = self.world.clock();
        let end = clock.monotonic().saturating_add(settle.limit);
        let mut deadline = end.min(clock.monotonic().saturating_add(settle.quiet));
        let mut entries = Vec::new();
        loop {
            let before = self.world.activity();
            match self.world.trail().next_before(deadline).await {
                Some(entry) if entry.is_write() => {
                    deadline = end.min(clock.monotonic().saturating_add(settle.quiet));
                    entries.push(entry);
                }
                Some(_) => {}
                // One that is at something is about to write.
                None if deadline < end && (before == Activity::Busy || self.world.activity() != before) => {
                    deadline = end.min(clock.monotonic().saturating_add(BREATH));
                }
                None => break,
            }
        }
        self.steps.push(StepWrites::of(&settle.label, &entries, self.namespace));
    }

    async fn report_replica_sets(&mut self, report: &ReplicaSetStatus) -> Result<(), StageError> {
        for target in self.which(Kind::ReplicaSet, report.object.as_ref()).await? {
            let replica_set = self.stage.get(&target).await?;
            let wanted = &replica_set["spec"]["replicas"];
            let well = json!({
                "replicas": wanted,
                "fullyLabeledReplicas": wanted,
                "readyReplicas": wanted,
                "availableReplicas": wanted,
                "observedGeneration": replica_set["metadata"]["generation"],
            });
            let image = replica_set.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str);
            let by_image = image.and_then(|image| report.by_image.get(image));
            let mut status = well;
            for (field, value) in report.status.iter().chain(by_image.into_iter().flatten()) {
                status[field.as_str()] = value.clone();
            }
            self.stage.patch(&target, Some("status"), PatchForm::Merge, &json!({"status": status})).await?;
            self.breathe().await;
        }
        Ok(())
    }

    async fn report_pods(&mut self, report: &PodStatus) -> Result<(), StageError> {
        let ready = report.ready.unwrap_or(true);
        let phase = report.phase.as_deref().unwrap_or("Running");
        for target in self.which(Kind::Pod, report.object.as_ref()).await? {
            let now = self.world.clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let condition = json!({
                "type": "Ready",
                "status": if ready { "True" } else { "False" },
                "lastTransitionTime": now,
            });
            let container =
                json!({"name": "c", "image": "i", "imageID": "", "ready": ready, "restartCount": 0});
            let status = json!({"phase": phase, "conditions": [condition], "containerStatuses": [container]});
            self.stage.patch(&target, Some("status"), PatchForm::Merge, &json!({"status": status})).await?;
            self.breathe().await;
        }
        Ok(())
    }

    async fn which(&mut self, kind: Kind, one: Option<&Target>) -> Result<Vec<Target>, StageError> {
        if let Some(target) = one {
            return Ok(vec![target.clone()]);
        }
        let named = |object: &Value| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            Target { kind, name: Name::Given(name) }
        };
        Ok(self.stage.list(kind).await?.iter().map(named).collect())
    }
}
