//! Runs the checks, some at a time, with each version.

use std::{env, fs, io, path::PathBuf, sync::Arc};

use futures_util::{StreamExt as _, stream};
use kcm_clock::{Clock, RealClock};
use serde_json::Value;
use thiserror::Error;

use super::{
    checks::{self, Check, Needs},
    cluster::{Cluster, SandboxProgram},
    failure::Failure,
    ground::Ground,
    kubectl::{Kubectl, Version},
    report::{Outcome, Report, Verdict},
};

/// What the lane is to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `kube-sandbox`.
    pub sandbox: PathBuf,
    /// With which versions.
    pub versions: Vec<Version>,
    /// A cluster to judge instead of the sandbox.
    pub kubeconfig: Option<PathBuf>,
    /// Only these checks; all of them if empty.
    pub only: Vec<u8>,
    /// How many checks run at the same time.
    pub parallel: usize,
}

/// A lane that cannot run.
#[derive(Debug, Error)]
pub enum LaneError {
    /// There is no folder to work in.
    #[error("cannot make a folder to work in: {0}")]
    Folder(#[from] io::Error),
    /// The cluster cannot be reached.
    #[error("no cluster to check: {0}")]
    Cluster(Failure),
}

/// The checks with one version.
#[derive(Debug, Clone)]
pub struct Run {
    /// Of `kubectl`.
    pub version: Version,
    /// In the order of the list.
    pub verdicts: Vec<Verdict>,
}

impl Run {
    /// What came of the check of this number.
    pub fn verdict(&self, number: u8) -> Option<&Verdict> {
        self.verdicts.iter().find(|verdict| verdict.number == number)
    }
}

/// A folder that is removed in the end.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let path = env::temp_dir().join(format!("kubectl-acceptance-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is in the folder for what may be lost.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the checks with every version.
///
/// # Errors
///
/// When there is no folder to work in, or no cluster to judge. Checks that fail are in the report.
///
/// # Cancel safety
///
/// Dropping the future ends the servers and commands it started; a cluster of others keeps the checks' namespaces.
pub async fn run(options: &Options) -> Result<Report, LaneError> {
    let folder = Folder::new()?;
    let mut report = Report::default();
    for version in &options.versions {
        let run = run_with(options, version, &folder.0.join(version.to_string())).await?;
        report.runs.push(run);
    }
    judge_versions(&mut report);
    Ok(report)
}

async fn run_with(options: &Options, version: &Version, folder: &std::path::Path) -> Result<Run, LaneError> {
    let home = folder.join("home");
    fs::create_dir_all(&home)?;
    let kubectl = Kubectl {
        version: version.clone(),
        kubeconfig: options.kubeconfig.clone(),
        home,
        folder: folder.to_owned(),
        namespace: None,
        environment: Vec::new(),
    };
    let sandbox = options.kubeconfig.is_none().then(|| SandboxProgram(options.sandbox.clone()));
    let cluster = match &sandbox {
        Some(program) => program.start(folder, version, &[]).await,
        None => Cluster::existing(&kubectl).await,
    };
    let cluster = cluster.map_err(LaneError::Cluster)?;
    let kubectl = Kubectl { kubeconfig: Some(cluster.kubeconfig.clone()), ..kubectl };
    let has_nodes = has_nodes(&cluster).await.map_err(LaneError::Cluster)?;
    // Discovery is asked for once, before many commands would do so at the same time.
    kubectl.run("api-resources").await.map_err(LaneError::Cluster)?;

    let chosen = |check: &&Check| options.only.is_empty() || options.only.contains(&check.number);
    let (kubectl, sandbox, cluster) = (&kubectl, &sandbox, Arc::new(cluster));
    let mut verdicts: Vec<Verdict> = stream::iter(checks::all().iter().filter(chosen))
        .map(|check| {
            let cluster = Arc::clone(&cluster);
            async move {
                let clock = RealClock::new();
                let began = clock.monotonic();
                let outcome = outcome_of(check, kubectl, sandbox.as_ref(), &cluster, has_nodes).await;
                Verdict { number: check.number, outcome, took: clock.monotonic().saturating_sub(began) }
            }
        })
        .buffer_unordered(options.parallel.max(1))
        .collect()
        .await;
    verdicts.sort_by_key(|verdict| verdict.number);
    Ok(Run { version: version.clone(), verdicts })
}

async fn outcome_of(
    check: &Check,
    kubectl: &Kubectl,
    sandbox: Option<&SandboxProgram>,
    cluster: &Cluster,
    has_nodes: bool,
) -> Outcome {
    match check.needs {
        Needs::Versions => return Outcome::Skipped("needs several versions of kubectl".into()),
        Needs::OwnServer if sandbox.is_none() => return Outcome::Skipped("needs a server of its own".into()),
        Needs::Nodes if !has_nodes => return Outcome::Skipped("the cluster has no nodes".into()),
        Needs::Sandbox if sandbox.is_none() => return Outcome::Skipped("is about the sandbox alone".into()),
        _ => {}
    }
    let verdict = async {
        let namespace = format!("check-{}-{:x}", check.number, std::process::id());
        let folder = kubectl.folder.join(check.number.to_string());
        fs::create_dir_all(&folder)?;
        let ground = Ground {
            kubectl: Kubectl { folder, namespace: Some(namespace.clone()), ..kubectl.clone() },
            wire: cluster.wire.clone(),
            namespace,
            sandbox: sandbox.cloned(),
            has_nodes,
        };
        ground.make_namespace().await?;
        let verdict = (check.run)(&ground).await;
        if sandbox.is_none() {
            ground.wire.delete(&format!("/api/v1/namespaces/{}", ground.namespace)).await?;
        }
        verdict
    };
    match verdict.await {
        Ok(()) => Outcome::Passed,
        Err(failure) => Outcome::Failed(failure),
    }
}

async fn has_nodes(cluster: &Cluster) -> Result<bool, Failure> {
    let nodes = cluster.wire.get("/api/v1/nodes").await?.expect(200)?;
    Ok(nodes["items"].as_array().is_some_and(|items| items.iter().any(is_ready)))
}

fn is_ready(node: &Value) -> bool {
    node.pointer("/status/conditions").and_then(Value::as_array).is_some_and(|all| {
        all.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    })
}

/// The check of the versions: those that are asked for were there, and each passed what the newest passed.
fn judge_versions(report: &mut Report) {
    const WANTED: [u32; 4] = [28, 30, 31, 33];
    let minors: Vec<u32> = report.runs.iter().filter_map(|run| run.version.minor).collect();
    if WANTED.iter().any(|minor| !minors.contains(minor)) {
        return;
    }
    let Some(newest) = report.runs.last().cloned() else { return };
    let passes =
        |run: &Run, number| run.verdict(number).is_some_and(|v| matches!(v.outcome, Outcome::Passed));
    for run in &mut report.runs {
        let other: Vec<String> = newest
            .verdicts
            .iter()
            .filter(|verdict| passes(&newest, verdict.number) != passes(run, verdict.number))
            .map(|verdict| verdict.number.to_string())
            .collect();
        let outcome = if other.is_empty() {
            Outcome::Passed
        } else {
            Outcome::Failed(Failure::new(format!("other results than with the newest: {}", other.join(", "))))
        };
        for verdict in run.verdicts.iter_mut().filter(|v| checks::needs_versions(v.number)) {
            verdict.outcome = outcome.clone();
        }
    }
}
