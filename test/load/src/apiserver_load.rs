//! HTTP benchmark of the sandbox, and of kube-apiserver with etcd for comparison.
//!
//! Both servers are measured one after the other with the project's client on the same machine, so the numbers include
//! the client.

use std::{
    env,
    path::{Path, PathBuf},
    process,
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, future::try_join_all};
use kcm_api::{ApiError, Pod};
use kcm_client::{ApiClient, ClientFactory, ListParams, RateLimit, Request, Server};
use kcm_clock::{Clock, RealClock};
use kcm_informer::{WatchEvent, WatchOptions};
use kcm_stories::external::{self, ExternalConfig, ServerProgram};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, runtime, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    error::TaskError,
    measure::{
        Measure,
        process::resident_children,
        program::{self, failed},
        table,
    },
};

/// Default number of pods.
const PODS: usize = 10_000;
/// Maximum number of pods; bounds the duration and the memory of a run.
const MAX_PODS: usize = 100_000;
/// Number of concurrent clients that create pods.
const CLIENTS: usize = 50;
/// Divisor of the number of pods that a single client creates.
const SINGLE_CLIENT_SHARE: usize = 5;
/// Pods created before the measurement, to exclude one-time costs.
const WARM_UP: usize = 100;
/// Number of writes that watchers receive, and number of clients that write them.
const WRITES: usize = 500;
const WRITERS: usize = 10;
const WATCHERS: [usize; 3] = [1, 10, 100];
/// Number of lists; the fastest counts.
const LISTS: usize = 3;
/// Timeout for the start of a server.
const START: Duration = Duration::from_secs(30);
/// Timeout of a measurement.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Interval of readiness checks.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const NAMESPACE: &str = "load";
/// Number of times that pods are created and deleted, and number of pods.
const CYCLES: usize = 12;
const CYCLE_PODS: usize = 2_000;
/// Load during which the requests of another client are measured.
const BURST: usize = 5_000;
const IDLE_CONNECTIONS: usize = 1_000;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Flags of the task.
#[derive(Debug)]
pub struct Task {
    pods: usize,
    sandbox: Option<PathBuf>,
}

impl Task {
    /// Parses the arguments of `apiserver-load`. Returns `None` if they are invalid.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut task = Self { pods: PODS, sandbox: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--pods" => {
                    task.pods = words
                        .next()?
                        .parse()
                        .ok()
                        .filter(|pods| (SINGLE_CLIENT_SHARE..=MAX_PODS).contains(pods))?;
                }
                "--sandbox" => task.sandbox = Some((*words.next()?).into()),
                _ => return None,
            }
        }
        Some(task)
    }

    /// Runs the benchmark and prints the table.
    pub fn run(&self) -> Result<(), TaskError> {
        program::runtime()?.block_on(self.measure())
    }

    async fn measure(&self) -> Result<(), TaskError> {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let folder = tempfile::tempdir().map_err(failed("temporary directory"))?;
        let ours = self.sandbox(&clock, folder.path()).await?;
        let theirs = match env::var_os("KUBEBUILDER_ASSETS") {
            Some(assets) => Some(self.real(&clock, assets.into(), folder.path()).await?),
            None => None,
        };
        print!("{}", table(["Sandbox", "kube-apiserver and etcd"], &ours, theirs.as_deref()));
        if theirs.is_none() {
            println!("\nkube-apiserver not measured: KUBEBUILDER_ASSETS is not set");
        }
        Ok(())
    }

    async fn sandbox(&self, clock: &Arc<dyn Clock>, folder: &Path) -> Result<Vec<Measure>, TaskError> {
        let program = program::release("kube-sandbox", self.sandbox.as_deref())?;
        let start = clock.monotonic();
        let ready = async {
            let (child, address) = program::sandbox(&program, folder, &["--bare"]).await?;
            let clients = program::connect(Server::Master(address.clone()), clock).await?;
            let api = clients.client("load", RateLimit::UNLIMITED);
            while api.send(&Request::get("/readyz")).await.is_err() {
                clock.sleep(POLL_INTERVAL).await;
            }
            Ok::<_, TaskError>((child, address, clients))
        };
        let (mut child, address, clients) =
            timeout(START, ready).await.map_err(|_| TaskError::Late("start of the sandbox".to_owned()))??;
        let ready = clock.monotonic().saturating_sub(start);
        let mut measured = self.server(&clients, clock, ready).await?;
        let load = Load { api: clients.client("load", RateLimit::UNLIMITED), clock: Arc::clone(clock) };
        measured.extend(load.isolation(&address).await?);
        child.kill().await.map_err(failed("killing the sandbox"))?;
        Ok(measured)
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
        // The processes are killed on drop.
        let _servers = external::start(config).await?;
        let ready = clock.monotonic().saturating_sub(start);
        let kubeconfig = Server::Kubeconfig { path: folder.join("admin.kubeconfig"), master: None };
        let clients = program::connect(kubeconfig, clock).await?;
        self.server(&clients, clock, ready).await
    }

    /// Measures one server.
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

        let alone = self.pods / SINGLE_CLIENT_SHARE;
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
        load.delete_all().await?;
        for cycle in 0..CYCLES {
            load.create(&format!("cycle-{cycle}"), CYCLE_PODS, CLIENTS).await?;
            load.delete_all().await?;
        }
        let left = resident_children(process::id())?;
        let what = format!("memory without pods, after {CYCLES} times {CYCLE_PODS}");
        measures.push(Measure { what, unit: "KiB", value: left as f64 / 1024.0 });
        load.create("again", self.pods, CLIENTS).await?;
        Ok(measures)
    }
}

