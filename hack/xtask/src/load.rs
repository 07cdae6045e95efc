//! How fast the sandbox is over HTTP, beside a real API server where there is one.
//!
//! The numbers are taken through the project's own client, which shares the machine with the server: they are what a
//! user gets, and the server alone is faster. The same client does the same to both servers, one after the other.

use std::{
    env,
    path::{Path, PathBuf},
    process,
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, future::try_join_all};
use kcm_api::ApiError;
use kcm_client::{ApiClient, ClientFactory, RateLimit, Request, Server};
use kcm_clock::{Clock, RealClock};
use kcm_informer::{ListWatchError, WatchEvent, WatchOptions};
use kcm_stories::{
    WorldError,
    external::{self, ExternalConfig, ServerProgram},
};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::{task::JoinError, time::timeout};

use crate::measure::{
    Measure, ProgramError,
    process::resident_children,
    program::{self, failed},
    table,
};

/// As many pods as the issue asks a list of.
const PODS: usize = 10_000;
/// So that a run stays a matter of minutes, and of less memory than a laptop has.
const MOST_PODS: usize = 100_000;
/// How many clients create at once.
const CLIENTS: usize = 50;
/// One client creates this share of the pods.
const ALONE: usize = 5;
/// Pods made before anything is measured, so that what is made once is not counted.
const WARM_UP: usize = 100;
/// What watchers are shown, and by how many clients it is written.
const WRITES: usize = 500;
const WRITERS: usize = 10;
const WATCHERS: [usize; 3] = [1, 10, 100];
/// How often a list is asked for; the quickest counts.
const LISTS: usize = 3;
/// A server that is not ready after this will not be.
const START: Duration = Duration::from_secs(30);
/// No measurement may take longer.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often a starting sandbox is asked.
const ASK_EVERY: Duration = Duration::from_millis(1);
const NAMESPACE: &str = "load";

/// What to measure.
#[derive(Debug)]
pub struct Task {
    pods: usize,
    sandbox: Option<PathBuf>,
}

/// Why there are no numbers.
#[derive(Debug, Error)]
pub enum TaskError {
    /// The programs cannot be run or looked at.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A server does not serve, or not in time.
    #[error("{0} took too long")]
    Late(&'static str),
    /// A list had not all pods in it.
    #[error("the list has {found} pods instead of {expected}")]
    ShortList {
        /// How many it has.
        found: usize,
        /// How many there are.
        expected: usize,
    },
    /// A server refused a request.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A list or watch request failed.
    #[error(transparent)]
    ListWatch(#[from] ListWatchError),
    /// The real server does not start.
    #[error(transparent)]
    World(#[from] WorldError),
    /// An answer is not JSON.
    #[error("an answer is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A client broke off.
    #[error("a client broke off: {0}")]
    Client(#[from] JoinError),
}

impl Task {
    /// What the words after `apiserver-load` mean; `None` if that is nothing.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut task = Self { pods: PODS, sandbox: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--pods" => {
                    task.pods =
                        words.next()?.parse().ok().filter(|pods| (ALONE..=MOST_PODS).contains(pods))?;
                }
                "--sandbox" => task.sandbox = Some((*words.next()?).into()),
                _ => return None,
            }
        }
        Some(task)
    }

    /// Measures and prints the table.
    ///
    /// # Errors
    ///
    /// When a server does not start, refuses a request or is too slow to be measured.
    pub fn run(&self) -> Result<(), TaskError> {
        program::runtime()?.block_on(self.measure())
    }

    async fn measure(&self) -> Result<(), TaskError> {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let folder = tempfile::tempdir().map_err(failed("a temporary folder"))?;
        let ours = self.sandbox(&clock, folder.path()).await?;
        let theirs = match env::var_os("KUBEBUILDER_ASSETS") {
            Some(assets) => Some(self.real(&clock, assets.into(), folder.path()).await?),
            None => None,
        };
        print!("{}", table(["Sandbox", "kube-apiserver and etcd"], &ours, theirs.as_deref()));
        if theirs.is_none() {
            println!("\nno real API server measured: KUBEBUILDER_ASSETS is not set");
        }
        Ok(())
    }

