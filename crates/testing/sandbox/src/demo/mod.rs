//! A rollout story, told while it happens: apply, roll, get stuck, roll back, scale in the middle, delete.

mod stage;
mod table;

use std::{fmt, sync::Arc, time::Duration};

use kcm_apiserver::{ApiServer, ApiStatus};
use kcm_clock::Clock;
use serde_json::{Value, json};
use thiserror::Error;

use self::stage::Stage;
pub use self::{
    stage::Tally,
    table::{Bounds, Frame},
};

/// The namespace in which the story plays.
const NAMESPACE: &str = "default";
/// Its hero.
const NAME: &str = "web";
/// How long a chapter may take before something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// Shows the story.
pub trait Show: Send {
    /// A new chapter begins.
    fn chapter(&mut self, title: &str);
    /// The Deployment has changed.
    fn frame(&mut self, frame: &Frame);
    /// At most so often a frame is worth showing.
    fn frame_interval(&self) -> Duration;
}

/// Why the story did not come to its end.
#[derive(Debug, Error)]
pub enum DemoError {
    /// The server refused something.
    #[error("{0}")]
    Api(#[from] ApiStatus),
    /// Something did not happen.
    #[error("\"{chapter}\" did not come to its end within {PATIENCE:?}; last seen: {last}")]
    Stuck {
        /// In which chapter.
        chapter: String,
        /// What was to be seen.
        last: String,
    },
    /// An object is not what it should be.
    #[error("cannot read {what}: {source}")]
    Decode {
        /// The object.
        what: String,
        /// Why not.
        source: serde_json::Error,
    },
}

/// What came of it.
#[derive(Debug)]
pub struct Summary {
    /// How long each chapter took.
    pub chapters: Vec<(String, Duration)>,
    /// What was counted meanwhile.
    pub tally: Tally,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, took) in &self.chapters {
            writeln!(f, "{:>6.1}s  {title}", took.as_secs_f64())?;
        }
        let Tally { replica_sets, pods_created, pods_deleted, revisions, over, under } = &self.tally;
        writeln!(
            f,
            "{replica_sets} replica sets, {pods_created} pods created, {pods_deleted} deleted, {revisions} writes to \
             the server"
        )?;
        write!(
            f,
            "rolling without scaling: {over} times more pods than the surge allows, {under} times fewer available \
             than promised"
        )
    }
}

/// Plays the story on `server`, around which stand-ins and controllers must be running.
///
/// # Errors
///
/// When the server refuses something, or something that should happen does not.
pub async fn play(
    server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    show: &mut dyn Show,
) -> Result<Summary, DemoError> {
    let mut stage = Stage::new(server, clock, show);

    stage.begin("apply a Deployment: six replicas of nginx:1.26");
    stage.create(&deployment())?;
    stage.until(complete).await?;

    stage.begin("roll to nginx:1.27");
    stage.patch(&set_image("nginx:1.27"))?;
    stage.until_within_bounds(|frame| rolled_to(frame, 2)).await?;

    stage.begin("roll to nginx:broken, which never starts; the progress deadline is 5 s");
    stage.patch(&set_image("nginx:broken"))?;
    stage.until_within_bounds(deadline_exceeded).await?;

    stage.begin("roll back to nginx:1.27, revision 2, which becomes revision 4");
    stage.patch(&set_image("nginx:1.27"))?;
    stage.until_within_bounds(|frame| rolled_to(frame, 4)).await?;

    stage.begin("roll to nginx:1.28, and scale from 6 to 12 in the middle");
    stage.patch(&set_image("nginx:1.28"))?;
    stage.until_within_bounds(half_way).await?;
    stage.patch(&json!({ "spec": { "replicas": 12 } }))?;
    stage.until(|frame| rolled_to(frame, 5)).await?;

    stage.begin("delete the Deployment; the garbage collector takes what it owned");
    stage.delete()?;
    stage
        .until(|frame| frame.deployment.is_none() && frame.replica_sets.is_empty() && frame.pods == 0)
        .await?;

    Ok(stage.end())
}

fn deployment() -> Value {
    json!({
        "metadata": { "name": NAME, "labels": { "app": NAME } },
        "spec": {
            "replicas": 6,
            "progressDeadlineSeconds": 5,
            "selector": { "matchLabels": { "app": NAME } },
            "template": {
                "metadata": { "labels": { "app": NAME } },
                "spec": { "containers": [{ "name": NAME, "image": "nginx:1.26" }] },
            },
        },
    })
}

/// What `kubectl set image` sends.
fn set_image(image: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [{ "name": NAME, "image": image }] } } } })
}

fn reason(frame: &Frame) -> &str {
    frame
        .deployment
        .as_ref()
        .and_then(|d| d.condition("Progressing"))
        .map_or("", |condition| &condition.reason)
}

/// All pods are new and available, and the controller has said so.
fn complete(frame: &Frame) -> bool {
    let Some(deployment) = &frame.deployment else { return false };
    let (status, wanted) = (&deployment.status, deployment.replicas());
    status.observed_generation >= deployment.metadata.generation
        && [status.replicas, status.updated_replicas, status.available_replicas]
            .iter()
            .all(|count| *count == wanted)
        && reason(frame) == "NewReplicaSetAvailable"
        && frame.terminating == 0
}

fn rolled_to(frame: &Frame, revision: u32) -> bool {
    let is = frame
        .deployment
        .as_ref()
        .and_then(|d| d.metadata.annotations.get("deployment.kubernetes.io/revision"));
    complete(frame) && is.is_some_and(|is| *is == revision.to_string())
}

/// The newest ReplicaSet has some pods that work, and others have too.
fn half_way(frame: &Frame) -> bool {
    let available = |set: &kcm_api::ReplicaSet| set.status.available_replicas > 0;
    frame.replica_sets.last().is_some_and(available)
        && frame.replica_sets.iter().filter(|set| available(set)).count() > 1
}

fn deadline_exceeded(frame: &Frame) -> bool {
    reason(frame) == "ProgressDeadlineExceeded"
}
