//! Managers in a cluster of the size of the largest ones: [`PODS_EACH`] pods of each of many Deployments.
//!
//! | measurement | method |
//! |---|---|
//! | start, memory | as for the other clusters, with all objects |
//! | mass rollout | new image for [`ROLLED`] Deployments at once, until all pods are updated and available |
//! | pods of a node | deletion of [`NODE_PODS`] pods of as many Deployments at once, until each is replaced by a ready pod |
//! | relist | restart of the API server: its watch cache does not contain the last revisions of the manager's caches |
//! | takeover | time from SIGTERM of the leader to the first write of the standby |

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::StreamExt as _;
use kcm_api::{Deployment, Pod};
use kcm_client::{ListParams, Request};
use kcm_informer::{WatchEvent, WatchOptions};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};

use super::{
    load_cluster::{DEPLOYMENTS, LoadCluster, PODS},
    manager::{ManagerProgram, RunningManager},
    server::resource_version,
    steady::takeover_time,
    workload::deployment,
};
use crate::{error::TaskError, measure::Measure};

/// Minimum and maximum number of Deployments: each of two managers changes [`ROLLED`] of them.
pub(super) const MIN: usize = 2 * ROLLED;
pub(super) const MAX: usize = 20_000;
/// Number of pods of a Deployment.
const PODS_EACH: usize = 10;
/// Number of Deployments whose image changes at once.
const ROLLED: usize = 1_000;
/// Number of pods that are deleted at once: the default limit of a node.
const NODE_PODS: usize = 110;
/// Number of concurrent requests that create, change and delete objects.
const REQUESTS: usize = 16;
/// Timeout of a step.
const TIMEOUT: Duration = Duration::from_secs(1_800);
/// Interval of status checks while the cluster is created.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
const MIB: f64 = 1024.0 * 1024.0;

/// Creates `deployments` Deployments, and runs `manager` until all pods are available. Prints the progress.
pub(super) async fn fill(
    cluster: &LoadCluster,
    manager: &ManagerProgram,
    deployments: usize,
) -> Result<(), TaskError> {
    let manager = cluster.start(manager, &["--leader-elect=false"])?;
    let create = |at| Request::post(DEPLOYMENTS, deployment(&name(at), PODS_EACH).to_string());
    send_all(cluster, (0..deployments).map(create)).await?;
    let deadline = cluster.now() + TIMEOUT;
    loop {
        let list = cluster.get(&format!("{DEPLOYMENTS}?resourceVersion=0")).await?;
        let available = |deployment: &Value| deployment["status"]["availableReplicas"].as_u64().unwrap_or(0);
        let available: u64 = list["items"].as_array().into_iter().flatten().map(available).sum();
        eprintln!("{available} of {} pods are available", deployments * PODS_EACH);
        if available == (deployments * PODS_EACH) as u64 {
            manager.idle(cluster.clock()).await?;
            return manager.end().await;
        }
        if cluster.now() > deadline {
            return Err(TaskError::Late("creation of pods".to_owned()));
        }
        cluster.pause(POLL_INTERVAL).await;
    }
}

/// Measures a manager. `turn` is its number: each manager changes other Deployments.
pub(super) async fn measure(
    cluster: &mut LoadCluster,
    manager: &ManagerProgram,
    turn: usize,
) -> Result<Vec<Measure>, TaskError> {
    let program = manager;
    let probe = cluster.probe().await?;
    let manager = cluster.start(program, &["--leader-elect=false"])?;
    let start = probe.seen().await?;
    let busy = manager.idle(cluster.clock()).await?;
    let (resident, peak) = manager.resident()?;
    let mut measures = vec![
        Measure::new("start to first write", "s", start.as_secs_f64()),
        Measure::new("CPU time until idle", "s", busy.as_secs_f64()),
        Measure::new("memory", "MiB", resident as f64 / MIB),
        Measure::new("maximum memory", "MiB", peak as f64 / MIB),
    ];
    let rolled = turn * ROLLED..(turn + 1) * ROLLED;
    eprintln!("{}: new image for {ROLLED} Deployments", program.name);
    let step = Step::start(&manager)?;
    let times = roll(cluster, rolled.clone().map(name).collect()).await?;
    step.end(cluster, &manager, &format!("new image for {ROLLED} Deployments"), &times, &mut measures)
        .await?;

    eprintln!("{}: deletion of {NODE_PODS} pods", program.name);
    let pods = one_pod_each(cluster, rolled.map(name).take(NODE_PODS)).await?;
    let step = Step::start(&manager)?;
    let times = replace(cluster, &pods).await?;
    step.end(cluster, &manager, &format!("{NODE_PODS} pods deleted, until replaced"), &times, &mut measures)
        .await?;

    eprintln!("{}: restart of the API server", program.name);
    let step = Step::start(&manager)?;
    cluster.restart_server().await?;
    step.end(cluster, &manager, "relist", &[], &mut measures).await?;
    manager.end().await?;

    eprintln!("{}: takeover", program.name);
    let duration = takeover_time(cluster, program, false).await?;
    measures.push(Measure::new("takeover after SIGTERM", "s", duration.as_secs_f64()));
    Ok(measures)
}

/// A measured step of a running manager.
struct Step {
    busy: Duration,
}

impl Step {
    fn start(manager: &RunningManager) -> Result<Self, TaskError> {
        manager.reset_peak()?;
        Ok(Self { busy: manager.processor_time()? })
    }