    async fn sandbox(&self, clock: &Arc<dyn Clock>, folder: &Path) -> Result<Vec<Measure>, TaskError> {
        let program = program::release("kube-sandbox", self.sandbox.as_deref())?;
        let start = clock.monotonic();
        let ready = async {
            let (child, address) = program::sandbox(&program, folder, &["--nodes=0"]).await?;
            let clients = program::connect(Server::Master(address), clock).await?;
            let api = clients.client("load", RateLimit::UNLIMITED);
            while api.send(&Request::get("/readyz")).await.is_err() {
                clock.sleep(ASK_EVERY).await;
            }
            Ok::<_, TaskError>((child, clients))
        };
        let (mut child, clients) =
            timeout(START, ready).await.map_err(|_| TaskError::Late("the start of the sandbox"))??;
        let ready = clock.monotonic().saturating_sub(start);
        let measured = self.server(&clients, clock, ready).await;
        child.kill().await.map_err(failed("the end of the sandbox"))?;
        measured
    }

    async fn real(
        &self,
        clock: &Arc<dyn Clock>,
        assets: PathBuf,
        folder: &Path,
    ) -> Result<Vec<Measure>, TaskError> {
        let start = clock.monotonic();
        let config = ExternalConfig {
            server: ServerProgram::Kubebuilder(assets),
            manager: String::new(),
            folder: folder.to_owned(),
        };
        // Its programs end when this is dropped.
        let _servers = external::start(config).await?;
        let ready = clock.monotonic().saturating_sub(start);
        let kubeconfig = Server::Kubeconfig { path: folder.join("admin.kubeconfig"), master: None };
        let clients = program::connect(kubeconfig, clock).await?;
        self.server(&clients, clock, ready).await
    }

    /// Everything about one server that is ready.
    async fn server(
        &self,
        clients: &ClientFactory,
        clock: &Arc<dyn Clock>,
        ready: Duration,
    ) -> Result<Vec<Measure>, TaskError> {
        let load = Load { api: clients.client("load", RateLimit::UNLIMITED), clock: Arc::clone(clock) };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        load.api.send(&Request::post("/api/v1/namespaces", namespace.to_string())).await?;
        load.create("warm", WARM_UP, 1).await?;
        let before = resident_children(process::id())?;

        let alone = self.pods / ALONE;
        let by_one = load.create("one", alone, 1).await?;
        let by_many = load.create("many", self.pods - alone, CLIENTS).await?;
        let after = resident_children(process::id())?;
        let stored = self.pods + WARM_UP;
        let list = load.list(stored).await?;
        let per_pod = after.saturating_sub(before) as f64 / self.pods as f64;
        let mut measures = vec![
            Measure { what: "start to ready".to_owned(), unit: "ms", value: ready.as_secs_f64() * 1e3 },
            Measure { what: format!("create {alone} pods, 1 client"), unit: "pods/s", value: by_one },
            Measure {
                what: format!("create {} pods, {CLIENTS} clients", self.pods - alone),
                unit: "pods/s",
                value: by_many,
            },
            Measure { what: format!("list {stored} pods"), unit: "ms", value: list.as_secs_f64() * 1e3 },
            Measure { what: "memory at rest".to_owned(), unit: "KiB", value: before as f64 / 1024.0 },
            Measure { what: format!("memory with {stored} pods"), unit: "KiB", value: after as f64 / 1024.0 },
            Measure { what: "memory per stored pod".to_owned(), unit: "bytes", value: per_pod },
        ];
        for watchers in WATCHERS {
            let value = load.watch(watchers).await?;
            let what = format!("deliver {WRITES} writes to {watchers} watchers");
            measures.push(Measure { what, unit: "events/s", value });
        }
        Ok(measures)
    }
}

/// What a server is put to.
struct Load {
    api: ApiClient,
    clock: Arc<dyn Clock>,
}