/// Benchmark of one server.
struct Load {
    api: ApiClient,
    clock: Arc<dyn Clock>,
}

impl Load {
    /// Creates pods from `clients` concurrent clients. Returns pods per second.
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
        let all = timeout(TIMEOUT, try_join_all(tasks))
            .await
            .map_err(|_| TaskError::Late("creating pods".to_owned()))??;
        all.into_iter().collect::<Result<(), _>>()?;
        Ok(per_second(pods, self.clock.monotonic().saturating_sub(start)))
    }

    /// Returns the duration of a list of all pods, without decoding.
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

    /// Deletes all pods. They have no node, so they are removed at once.
    async fn delete_all(&self) -> Result<(), TaskError> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        self.api.send(&Request::delete(path, json!({"gracePeriodSeconds": 0}).to_string())).await?;
        Ok(())
    }

    /// Measures the slowest request of another client beside idle connections, a watcher that does not read, a list of all
    /// pods and a burst of creates.
    async fn isolation(&self, address: &str) -> Result<Vec<Measure>, TaskError> {
        let host = address.trim_start_matches("http://").to_owned();
        let connect = || async { TcpStream::connect(&host).await.map_err(failed(host.clone())) };
        let mut idle = Vec::with_capacity(IDLE_CONNECTIONS);
        for _ in 0..IDLE_CONNECTIONS {
            idle.push(connect().await?);
        }
        let mut stuck = connect().await?;
        let watch = format!("GET /api/v1/pods?watch=true&resourceVersion=0 HTTP/1.1\r\nhost: {host}\r\n\r\n");
        stuck.write_all(watch.as_bytes()).await.map_err(failed(host.clone()))?;

        let before = resident_children(process::id())?;
        let other = Other::start(address, &self.clock)?;
        let list = Request::get(format!("/api/v1/namespaces/{NAMESPACE}/pods"));
        let (created, listed) = tokio::join!(self.create("burst", BURST, BURST), self.api.send(&list));
        created?;
        listed?;
        let Slowest { requests, connected, new } = other.stop().await?;
        let after = resident_children(process::id())?;
        drop((idle, stuck));
        let load = format!(
            "{BURST} creates at once, a list of all pods, {IDLE_CONNECTIONS} idle connections and a watcher that does not read"
        );
        Ok(vec![
            Measure::new(
                format!("slowest of {requests} requests beside {load}"),
                "ms",
                connected.as_secs_f64() * 1e3,
            ),
            Measure::new("slowest of as many with a new connection", "ms", new.as_secs_f64() * 1e3),
            Measure::new("memory for them", "KiB", after.saturating_sub(before) as f64 / 1024.0),
        ])
    }

    /// Creates pods while `watchers` watch, until all events are received. Returns events per second over all watchers.
    async fn watch(&self, watchers: usize) -> Result<f64, TaskError> {
        let pods = self.api.api::<Pod>().list_watch(ListParams::default());
        let version = self.api.send(&Request::get("/api/v1/pods?limit=1")).await?;
        let version: Value = serde_json::from_slice(&version)?;
        let resource_version = version["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let options = WatchOptions { resource_version, send_initial_events: false, timeout: TIMEOUT };
        let mut tasks = Vec::with_capacity(watchers);
        for _ in 0..watchers {
            // Opened before the first write, so that no watcher replays events.
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
                        // The server may close slow watches; the client continues from the last event.
                        None => stream = pods.watch(&options).await?,
                    }
                }
                Ok::<_, TaskError>(())
            }));
        }
        let start = self.clock.monotonic();
        self.create(&format!("watched-by-{watchers}"), WRITES, WRITERS).await?;
        let all = timeout(TIMEOUT, try_join_all(tasks))
            .await
            .map_err(|_| TaskError::Late("watching".to_owned()))??;
        all.into_iter().collect::<Result<(), _>>()?;
        Ok(per_second(WRITES * watchers, self.clock.monotonic().saturating_sub(start)))
    }
}