    /// Waits until the manager is idle. Adds its CPU time and memory, and the given times of objects.
    async fn end(
        self,
        cluster: &LoadCluster,
        manager: &RunningManager,
        what: &str,
        times: &[Duration],
        measures: &mut Vec<Measure>,
    ) -> Result<(), TaskError> {
        if let (Some(median), Some(late), Some(last)) =
            (times.get(times.len() / 2), times.get(times.len() * 99 / 100), times.last())
        {
            for (quantile, time) in [("median", median), ("99th percentile", late), ("all", last)] {
                measures.push(Measure::new(format!("{what}: {quantile}"), "s", time.as_secs_f64()));
            }
        }
        let busy = manager.idle(cluster.clock()).await?.saturating_sub(self.busy);
        measures.push(Measure::new(format!("{what}: CPU time"), "s", busy.as_secs_f64()));
        measures.push(Measure::new(
            format!("{what}: maximum memory"),
            "MiB",
            manager.resident()?.1 as f64 / MIB,
        ));
        Ok(())
    }
}

/// Sets another image of these Deployments. Returns the time until each is complete, shortest first.
async fn roll(cluster: &LoadCluster, names: BTreeSet<String>) -> Result<Vec<Duration>, TaskError> {
    let deployments = cluster.api.api::<Deployment>().list_watch(ListParams::default());
    let since = resource_version(&cluster.api, DEPLOYMENTS).await?;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}});
    let image = image.to_string();
    let start = cluster.now();
    let patch =
        |name: &String| Request::strategic_merge_patch(format!("{DEPLOYMENTS}/{name}"), image.clone());
    let patches = send_all(cluster, names.iter().map(patch));
    let complete = async {
        let mut times = BTreeMap::new();
        let mut events = deployments.watch(&watch_from(since)).await?;
        while times.len() < names.len() {
            let Some(event) = events.next().await.transpose()? else { break };
            let WatchEvent::Modified(deployment) = event else { continue };
            let (name, generation) = (deployment.metadata.name.to_string(), deployment.metadata.generation);
            let (desired, status) = (deployment.spec.replicas.unwrap_or(1), &deployment.status);
            let counts = [status.replicas, status.updated_replicas, status.available_replicas];
            // The first generation is that of the old image.
            let is_complete =
                generation > 1 && status.observed_generation == generation && counts == [desired; 3];
            if is_complete && names.contains(&name) {
                times.entry(name).or_insert_with(|| cluster.now().saturating_sub(start));
            }
        }
        Ok::<_, TaskError>(sorted(times.into_values()))
    };
    let (patched, times) = in_time("mass rollout", async { tokio::join!(patches, complete) }).await?;
    patched?;
    times
}

/// Deletes pods. Returns the time until each is replaced by a ready pod, shortest first.
async fn replace(cluster: &LoadCluster, names: &[String]) -> Result<Vec<Duration>, TaskError> {
    let pods = cluster.api.api::<Pod>().list_watch(ListParams::default());
    let since = resource_version(&cluster.api, PODS).await?;
    let start = cluster.now();
    let delete = |name: &String| Request::delete(format!("{PODS}/{name}"), Vec::new());
    let deletes = send_all(cluster, names.iter().map(delete));
    let replaced = async {
        let (mut new, mut times) = (BTreeSet::new(), Vec::new());
        let mut events = pods.watch(&watch_from(since)).await?;
        while times.len() < names.len() {
            let Some(event) = events.next().await.transpose()? else { break };
            match event {
                WatchEvent::Added(pod) => {
                    new.insert(pod.key.name.to_string());
                }
                WatchEvent::Modified(pod) if pod.ready.is_ready && new.remove(&*pod.key.name) => {
                    times.push(cluster.now().saturating_sub(start));
                }
                _ => {}
            }
        }
        Ok::<_, TaskError>(sorted(times))
    };
    let (deleted, times) = in_time("replacement of pods", async { tokio::join!(deletes, replaced) }).await?;
    deleted?;
    times
}

/// Returns the name of a pod of each Deployment.
async fn one_pod_each(
    cluster: &LoadCluster,
    deployments: impl Iterator<Item = String>,
) -> Result<Vec<String>, TaskError> {
    let mut names = Vec::new();
    for name in deployments {
        let list = cluster.get(&format!("{PODS}?labelSelector=app%3D{name}&resourceVersion=0")).await?;
        names.extend(list["items"][0]["metadata"]["name"].as_str().map(str::to_owned));
    }
    Ok(names)
}

/// Sends requests, several at a time.
async fn send_all(cluster: &LoadCluster, requests: impl Iterator<Item = Request>) -> Result<(), TaskError> {
    let mut running = JoinSet::new();
    for request in requests {
        if running.len() >= REQUESTS
            && let Some(answer) = running.join_next().await
        {
            answer??;
        }
        let api = cluster.api.clone();
        running.spawn(async move { api.send(&request).await.map(drop) });
    }
    while let Some(answer) = running.join_next().await {
        answer??;
    }
    Ok(())
}

fn watch_from(resource_version: String) -> WatchOptions {
    WatchOptions { resource_version: Some(resource_version), send_initial_events: false, timeout: TIMEOUT }
}

async fn in_time<T>(what: &str, step: impl Future<Output = T>) -> Result<T, TaskError> {
    timeout(TIMEOUT, step).await.map_err(|_| TaskError::Late(what.to_owned()))
}

fn sorted(times: impl IntoIterator<Item = Duration>) -> Vec<Duration> {
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_unstable();
    times
}

fn name(at: usize) -> String {
    format!("web-{at:05}")
}
