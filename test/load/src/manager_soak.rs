//! Soak: resident memory of the manager on the sandbox while the same rollouts are repeated.
//!
//! The sandbox serves TLS, so that connections are HTTP/2 as in a cluster.

use std::{path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use kcm_client::{ApiClient, RateLimit, Request, Server};
use kcm_clock::{Clock, RealClock};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{
    error::TaskError,
    measure::{
        process::{processor_time, resident},
        program::{self, failed},
    },
};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// Timeout of a rollout.
const TIMEOUT: Duration = Duration::from_secs(900);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const NAME: &str = "web";
/// Time without pods before the last measurement.
const REST: Duration = Duration::from_secs(60);
/// Time after which memory that a burst does not need has been returned.
const PAUSE: Duration = Duration::from_secs(5);

/// Flags of the task.
#[derive(Debug)]
pub struct Task {
    cycles: usize,
    pods: usize,
    programs: Programs,
}

impl Task {
    /// Parses the arguments of `manager-soak`. Returns `None` if they are invalid.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut task = Self { cycles: 100, pods: 2_000, programs: Programs::default() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--cycles" => task.cycles = number(words.next(), 100_000)?,
                "--pods" => task.pods = number(words.next(), 100_000)?,
                flag => task.programs.parse(flag, &mut words)?,
            }
        }
        Some(task)
    }

    /// Runs the rollouts and prints the resident memory.
    pub fn run(&self) -> Result<(), TaskError> {
        program::runtime()?.block_on(async { self.measure(&Cluster::start(&self.programs).await?).await })
    }

    async fn measure(&self, cluster: &Cluster) -> Result<(), TaskError> {
        let manager = cluster.manager()?;
        cluster.create(NAME, 0).await?;
        cluster.settled().await?;
        cluster.pause(PAUSE).await;
        println!("| State | Resident memory, MiB | Maximum so far |\n|---|--:|--:|");
        let start = manager.print("start, no pods")?;
        for cycle in 1..=self.cycles {
            cluster.scale(NAME, self.pods).await?;
            cluster.settled().await?;
            if cycle == 1 {
                let (_, most) = manager.resident()?;
                cluster.pause(PAUSE).await;
                let kept = manager.print(&format!("{} pods, settled", self.pods))?;
                println!("| maximum of the burst / settled | {:.2} | |", most / kept);
            }
            cluster.roll(NAME, cycle).await?;
            cluster.settled().await?;
            cluster.scale(NAME, 0).await?;
            cluster.settled().await?;
            if cycle % self.cycles.div_ceil(10) == 0 {
                manager.print(&format!("after {cycle} cycles"))?;
            }
        }
        cluster.pause(REST).await;
        let end = manager.print(&format!("{} s after the last pod", REST.as_secs()))?;
        println!("| growth since the start | {:.1} | |", end - start);
        println!("\nCPU time of the manager: {:.1} s", manager.processor_time()?.as_secs_f64());
        Ok(())
    }
}

/// Programs to measure.
#[derive(Debug, Default)]
struct Programs {
    manager: Option<PathBuf>,
    sandbox: Option<PathBuf>,
}

impl Programs {
    /// Parses a flag. Returns `None` if it is another flag, or has no value.
    fn parse<'a>(&mut self, flag: &str, words: &mut impl Iterator<Item = &'a &'a str>) -> Option<()> {
        let program = match flag {
            "--manager" => &mut self.manager,
            "--sandbox" => &mut self.sandbox,
            _ => return None,
        };
        *program = Some((*words.next()?).into());
        Some(())
    }
}

/// Sandbox with Deployments.
struct Cluster {
    _sandbox: Child,
    folder: TempDir,
    manager: PathBuf,
    api: ApiClient,
    clock: Arc<dyn Clock>,
}

impl Cluster {
    async fn start(programs: &Programs) -> Result<Self, TaskError> {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let manager = program::release("kube-controller-manager", programs.manager.as_deref())?;
        let sandbox = program::release("kube-sandbox", programs.sandbox.as_deref())?;
        let folder = tempfile::tempdir().map_err(failed("temporary directory"))?;
        let arguments = ["--tls", "--nodes=40", "--pod-ready-delay=0ms", "--pod-stop-delay=0ms"];
        let (sandbox, _) = program::sandbox(&sandbox, folder.path(), &arguments).await?;
        let kubeconfig = Server::Kubeconfig { path: folder.path().join("sandbox.kubeconfig"), master: None };
        let clients = program::connect(kubeconfig, &clock).await?;
        Ok(Self {
            _sandbox: sandbox,
            folder,
            manager,
            api: clients.client("memory", RateLimit::UNLIMITED),
            clock,
        })
    }

