//! Demo scenario: create, roll out, exceed the progress deadline, roll back, scale during a rollout, delete.

mod frame;
mod output;
mod runner;

use std::sync::Arc;

use kcm_apiserver::ApiServer;
use kcm_clock::Clock;
use serde_json::{Value, json};

pub use self::{
    frame::{Frame, RolloutBounds},
    output::{DemoError, DemoOutput, RolloutStats, Summary},
};
use self::{output::NAME, runner::DemoRunner};

/// Runs the scenario on `server`. Simulated components and controllers must be running.
///
/// # Errors
///
/// [`DemoError`] if the server rejects a request or a step does not complete within one minute.
pub async fn run(
    server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    output: &mut dyn DemoOutput,
) -> Result<Summary, DemoError> {
    let mut runner = DemoRunner::new(server, clock, output);

    runner.begin("create a Deployment with 6 replicas of nginx:1.26");
    runner.create(&deployment())?;
    runner.until(complete).await?;

    runner.begin("roll out nginx:1.27");
    runner.patch(&set_image("nginx:1.27"))?;
    runner.until_within_bounds(|frame| rolled_to(frame, 2)).await?;

    runner.begin("roll out nginx:broken, which never starts; the progress deadline is 5s");
    runner.patch(&set_image("nginx:broken"))?;
    runner.until_within_bounds(deadline_exceeded).await?;

    runner.begin("roll back to nginx:1.27; revision 2 becomes revision 4");
    runner.patch(&set_image("nginx:1.27"))?;
    runner.until_within_bounds(|frame| rolled_to(frame, 4)).await?;

    runner.begin("roll out nginx:1.28 and scale from 6 to 12 replicas during the rollout");
    runner.patch(&set_image("nginx:1.28"))?;
    runner.until_within_bounds(half_way).await?;
    runner.patch(&json!({ "spec": { "replicas": 12 } }))?;
    runner.until(|frame| rolled_to(frame, 5)).await?;

    runner.begin("delete the Deployment; the garbage collector deletes its ReplicaSets and pods");
    runner.delete()?;
    runner
        .until(|frame| frame.deployment.is_none() && frame.replica_sets.is_empty() && frame.pods == 0)
        .await?;

    Ok(runner.end())
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

/// Patch that `kubectl set image` sends.
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

/// `true` if all pods are updated and available and the controller has reported it.
fn complete(frame: &Frame) -> bool {
    let Some(deployment) = &frame.deployment else { return false };
    let (status, desired) = (&deployment.status, deployment.replicas());
    status.observed_generation >= deployment.metadata.generation
        && [status.replicas, status.updated_replicas, status.available_replicas]
            .iter()
            .all(|count| *count == desired)
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

/// `true` if the newest ReplicaSet and at least one other have available pods.
fn half_way(frame: &Frame) -> bool {
    let available = |set: &kcm_api::ReplicaSet| set.status.available_replicas > 0;
    frame.replica_sets.last().is_some_and(available)
        && frame.replica_sets.iter().filter(|set| available(set)).count() > 1
}

fn deadline_exceeded(frame: &Frame) -> bool {
    reason(frame) == "ProgressDeadlineExceeded"
}
