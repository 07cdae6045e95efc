//! kube-apiserver with upstream's manager, nodes and readers.

use std::{
    collections::HashMap,
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use http_body_util::BodyExt as _;
use kcm_api::ApiError;
use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, Request, Server, UserAgent};
use kcm_clock::{Clock, RealClock, Timestamp};
use kcm_stories::external::{Authorization, ControlPlane, Program};
use kube_client::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{RwLock, mpsc};

use crate::proxy::{self, Rules};

/// Interval in which the Lease of the manager is renewed.
const RENEWAL: Duration = Duration::from_secs(2);
/// Collection of the Lease.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// Name of the Lease.
const LEASE: &str = "kube-controller-manager";
/// Controllers of the manager. The Deployment and ReplicaSet controllers, and those that the sandbox simulates.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,resourcequota-controller,\
                           namespace-controller,disruption-controller,garbage-collector-controller";
/// Resources that `why` reads: groups and plural names.
const READ: [(&str, &[&str]); 5] = [
    ("", &["pods", "events", "resourcequotas", "limitranges", "nodes", "namespaces"]),
    ("apps", &["deployments", "replicasets"]),
    ("policy", &["poddisruptionbudgets"]),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("coordination.k8s.io", &["leases"]),
];

/// Programs that the tests run.
#[derive(Debug)]
pub(crate) struct Programs {
    assets: PathBuf,
    manager: PathBuf,
    plugin: PathBuf,
}

impl Programs {
    /// Programs named by the environment, or the reason for which the tests are skipped.
    pub(crate) fn find() -> Result<Self, String> {
        let variable = |name: &str| env::var_os(name).map(PathBuf::from).ok_or_else(|| format!("no {name}"));
        let (assets, manager) = (variable("KUBEBUILDER_ASSETS")?, variable("KUBE_CONTROLLER_MANAGER")?);
        let built = || {
            let this = env::current_exe().ok()?;
            Some(this.parent()?.parent()?.join("kubectl-rollouts"))
        };
        let plugin = variable("KUBECTL_ROLLOUTS").ok().or_else(built).filter(|path| path.exists());
        let plugin = plugin.ok_or("no kubectl-rollouts: run `cargo build -p kubectl-rollouts`")?;
        Ok(Self { assets, manager, plugin })
    }
}

/// State of the Lease that a diagnosis finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    /// It is renewed.
    Current,
    /// It was renewed at this time for the last time.
    RenewedAt(Timestamp),
    /// It does not exist.
    Deleted,
}

/// Event of a pod: its type and the pod.
pub(crate) type PodChange = (String, Value);

/// API server, manager and proxy.
pub(crate) struct Cluster {
    pub(crate) api: ApiClient,
    pub(crate) rules: Arc<Rules>,
    pub(crate) clock: Arc<dyn Clock>,
    client: Client,
    plugin: PathBuf,
    kubeconfig: PathBuf,
    /// Receivers of the pods' events, by namespace.
    pods: Mutex<HashMap<String, mpsc::UnboundedSender<PodChange>>>,
    /// Held for writing while the Lease is that of one scenario.
    lease: RwLock<()>,
    manager: Program,
    _plane: ControlPlane,
    _folder: TempDir,
}

impl Cluster {
    /// Starts the programs.
    pub(crate) async fn start(programs: Programs) -> Arc<Self> {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let folder = tempfile::tempdir().unwrap();
        let mut plane = ControlPlane::start(&programs.assets, folder.path(), Authorization::Rbac).unwrap();
        let options = ClientOptions::new(UserAgent::new("scenarios", "v0", ""), Arc::clone(&clock));
        let kubeconfig = plane.kubeconfig("admin");
        let server = Server::Kubeconfig { path: kubeconfig.clone(), master: None };
        let factory = ClientFactory::connect(server, options).await.unwrap();
        let api = factory.client("scenarios", RateLimit::UNLIMITED);
        plane.ready(&api, &*clock).await.unwrap();
        let rules = Arc::new(Rules::default());
        let address = proxy::serve(client(&plane.kubeconfig("manager")).await, Arc::clone(&rules)).await;
        let manager = start_manager(&programs.manager, &format!("http://{address}"), folder.path());
        let cluster = Arc::new(Self {
            api,
            rules,
            clock,
            client: client(&kubeconfig).await,
            plugin: programs.plugin,
            kubeconfig,
            pods: Mutex::default(),
            lease: RwLock::default(),
            manager,
            _plane: plane,
            _folder: folder,
        });
        cluster.create_lease().await;
        tokio::spawn(Arc::clone(&cluster).renew_lease());
        tokio::spawn(Arc::clone(&cluster).watch_pods());
        cluster
    }