    /// Starts a manager. Its rate limits are not reached.
    fn manager(&self) -> Result<Manager, TaskError> {
        let child = Command::new(&self.manager)
            .arg(format!("--kubeconfig={}", self.folder.path().join("sandbox.kubeconfig").display()))
            .args(["--leader-elect=false", "--secure-port=0"])
            .args(["--kube-api-qps=100000", "--kube-api-burst=100000"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed(self.manager.display().to_string()))?;
        let id = child.id().ok_or_else(|| TaskError::Exited("the manager", "immediately".to_owned()))?;
        Ok(Manager { _child: child, id })
    }

    async fn create(&self, name: &str, replicas: usize) -> Result<(), TaskError> {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}, "annotations": {"prometheus.io/scrape": "true"}},
                    "spec": {"containers": [container(0)]},
                },
            },
        });
        self.api.send(&Request::post(DEPLOYMENTS, deployment.to_string())).await?;
        Ok(())
    }

    async fn scale(&self, name: &str, replicas: usize) -> Result<(), TaskError> {
        self.patch(name, &json!({"spec": {"replicas": replicas}})).await
    }

    /// Sets the image of revision `revision`.
    async fn roll(&self, name: &str, revision: usize) -> Result<(), TaskError> {
        let containers = [json!({"name": "main", "image": image(revision)})];
        self.patch(name, &json!({"spec": {"template": {"spec": {"containers": containers}}}})).await
    }

    async fn patch(&self, name: &str, patch: &Value) -> Result<(), TaskError> {
        let request = Request::strategic_merge_patch(format!("{DEPLOYMENTS}/{name}"), patch.to_string());
        self.api.send(&request).await?;
        Ok(())
    }

    /// Waits until all rollouts are complete.
    async fn settled(&self) -> Result<(), TaskError> {
        let deadline = self.clock.monotonic() + TIMEOUT;
        loop {
            let list: Value = serde_json::from_slice(&self.api.send(&Request::get(DEPLOYMENTS)).await?)?;
            if list["items"].as_array().into_iter().flatten().all(is_complete) {
                return Ok(());
            }
            if self.clock.monotonic() > deadline {
                return Err(TaskError::Late("rollout".to_owned()));
            }
            self.pause(POLL_INTERVAL).await;
        }
    }

    async fn pause(&self, time: Duration) {
        self.clock.sleep(time).await;
    }
}

fn image(revision: usize) -> String {
    format!("registry.example/shop/web:1.{revision}")
}

/// Container of about 1 KB, with what charts usually set.
fn container(revision: usize) -> Value {
    let env =
        (0..10).map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("value of setting {n}")}));
    let probe = json!({"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5});
    json!({
        "name": "main", "image": image(revision), "ports": [{"containerPort": 8080}], "env": env.collect::<Vec<_>>(),
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "64Mi"}},
        "readinessProbe": probe, "livenessProbe": probe,
        "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true},
    })
}

fn is_complete(deployment: &Value) -> bool {
    let status = &deployment["status"];
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let desired = number(&deployment["spec"]["replicas"]);
    let counts = ["replicas", "updatedReplicas", "availableReplicas"];
    number(&status["observedGeneration"]) >= number(&deployment["metadata"]["generation"])
        && counts.iter().all(|count| number(&status[count]) == desired)
}

/// Manager under measurement. Killed on drop.
struct Manager {
    _child: Child,
    id: u32,
}

impl Manager {
    /// Returns the resident memory in MiB: current and maximum.
    fn resident(&self) -> Result<(f64, f64), TaskError> {
        let (now, most) = resident(self.id)?;
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        Ok((mebibytes(now), mebibytes(most)))
    }

    fn processor_time(&self) -> Result<Duration, TaskError> {
        Ok(processor_time(self.id)?)
    }

    /// Prints a row of the table.
    fn print(&self, what: &str) -> Result<f64, TaskError> {
        let (now, most) = self.resident()?;
        println!("| {what} | {now:.1} | {most:.1} |");
        Ok(now)
    }
}

/// Parses a number from 1 to `most`.
fn number(word: Option<&&str>, most: usize) -> Option<usize> {
    word?.parse().ok().filter(|number| (1..=most).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_rejects_numbers_out_of_bounds() {
        let task = Task::parse(&["--cycles", "5", "--pods", "100", "--manager", "program"]).unwrap();
        assert_eq!((task.cycles, task.pods), (5, 100));
        assert!(task.programs.manager.is_some() && task.programs.sandbox.is_none());
        for words in
            [&["--cycles", "0"][..], &["--pods", "100001"], &["--pods"], &["--manager"], &["--other"]]
        {
            assert!(Task::parse(words).is_none(), "{words:?}");
        }
    }
}
