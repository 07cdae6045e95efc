//! API servers that workloads run on.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt as _;
use kcm_api::Pod;
use kcm_client::{ApiClient, ClientFactory, ListParams, RateLimit, Request, Server};
use kcm_clock::Clock;
use kcm_informer::{ListWatch, WatchEvent, WatchOptions};
use kcm_stories::external::{Authorization, ControlPlane, Program};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{process::Child, task::JoinSet};

use super::{load_cluster::PODS, manager::TIMEOUT};
use crate::{
    error::TaskError,
    measure::{
        ProgramError,
        process::processor_time,
        program::{self, failed},
    },
};

/// Number of concurrent requests of the simulated nodes of kube-apiserver.
const NODE_REQUESTS: usize = 64;
/// Time between two failed watches of the simulated nodes.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Audit policy of the sandbox: completed writes.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
";

impl Display for ServerProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sandbox(_) => "kube-sandbox",
            Self::Kubebuilder(_) => "kube-apiserver and etcd",
        })
    }
}

/// Time without writes after which all are counted.
const QUIET: Duration = Duration::from_secs(2);

/// Number of requests by verb, resource and status code, such as `POST pods 201`.
pub(super) type Requests = BTreeMap<String, usize>;

/// API server to start.
#[derive(Debug, Clone)]
pub(super) enum ServerProgram {
    Sandbox(PathBuf),
    /// Directory with etcd and kube-apiserver.
    Kubebuilder(PathBuf),
}

/// Running API server. Killed on drop.
pub(super) struct LoadServer {
    process: Process,
    id: u32,
    folder: TempDir,
    requests: RequestSource,
    pub(super) api: ApiClient,
    pub(super) kubeconfig: PathBuf,
    _nodes: JoinSet<()>,
}

enum Process {
    Sandbox { _child: Child },
    Kubebuilder { plane: Box<ControlPlane> },
}

/// Source of the numbers of requests.
enum RequestSource {
    AuditLog,
    Metrics,
}