/// Client that is measured beside others. It has a thread, so that its requests do not wait for the other
/// clients of this process.
struct Other {
    stop: CancellationToken,
    thread: JoinHandle<Result<Slowest, TaskError>>,
}

/// Slowest requests.
#[derive(Default)]
struct Slowest {
    /// Number of requests on an existing connection.
    requests: usize,
    connected: Duration,
    /// Slowest request with the time to connect.
    new: Duration,
}

impl Other {
    fn start(address: &str, clock: &Arc<dyn Clock>) -> Result<Self, TaskError> {
        let stop = CancellationToken::new();
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(failed("async runtime"))?;
        let (address, clock, stopped) = (address.to_owned(), Arc::clone(clock), stop.clone());
        let thread =
            tokio::task::spawn_blocking(move || runtime.block_on(Self::run(&address, &clock, &stopped)));
        Ok(Self { stop, thread })
    }

    async fn stop(self) -> Result<Slowest, TaskError> {
        self.stop.cancel();
        self.thread.await?
    }

    /// Alternates reads and writes, on an existing connection and on new ones, until `stop` is cancelled.
    async fn run(
        address: &str,
        clock: &Arc<dyn Clock>,
        stop: &CancellationToken,
    ) -> Result<Slowest, TaskError> {
        let connect = || async {
            let clients = program::connect(Server::Master(address.to_owned()), clock).await?;
            Ok::<_, TaskError>(clients.client("other", RateLimit::UNLIMITED))
        };
        let time = async |api: &ApiClient, request: Request| {
            let start = clock.monotonic();
            api.send(&request).await?;
            Ok::<_, ApiError>(clock.monotonic().saturating_sub(start))
        };
        let read = || Request::get(format!("/api/v1/namespaces/{NAMESPACE}"));
        let connected = connect().await?;
        time(&connected, read()).await?;
        let mut slowest = Slowest::default();
        while !stop.is_cancelled() {
            let number = slowest.requests;
            let write = |prefix: &str| {
                let object = json!({"metadata": {"name": format!("{prefix}-{number}")}});
                Request::post(CONFIG_MAPS, object.to_string())
            };
            for request in [read(), write("connected")] {
                slowest.connected = slowest.connected.max(time(&connected, request).await?);
            }
            for request in [read(), write("new")] {
                // The client connects with its first request.
                slowest.new = slowest.new.max(time(&connect().await?, request).await?);
            }
            slowest.requests += 2;
        }
        Ok(slowest)
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
    fn parse_rejects_numbers_out_of_bounds() {
        assert_eq!(Task::parse(&["--pods", "2000"]).unwrap().pods, 2000);
        assert!(Task::parse(&["--pods", "100001"]).is_none());
        assert!(Task::parse(&["--pods", "0"]).is_none());
        assert!(Task::parse(&["--pods"]).is_none());
    }
}