    /// Last lines of the manager's log.
    pub(crate) fn manager_log(&self) -> String {
        self.manager.log_tail()
    }

    pub(crate) fn now(&self) -> kcm_api::Time {
        kcm_api::Time::new(self.clock.now())
    }

    pub(crate) async fn send(&self, request: Request) -> Result<Value, ApiError> {
        let body = self.api.send(&request).await?;
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.send(Request::get(path)).await
    }

    /// Items of a list.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<Value>, ApiError> {
        let mut list = self.get(path).await?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Creates a node that accepts pods.
    pub(crate) async fn create_node(&self, name: &str) -> Result<(), ApiError> {
        let labels = json!({ "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" });
        let node = json!({ "metadata": { "name": name, "labels": labels } });
        self.send(Request::create("/api/v1/nodes", node.to_string())).await?;
        let now = self.now();
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the simulated kubelet is ready",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let resources = json!({ "cpu": "64", "memory": "256Gi", "pods": "1000" });
        let status = json!({ "capacity": resources, "allocatable": resources, "conditions": [ready] });
        // The API server adds a taint to new nodes.
        let patches = [("", json!({ "spec": { "taints": null } })), ("/status", json!({ "status": status }))];
        for (part, patch) in patches {
            let path = format!("/api/v1/nodes/{name}{part}");
            self.send(Request::strategic_merge_patch(path, patch.to_string())).await?;
        }
        Ok(())
    }