impl LoadServer {
    /// Starts a server. With `nodes`, pods become ready at once.
    pub(super) async fn start(
        program: &ServerProgram,
        nodes: bool,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, TaskError> {
        let folder = tempfile::tempdir().map_err(failed("temporary directory"))?;
        let server = match program {
            ServerProgram::Sandbox(program) => Self::sandbox(program, folder, nodes, clock).await?,
            ServerProgram::Kubebuilder(assets) => Self::kubebuilder(assets, folder, nodes, clock).await?,
        };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "load"}});
        server.api.send(&Request::post("/api/v1/namespaces", namespace.to_string())).await?;
        Ok(server)
    }

    async fn sandbox(
        program: &Path,
        folder: TempDir,
        nodes: bool,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, TaskError> {
        let (policy, log) = (folder.path().join("audit.yaml"), audit_log(folder.path()));
        fs::write(&policy, AUDIT_POLICY).map_err(failed("audit policy"))?;
        let audit = [
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
        ];
        let mut arguments: Vec<&str> = audit.iter().map(String::as_str).collect();
        if nodes {
            arguments.extend(["--nodes=10", "--pod-ready-delay=0ms", "--pod-stop-delay=0ms"]);
        } else {
            arguments.push("--bare");
        }
        let (child, address) = program::sandbox(program, folder.path(), &arguments).await?;
        let clients = program::connect(Server::Master(address), clock).await?;
        let exited = || TaskError::Exited("the sandbox", "immediately".to_owned());
        Ok(Self {
            id: child.id().ok_or_else(exited)?,
            process: Process::Sandbox { _child: child },
            requests: RequestSource::AuditLog,
            api: clients.client("load", RateLimit::UNLIMITED),
            kubeconfig: folder.path().join("sandbox.kubeconfig"),
            folder,
            _nodes: JoinSet::new(),
        })
    }

    async fn kubebuilder(
        assets: &Path,
        folder: TempDir,
        nodes: bool,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, TaskError> {
        let mut plane = ControlPlane::start(assets, folder.path(), Authorization::AlwaysAllow)?;
        // Requests of this user are not audited.
        let kubeconfig = plane.kubeconfig("admin");
        let server = Server::Kubeconfig { path: kubeconfig.clone(), master: None };
        let clients = program::connect(server, clock).await?;
        let api = clients.client("load", RateLimit::UNLIMITED);
        plane.ready(&api, &**clock).await?;
        let exited = || TaskError::Exited("kube-apiserver", "immediately".to_owned());
        let id = plane.server().and_then(Program::id).ok_or_else(exited)?;
        let mut tasks = JoinSet::new();
        if nodes {
            let mut nodes = Nodes::new(&clients).await?;
            let clock = Arc::clone(clock);
            tasks.spawn(async move {
                // The server may be restarted.
                while let Err(error) = nodes.run().await {
                    eprintln!("the simulated nodes watch again: {error}");
                    clock.sleep(WATCH_INTERVAL).await;
                    nodes.since = resource_version(&nodes.api, PODS).await.unwrap_or(nodes.since);
                }
            });
        }
        Ok(Self {
            id,
            process: Process::Kubebuilder { plane: Box::new(plane) },
            requests: RequestSource::Metrics,
            api,
            kubeconfig,
            folder,
            _nodes: tasks,
        })
    }

    /// Restarts kube-apiserver. The sandbox is not restarted.
    pub(super) async fn restart(&mut self, clock: &dyn Clock) -> Result<(), TaskError> {
        if let Process::Kubebuilder { plane } = &mut self.process {
            plane.kill_server().await?;
            plane.start_server()?;
            plane.ready(&self.api, clock).await?;
            self.id = plane.server().and_then(Program::id).unwrap_or(self.id);
        }
        Ok(())
    }

    pub(super) fn processor_time(&self) -> Result<Duration, ProgramError> {
        processor_time(self.id)
    }

    /// Waits until no write was counted for two seconds.
    pub(super) async fn quiet(&self, clock: &dyn Clock) -> Result<(), TaskError> {
        let deadline = clock.monotonic() + TIMEOUT;
        let mut last = self.requests().await?;
        loop {
            clock.sleep(QUIET).await;
            let requests = self.requests().await?;
            if requests == last {
                return Ok(());
            }
            if clock.monotonic() > deadline {
                return Err(TaskError::Late("end of the writes".to_owned()));
            }
            last = requests;
        }
    }

    /// Returns the number of writes so far, without those of the workload and of the nodes.
    pub(super) async fn requests(&self) -> Result<Requests, TaskError> {
        let mut requests = match self.requests {
            RequestSource::AuditLog => {
                let text = match fs::read_to_string(audit_log(self.folder.path())) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
                    text => text.map_err(failed("audit log"))?,
                };
                in_audit_log(&text)
            }
            RequestSource::Metrics => {
                let text = self.api.send(&Request::get("/metrics")).await?;
                in_metrics(&String::from_utf8_lossy(&text))
            }
        };
        let is_managers = |kind: &String| {
            ["pods", "replicasets", "deployments", "events"].iter().any(|name| kind.contains(name))
                && !["PATCH pods/status", "POST deployments ", "PATCH deployments "]
                    .iter()
                    .any(|other| kind.starts_with(other))
        };
        requests.retain(|kind, _| is_managers(kind));
        Ok(requests)
    }
}

fn audit_log(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}

/// Counts the entries of an audit log of writes.
fn in_audit_log(text: &str) -> Requests {
    let mut requests = Requests::new();
    // The last line may be incomplete.
    for entry in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let method = match entry["verb"].as_str() {
            Some("create") => "POST",
            Some("update") => "PUT",
            Some("patch") => "PATCH",
            _ => "DELETE",
        };
        let (object, code) = (&entry["objectRef"], &entry["responseStatus"]["code"]);
        let resource = object["resource"].as_str().unwrap_or_default();
        *requests.entry(kind(method, resource, object["subresource"].as_str(), code)).or_default() += 1;
    }
    requests
}