impl Load {
    /// Creates pods from that many clients, each with one request at a time; gives pods per second.
    async fn create(&self, prefix: &str, pods: usize, clients: usize) -> Result<f64, TaskError> {
        let start = self.clock.monotonic();
        let tasks = (0..clients).map(|client| {
            let (api, prefix) = (self.api.clone(), prefix.to_owned());
            tokio::spawn(async move {
                for at in (client..pods).step_by(clients) {
                    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
                    api.send(&Request::post(path, pod(&format!("{prefix}-{at}")).to_string())).await?;
                }
                Ok::<_, ApiError>(())
            })
        });
        let all =
            timeout(PATIENCE, try_join_all(tasks)).await.map_err(|_| TaskError::Late("creating pods"))??;
        all.into_iter().collect::<Result<(), _>>()?;
        Ok(per_second(pods, self.clock.monotonic().saturating_sub(start)))
    }

    /// The time that a list of all pods takes to be there as bytes.
    async fn list(&self, expected: usize) -> Result<Duration, TaskError> {
        let request = Request::get(format!("/api/v1/namespaces/{NAMESPACE}/pods"));
        let mut quickest = Duration::MAX;
        for _ in 0..LISTS {
            let start = self.clock.monotonic();
            let answer = self.api.send(&request).await?;
            quickest = quickest.min(self.clock.monotonic().saturating_sub(start));
            let list: Value = serde_json::from_slice(&answer)?;
            let found = list["items"].as_array().map_or(0, Vec::len);
            if found != expected {
                return Err(TaskError::ShortList { found, expected });
            }
        }
        Ok(quickest)
    }

    /// Writes while others watch, until all have been told of all; gives events per second, over all watchers.
    async fn watch(&self, watchers: usize) -> Result<f64, TaskError> {
        let pods = self.api.pods();
        let version = self.api.send(&Request::get("/api/v1/pods?limit=1")).await?;
        let version: Value = serde_json::from_slice(&version)?;
        let resource_version = version["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let options = WatchOptions { resource_version, send_initial_events: false, timeout: PATIENCE };
        let mut tasks = Vec::with_capacity(watchers);
        for _ in 0..watchers {
            // Open before the first write, so that no watcher replays what it came too late for.
            let mut stream = pods.watch(&options).await?;
            let (pods, mut options) = (Arc::clone(&pods), options.clone());
            tasks.push(tokio::spawn(async move {
                let mut seen = 0;
                while seen < WRITES {
                    match stream.next().await.transpose()? {
                        Some(WatchEvent::Added(pod)) => {
                            options.resource_version = Some(pod.resource_version.into_string());
                            seen += 1;
                        }
                        Some(_) => {}
                        // A server may cut off who is too slow for it; he goes on where he was.
                        None => stream = pods.watch(&options).await?,
                    }
                }
                Ok::<_, TaskError>(())
            }));
        }
        let start = self.clock.monotonic();
        self.create(&format!("watched-by-{watchers}"), WRITES, WRITERS).await?;
        let all = timeout(PATIENCE, try_join_all(tasks)).await.map_err(|_| TaskError::Late("watching"))??;
        all.into_iter().collect::<Result<(), _>>()?;
        Ok(per_second(WRITES * watchers, self.clock.monotonic().saturating_sub(start)))
    }
}

fn per_second(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE)
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "load", "pod-template-hash": "5d59d67564"}},
        "spec": {"containers": [{
            "name": "main",
            "image": "registry.example/app:1",
            "ports": [{"containerPort": 80}],
            "env": [{"name": "MODE", "value": "load"}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        }]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_a_number_out_of_bounds_mean_nothing() {
        assert_eq!(Task::parse(&["--pods", "2000"]).unwrap().pods, 2000);
        assert!(Task::parse(&["--pods", "100001"]).is_none());
        assert!(Task::parse(&["--pods", "0"]).is_none());
        assert!(Task::parse(&["--pods"]).is_none());
    }
}