    /// Sends the events of the pods of a namespace to the returned receiver.
    pub(crate) fn subscribe(&self, namespace: &str) -> mpsc::UnboundedReceiver<PodChange> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.pods.lock().insert(namespace.to_owned(), sender);
        receiver
    }

    pub(crate) fn unsubscribe(&self, namespace: &str) {
        self.pods.lock().remove(namespace);
    }

    /// Runs `kubectl-rollouts why` as a reader that may not read `hidden`.
    pub(crate) async fn why(
        &self,
        namespace: &str,
        name: &str,
        hidden: &[String],
        lease: Lease,
    ) -> Result<String, String> {
        let mut command = Command::new(&self.plugin);
        command.args(["why", name, "-n", namespace, "-o", "json", "--kubeconfig"]).arg(&self.kubeconfig);
        if !hidden.is_empty() {
            let reader = format!("reader-of-{namespace}");
            self.create_reader(&reader, hidden).await.map_err(|error| error.to_string())?;
            command.arg(format!("--as={reader}"));
        }
        let run = || tokio::task::spawn_blocking(move || command.output().unwrap());
        let output = if lease == Lease::Current {
            let _shared = self.lease.read().await;
            run().await.unwrap()
        } else {
            let _exclusive = self.lease.write().await;
            self.set_lease(lease).await.map_err(|error| error.to_string())?;
            let output = run().await.unwrap();
            self.create_lease().await;
            output
        };
        if output.stdout.is_empty() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        String::from_utf8(output.stdout).map_err(|error| error.to_string())
    }

    /// Creates a user that may read all resources of `why` but `hidden`.
    async fn create_reader(&self, user: &str, hidden: &[String]) -> Result<(), ApiError> {
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        let rules: Vec<Value> = READ
            .iter()
            .map(|(group, resources)| {
                let allowed: Vec<_> =
                    resources.iter().filter(|one| !hidden.iter().any(|other| other == *one)).collect();
                json!({ "apiGroups": [group], "resources": allowed, "verbs": ["get", "list"] })
            })
            .filter(|rule| rule["resources"] != json!([]))
            .collect();
        let role = json!({ "metadata": { "name": user }, "rules": rules });
        let binding = json!({
            "metadata": { "name": user },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
        });
        for (resource, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
            self.send(Request::create(format!("{RBAC}/{resource}"), object.to_string())).await?;
        }
        // The authorizer reads roles and bindings from its caches.
        self.clock.sleep(Duration::from_millis(500)).await;
        Ok(())
    }

    /// Creates the Lease, or renews it.
    async fn create_lease(&self) {
        let now = format!("{:.6}", self.clock.now());
        let spec = json!({ "holderIdentity": "node-1_abc", "leaseDurationSeconds": 15, "renewTime": now });
        let lease = json!({ "metadata": { "name": LEASE }, "spec": spec });
        if self.send(Request::create(LEASES, lease.to_string())).await.is_err() {
            let patch = json!({ "spec": spec }).to_string();
            drop(self.send(Request::strategic_merge_patch(format!("{LEASES}/{LEASE}"), patch)).await);
        }
    }

    async fn set_lease(&self, lease: Lease) -> Result<(), ApiError> {
        let path = format!("{LEASES}/{LEASE}");
        let request = match lease {
            Lease::Current => return Ok(()),
            Lease::RenewedAt(time) => {
                let patch = json!({ "spec": { "renewTime": format!("{time:.6}") } });
                Request::strategic_merge_patch(path, patch.to_string())
            }
            Lease::Deleted => Request::delete(path, ""),
        };
        self.send(request).await.map(drop)
    }

    async fn renew_lease(self: Arc<Self>) {
        loop {
            {
                let _shared = self.lease.read().await;
                self.create_lease().await;
            }
            self.clock.sleep(RENEWAL).await;
        }
    }

    async fn watch_pods(self: Arc<Self>) {
        let mut version = String::new();
        loop {
            let path = format!("/api/v1/pods?watch=true&resourceVersion={version}");
            let request = http::Request::get(path).body(Body::empty()).unwrap();
            let Ok(mut response) = self.client.send(request).await else {
                self.clock.sleep(Duration::from_millis(100)).await;
                continue;
            };
            let mut buffer = Vec::new();
            while let Some(Ok(frame)) = response.body_mut().frame().await {
                buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
                while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    if let Ok(event) = serde_json::from_slice(&line) {
                        self.dispatch(event, &mut version);
                    }
                }
            }
        }
    }

    fn dispatch(&self, mut event: Value, version: &mut String) {
        let type_ = event["type"].as_str().unwrap_or_default().to_owned();
        let pod = event["object"].take();
        let metadata = &pod["metadata"];
        // After an error the next watch begins with all pods.
        *version = metadata["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        if let Some(receiver) = self.pods.lock().get(namespace) {
            let _ = receiver.send((type_, pod));
        }
    }
}

/// Client that passes requests through.
async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Starts upstream's manager with the API server at `server`.
fn start_manager(program: &Path, server: &str, folder: &Path) -> Program {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "k", "cluster": { "server": server } }],
        "users": [{ "name": "u", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
    });
    let file = folder.join("proxy.kubeconfig");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let of = |flag: &str| format!("--{flag}={}", file.display());
    let mut flags = vec![of("kubeconfig"), of("authentication-kubeconfig"), of("authorization-kubeconfig")];
    flags.push(format!("--controllers={CONTROLLERS}"));
    let others = ["--leader-elect=false", "--kube-api-qps=1000", "--kube-api-burst=1000", "--secure-port=0"];
    flags.extend(others.map(str::to_owned));
    for kind in ["deployment", "replicaset", "resource-quota", "namespace"] {
        flags.push(format!("--concurrent-{kind}-syncs=20"));
    }
    Program::run("the manager", program.as_os_str(), &flags, &folder.join("manager.log")).unwrap()
}