/// Reads the counters of writes of kube-apiserver.
fn in_metrics(text: &str) -> Requests {
    let mut requests = Requests::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
        let Some((labels, count)) = line.rsplit_once("} ") else { continue };
        let label = |name: &str| {
            let value = labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
            value.and_then(|value| value.strip_suffix('"')).unwrap_or_default()
        };
        let (method, subresource) = (label("verb"), label("subresource"));
        if matches!(method, "POST" | "PUT" | "PATCH" | "DELETE" | "APPLY" | "DELETECOLLECTION") {
            let subresource = (!subresource.is_empty()).then_some(subresource);
            let kind = kind(method, label("resource"), subresource, label("code"));
            *requests.entry(kind).or_default() += count.parse::<f64>().unwrap_or_default() as usize;
        }
    }
    requests
}

/// Method, resource and status code, such as `PUT deployments/status 200`.
fn kind(method: &str, resource: &str, subresource: Option<&str>, code: impl Display) -> String {
    let subresource = subresource.map(|name| format!("/{name}")).unwrap_or_default();
    format!("{method} {resource}{subresource} {code}")
}

/// Simulated nodes of kube-apiserver: mark pods as ready.
struct Nodes {
    api: ApiClient,
    pods: Arc<dyn ListWatch<Pod>>,
    since: String,
}

impl Nodes {
    async fn new(clients: &ClientFactory) -> Result<Self, TaskError> {
        let api = clients.client("nodes", RateLimit::UNLIMITED);
        let since = resource_version(&api, PODS).await?;
        Ok(Self { pods: api.api().list_watch(ListParams::default()), api, since })
    }

    /// Runs until a watch fails.
    async fn run(&mut self) -> Result<(), TaskError> {
        let mut requests = JoinSet::new();
        loop {
            let options = WatchOptions {
                resource_version: Some(self.since.clone()),
                send_initial_events: false,
                timeout: TIMEOUT,
            };
            let mut events = self.pods.watch(&options).await?;
            while let Some(event) = events.next().await.transpose()? {
                let added = matches!(event, WatchEvent::Added(_));
                let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else { continue };
                self.since = pod.resource_version.to_string();
                if added {
                    if requests.len() >= NODE_REQUESTS {
                        requests.join_next().await;
                    }
                    let api = self.api.clone();
                    requests.spawn(async move {
                        // The pod may have been deleted.
                        let _ = api.send(&ready(&pod)).await;
                    });
                }
            }
        }
    }
}

/// Returns the current revision of a collection.
pub(super) async fn resource_version(api: &ApiClient, collection: &str) -> Result<String, TaskError> {
    let list: Value =
        serde_json::from_slice(&api.send(&Request::get(format!("{collection}?limit=1"))).await?)?;
    Ok(list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
}

/// Request that marks a pod as ready.
fn ready(pod: &Pod) -> Request {
    let path = format!("/api/v1/namespaces/{}/pods/{}/status", pod.key.namespace, pod.key.name);
    let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": pod.creation_timestamp});
    let status = json!({"phase": "Running", "conditions": [condition]});
    Request::strategic_merge_patch(path, json!({"status": status}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_an_audit_log_and_of_metrics() {
        let log = r#"{"verb":"update","objectRef":{"resource":"deployments","subresource":"status"},"responseStatus":{"code":409}}
{"verb":"create","objectRef":{"resource":"pods"},"responseStatus":{"code":201}}
{"verb":"create","objectRef":{"reso"#;
        let metrics = r#"# TYPE apiserver_request_total counter
apiserver_request_total{code="409",component="apiserver",dry_run="",group="apps",resource="deployments",scope="resource",subresource="status",verb="PUT",version="v1"} 1
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 1
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="LIST",version="v1"} 7
"#;
        let expected = [("POST pods 201".to_owned(), 1), ("PUT deployments/status 409".to_owned(), 1)];
        assert_eq!(in_audit_log(log), Requests::from(expected.clone()));
        assert_eq!(in_metrics(metrics), Requests::from(expected));
    }
}
