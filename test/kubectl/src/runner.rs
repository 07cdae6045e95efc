//! Runs the checks concurrently with each version of `kubectl`.

use std::{env, fs, io, path::PathBuf, sync::Arc};

use futures_util::{StreamExt as _, stream};
use kcm_clock::{Clock, RealClock};
use serde_json::Value;
use thiserror::Error;

use super::{
    checks::{self, Check, Requires},
    cluster::{Cluster, SandboxProgram},
    failure::Failure,
    kubectl::{Kubectl, Version},
    report::{CheckReport, CheckStatus, Report, Run},
    test_env::TestEnv,
};

/// Configuration of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Path of `kube-sandbox`.
    pub sandbox: PathBuf,
    /// Versions of `kubectl`.
    pub versions: Vec<Version>,
    /// Kubeconfig of an existing cluster to check instead of the sandbox.
    pub kubeconfig: Option<PathBuf>,
    /// Numbers of the checks to run; all if empty.
    pub only: Vec<u8>,
    /// Number of concurrent checks.
    pub parallel: usize,
}

/// Error that prevents a run.
#[derive(Debug, Error)]
pub enum RunError {
    /// A temporary directory cannot be created.
    #[error("failed to create a temporary directory: {0}")]
    Folder(#[from] io::Error),
    /// The cluster is not reachable.
    #[error("cluster not reachable: {0}")]
    Cluster(Failure),
}

/// Temporary directory, removed on drop.
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
        // Errors are ignored: the directory is temporary.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the checks with all versions.
///
/// # Cancel safety
///
/// Dropping the future kills the started processes. The namespaces of the checks remain on an existing cluster.
pub async fn run(options: &Options) -> Result<Report, RunError> {
    let folder = Folder::new()?;
    let mut report = Report::default();
    for version in &options.versions {
        let run = run_with(options, version, &folder.0.join(version.to_string())).await?;
        report.runs.push(run);
    }
    compare_versions(&mut report);
    Ok(report)
}

async fn run_with(options: &Options, version: &Version, folder: &std::path::Path) -> Result<Run, RunError> {
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
    let cluster = cluster.map_err(RunError::Cluster)?;
    let kubectl = Kubectl { kubeconfig: Some(cluster.kubeconfig.clone()), ..kubectl };
    let has_nodes = has_nodes(&cluster).await.map_err(RunError::Cluster)?;
    // Fills the discovery cache before concurrent commands use it.
    kubectl.run("api-resources").await.map_err(RunError::Cluster)?;

    let chosen = |check: &&Check| options.only.is_empty() || options.only.contains(&check.number);
    let (kubectl, sandbox, cluster) = (&kubectl, &sandbox, Arc::new(cluster));
    let mut reports: Vec<CheckReport> = stream::iter(checks::all().iter().filter(chosen))
        .map(|check| {
            let cluster = Arc::clone(&cluster);
            async move {
                let clock = RealClock::new();
                let began = clock.monotonic();
                let status = run_check(check, kubectl, sandbox.as_ref(), &cluster, has_nodes).await;
                CheckReport {
                    number: check.number,
                    status,
                    duration: clock.monotonic().saturating_sub(began),
                }
            }
        })
        .buffer_unordered(options.parallel.max(1))
        .collect()
        .await;
    reports.sort_by_key(|report| report.number);
    Ok(Run { version: version.clone(), reports })
}

async fn run_check(
    check: &Check,
    kubectl: &Kubectl,
    sandbox: Option<&SandboxProgram>,
    cluster: &Cluster,
    has_nodes: bool,
) -> CheckStatus {
    match check.requires {
        Requires::Versions => return CheckStatus::Skipped("requires several versions of kubectl".into()),
        Requires::OwnServer if sandbox.is_none() => {
            return CheckStatus::Skipped("requires its own server".into());
        }
        Requires::Nodes if !has_nodes => return CheckStatus::Skipped("the cluster has no nodes".into()),
        Requires::Sandbox if sandbox.is_none() => {
            return CheckStatus::Skipped("applies to the sandbox only".into());
        }
        _ => {}
    }
    let result = async {
        let namespace = format!("check-{}-{:x}", check.number, std::process::id());
        let folder = kubectl.folder.join(check.number.to_string());
        fs::create_dir_all(&folder)?;
        let env = TestEnv {
            kubectl: Kubectl { folder, namespace: Some(namespace.clone()), ..kubectl.clone() },
            http: cluster.http.clone(),
            namespace,
            sandbox: sandbox.cloned(),
            has_nodes,
        };
        env.create_namespace().await?;
        let result = (check.run)(&env).await;
        if sandbox.is_none() {
            env.http.delete(&format!("/api/v1/namespaces/{}", env.namespace)).await?;
        }
        result
    };
    match result.await {
        Ok(()) => CheckStatus::Passed,
        Err(failure) => CheckStatus::Failed(failure),
    }
}

async fn has_nodes(cluster: &Cluster) -> Result<bool, Failure> {
    let nodes = cluster.http.get("/api/v1/nodes").await?.expect(200)?;
    Ok(nodes["items"].as_array().is_some_and(|items| items.iter().any(is_ready)))
}

fn is_ready(node: &Value) -> bool {
    node.pointer("/status/conditions").and_then(Value::as_array).is_some_and(|all| {
        all.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    })
}

/// Sets the status of the version check: all expected versions are installed, and their results equal the newest's.
fn compare_versions(report: &mut Report) {
    const EXPECTED: [u32; 4] = [28, 30, 31, 33];
    let minors: Vec<u32> = report.runs.iter().filter_map(|run| run.version.minor).collect();
    if EXPECTED.iter().any(|minor| !minors.contains(minor)) {
        return;
    }
    let Some(newest) = report.runs.last().cloned() else { return };
    let passes =
        |run: &Run, number| run.report(number).is_some_and(|v| matches!(v.status, CheckStatus::Passed));
    for run in &mut report.runs {
        let other: Vec<String> = newest
            .reports
            .iter()
            .filter(|report| passes(&newest, report.number) != passes(run, report.number))
            .map(|report| report.number.to_string())
            .collect();
        let status = if other.is_empty() {
            CheckStatus::Passed
        } else {
            CheckStatus::Failed(Failure::new(format!(
                "results differ from the newest version: {}",
                other.join(", ")
            )))
        };
        for report in run.reports.iter_mut().filter(|v| checks::requires_versions(v.number)) {
            report.status = status.clone();
        }
    }
}
