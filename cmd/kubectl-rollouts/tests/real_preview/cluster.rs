//! kube-apiserver with a manager, users and virtual nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsString,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Once},
    time::Duration,
};

use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, Request, Server, UserAgent};
use kcm_clock::{Clock, RealClock, SeededRandom};
use kcm_controller_manager::{Controllers, Dependencies, ManagerConfig};
use kcm_rollouts::{Known, Snapshot, diagnose};
use kcm_stories::{
    Entry, WriteLog,
    external::{Authorization, ControlPlane, Program},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    case::Case,
    course::{Counts, ObservedStep, Write},
    nodes::{NODE, Nodes, Timing, is_ready},
};

/// Time limit of each wait, sufficient for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval of polls.
const INTERVAL: Duration = Duration::from_millis(20);

/// Manager of the cluster.
#[derive(Debug)]
pub(crate) enum Manager {
    /// This project's controllers, in the process of the test.
    This,
    /// Upstream's program.
    Upstream(OsString),
}

/// Path of upstream's manager. Without it, reports once that tests are skipped.
pub(crate) fn upstream_program() -> Option<OsString> {
    let program = env::var_os("KUBE_CONTROLLER_MANAGER");
    if program.is_none() {
        skipped("preview with upstream's manager (no KUBE_CONTROLLER_MANAGER)");
    }
    program
}

/// Reports skipped tests. Writes to stderr directly, because the test harness captures the output of `eprintln!`.
fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// API server, manager, and the requests that were logged.
pub(crate) struct Cluster {
    api: ApiClient,
    kubectl: PathBuf,
    log: WriteLog,
    /// Requests by namespace, in their order.
    requests: BTreeMap<String, Vec<Entry>>,
    logged: Logged,
    /// ReplicaSets of all pods that were read, by namespace and name of the pod.
    owners: BTreeMap<(String, String), String>,
    _controllers: Option<Controllers>,
    _manager: Option<Program>,
    _plane: ControlPlane,
    folder: TempDir,
    _stop: DropGuard,
}

/// Successful writes in the log, by namespace and name.
#[derive(Debug, Default)]
struct Logged {
    /// Number of created pods of each ReplicaSet.
    created: BTreeMap<(String, String), u64>,
    /// Deleted pods.
    deleted: BTreeSet<(String, String)>,
    /// `spec.replicas` of ReplicaSets.
    replicas: BTreeMap<(String, String), i64>,
}

impl Logged {
    fn add(&mut self, request: &Entry) {
        let key = |name: &str| (request.namespace.clone(), name.to_owned());
        let body = request.body.as_ref().unwrap_or(&Value::Null);
        if request.code >= 300 || !request.subresource.is_empty() {
            return;
        }
        match (&*request.resource, &*request.verb) {
            ("pods", "create") => *self.created.entry(key(owner(body))).or_default() += 1,
            ("pods", "delete") => {
                self.deleted.insert(key(&request.name));
            }
            ("replicasets", "create" | "update") => {
                self.replicas.insert(key(name(body)), body["spec"]["replicas"].as_i64().unwrap());
            }
            _ => {}
        }
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Name of the first owner.
fn owner(pod: &Value) -> &str {
    pod["metadata"]["ownerReferences"][0]["name"].as_str().unwrap()
}

fn is_active(pod: &Value) -> bool {
    pod["metadata"].get("deletionTimestamp").is_none()
}

/// Objects of a namespace.
#[derive(Debug, PartialEq)]
struct State {
    deployment: Value,
    replica_sets: Vec<Value>,
    pods: Vec<Value>,
}

impl State {
    /// `true` if the controllers have nothing to write until an event of a pod.
    fn is_settled(&self) -> bool {
        let is_observed = |set: &Value| {
            let pods = || self.pods.iter().filter(|pod| is_active(pod) && owner(pod) == name(set));
            let status = |field: &str| set["status"][field].as_u64().unwrap_or(0);
            let count = |number: usize| u64::try_from(number).unwrap();
            let (active, ready) = (count(pods().count()), count(pods().filter(|pod| is_ready(pod)).count()));
            set["spec"]["replicas"].as_u64() == Some(active)
                && set["status"]["observedGeneration"] == set["metadata"]["generation"]
                && [status("replicas"), status("readyReplicas"), status("availableReplicas")]
                    == [active, ready, ready]
        };
        let snapshot = Snapshot {
            deployments: Known::Read(vec![self.deployment.clone()]),
            replica_sets: Known::Read(self.replica_sets.clone()),
            pods: Known::Read(self.pods.clone()),
            ..Snapshot::default()
        };
        let diagnosis = diagnose(&snapshot, &self.deployment, RealClock::new().now()).unwrap();
        let has_writes = !matches!(&*diagnosis.next, [next] if next.starts_with("wait for "));
        self.replica_sets.iter().all(is_observed) && !has_writes
    }
}

/// Starts this project's controllers.
async fn controllers(kubeconfig: &Path) -> Controllers {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let factory = connect(kubeconfig).await;
    let config = ManagerConfig { rate_limit: RateLimit::UNLIMITED, ..ManagerConfig::default() };
    let random = Arc::new(SeededRandom::new(1)) as _;
    kcm_controller_manager::start(&config, &Dependencies::new(&factory, &clock, &random))
}

/// Starts upstream's manager.
fn upstream(program: &OsString, kubeconfig: &Path, folder: &Path) -> Program {
    let of = |flag: &str| format!("--{flag}={}", kubeconfig.display());
    let mut flags = vec![of("kubeconfig"), of("authentication-kubeconfig"), of("authorization-kubeconfig")];
    let others = [
        "--controllers=deployment-controller,replicaset-controller,resourcequota-controller",
        "--leader-elect=false",
        "--kube-api-qps=1000",
        "--kube-api-burst=1000",
        "--secure-port=0",
    ];
    flags.extend(others.map(str::to_owned));
    Program::run("the manager", program, &flags, &folder.join("manager.log")).unwrap()
}

async fn connect(kubeconfig: &Path) -> ClientFactory {
    let options = ClientOptions::new(UserAgent::new("test", "v0", ""), Arc::new(RealClock::new()));
    let server = Server::Kubeconfig { path: kubeconfig.to_owned(), master: None };
    ClientFactory::connect(server, options).await.unwrap()
}

impl Cluster {
    /// Starts kube-apiserver and the manager. `None` without `KUBEBUILDER_ASSETS`.
    pub(crate) async fn start(manager: Manager) -> Option<Self> {
        static REPORTED: Once = Once::new();
        let Some(assets) = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) else {
            REPORTED.call_once(|| skipped("preview with kube-apiserver (no KUBEBUILDER_ASSETS)"));
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let mut plane = ControlPlane::start(&assets, folder.path(), Authorization::Rbac).unwrap();
        let stop = CancellationToken::new();
        let (sender, log) = WriteLog::new(Arc::new(RealClock::new()));
        plane.follow(sender, stop.clone());
        let api = connect(&plane.kubeconfig("admin")).await.client("test", RateLimit::UNLIMITED);
        plane.ready(&api, &RealClock::new()).await.unwrap();
        let kubeconfig = plane.kubeconfig("manager");
        let (controllers, manager) = match manager {
            Manager::This => (Some(controllers(&kubeconfig).await), None),
            Manager::Upstream(program) => (None, Some(upstream(&program, &kubeconfig, folder.path()))),
        };
        let cluster = Self {
            api,
            kubectl: assets.join("kubectl"),
            log,
            requests: BTreeMap::new(),
            logged: Logged::default(),
            owners: BTreeMap::new(),
            _controllers: controllers,
            _manager: manager,
            folder,
            _stop: stop.drop_guard(),
            _plane: plane,
        };
        cluster.create_node().await;
        cluster.create_users(&cluster._plane.url()).await;
        Some(cluster)
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Value {
        let response = self.api.send(&Request::create(path, object.to_string())).await;
        serde_json::from_slice(&response.unwrap_or_else(|error| panic!("{path}: {error}"))).unwrap()
    }

    async fn create_node(&self) {
        let node = json!({ "metadata": { "name": NODE } });
        self.create("/api/v1/nodes", &node).await;
        // The API server adds a taint to new nodes.
        let patches = [
            ("", json!({ "spec": { "taints": null } })),
            (
                "/status",
                json!({ "status": {
                "allocatable": { "cpu": "64", "memory": "64Gi", "pods": "500" },
                "conditions": [{ "type": "Ready", "status": "True" }],
            } }),
            ),
        ];
        for (subresource, patch) in patches {
            let path = format!("/api/v1/nodes/{NODE}{subresource}");
            self.api.send(&Request::strategic_merge_patch(path, patch.to_string())).await.unwrap();
        }
    }

    /// Creates the service accounts `viewer`, which can read what a preview reads, and `guest`, which can read Deployments,
    /// ReplicaSets and pods.
    async fn create_users(&self, server: &str) {
        let reads = |group: &str, resources: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": ["get", "list"] });
        let workloads = || vec![reads("apps", &["deployments", "replicasets"]), reads("", &["pods"])];
        let others = [
            reads("", &["resourcequotas", "limitranges", "nodes"]),
            reads("policy", &["poddisruptionbudgets"]),
            reads("autoscaling", &["horizontalpodautoscalers"]),
        ];
        let users = [("viewer", workloads().into_iter().chain(others).collect()), ("guest", workloads())];
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        for (user, rules) in users {
            let metadata = json!({ "name": user });
            let role = json!({ "metadata": metadata, "rules": rules });
            self.create(&format!("{RBAC}/clusterroles"), &role).await;
            let binding = json!({
                "metadata": metadata,
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user },
                "subjects": [{ "kind": "ServiceAccount", "name": user, "namespace": "default" }],
            });
            self.create(&format!("{RBAC}/clusterrolebindings"), &binding).await;
            let accounts = "/api/v1/namespaces/default/serviceaccounts";
            self.create(accounts, &json!({ "metadata": metadata })).await;
            let request =
                json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
            let response =
                self.api.send(&Request::post(format!("{accounts}/{user}/token"), request.to_string())).await;
            let response: Value = serde_json::from_slice(&response.unwrap()).unwrap();
            let kubeconfig = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{ "name": "k", "cluster": { "server": server, "insecure-skip-tls-verify": true } }],
                "users": [{ "name": "u", "user": { "token": response["status"]["token"] } }],
                "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
            });
            std::fs::write(self.kubeconfig(user), kubeconfig.to_string()).unwrap();
        }
    }

    fn kubeconfig(&self, user: &str) -> PathBuf {
        self.folder.path().join(format!("{user}.kubeconfig"))
    }

    /// Runs `kubectl`, with the plugin in its path.
    pub(crate) async fn kubectl(&self, user: &str, arguments: &[&str]) -> Output {
        let plugin = Path::new(env!("CARGO_BIN_EXE_kubectl-rollouts")).parent().unwrap().to_owned();
        let others = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([plugin].into_iter().chain(env::split_paths(&others))).unwrap();
        let mut command = Command::new(&self.kubectl);
        command.args(arguments).env("PATH", path).env("KUBECONFIG", self.kubeconfig(user));
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    pub(crate) async fn kubectl_in(&self, namespace: &str, arguments: &[String]) {
        let mut all = vec!["-n", namespace];
        all.extend(arguments.iter().map(String::as_str));
        let output = self.kubectl("admin", &all).await;
        assert!(output.status.success(), "{all:?}: {output:?}");
    }

    /// Runs `preview` of the Deployment `web`, and returns its output.
    pub(crate) async fn run(&self, user: &str, namespace: &str, flags: &[String], timing: Timing) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-rollouts"));
        command
            .args(["preview", "web", "-n", namespace])
            .args(flags)
            .arg("--kubeconfig")
            .arg(self.kubeconfig(user));
        command.arg(format!("--ready-after={}s", timing.ready)).arg(format!("--stop-after={}s", timing.stop));
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) async fn preview(
        &self,
        user: &str,
        namespace: &str,
        flags: &[String],
        timing: Timing,
    ) -> Value {
        let mut flags = flags.to_vec();
        flags.push("--output=json".to_owned());
        serde_json::from_str(&self.run(user, namespace, &flags, timing).await).unwrap()
    }

    /// Writes a manifest to a new file.
    pub(crate) fn manifest(&self, manifest: &Value) -> PathBuf {
        let file = tempfile::Builder::new().suffix(".json").tempfile_in(self.folder.path()).unwrap();
        let (_, path) = file.keep().unwrap();
        std::fs::write(&path, manifest.to_string()).unwrap();
        path
    }

    /// Client of an administrator.
    pub(crate) fn api(&self) -> &ApiClient {
        &self.api
    }

    /// Starts `kubectl` that prints the changes of a resource in all namespaces.
    pub(crate) fn watch(&self, resource: &str) -> Child {
        let mut command = Command::new(&self.kubectl);
        command
            .args(["get", resource, "--all-namespaces", "--watch", "--output-watch-events", "--output=json"])
            .arg("--kubeconfig")
            .arg(self.kubeconfig("admin"))
            .stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Creates the namespace and the Deployment of the case, and rolls out its former images.
    pub(crate) async fn deploy(&mut self, namespace: &str, case: &Case) {
        self.create("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await;
        let manifest = self.manifest(&case.manifest("app:0"));
        self.kubectl_in(namespace, &["apply".to_owned(), "-f".to_owned(), manifest.display().to_string()])
            .await;
        self.course(namespace, case.timing).await;
        for number in 1..=case.history {
            let command = format!("set image deployment/web app=app:{number}");
            let arguments: Vec<String> = command.split(' ').map(str::to_owned).collect();
            self.kubectl_in(namespace, &arguments).await;
            self.course(namespace, case.timing).await;
        }
    }

    /// Makes the change of the case.
    pub(crate) async fn change(&self, namespace: &str, case: &Case) {
        let manifest = self.manifest(&case.changed_manifest());
        self.kubectl_in(namespace, &case.change.kubectl_arguments(&manifest)).await;
    }

    /// Runs the nodes until nothing more happens.
    pub(crate) async fn course(&mut self, namespace: &str, timing: Timing) -> Vec<ObservedStep> {
        let mut nodes = Nodes::new(self.api.clone(), namespace, timing);
        let mut steps = Vec::new();
        loop {
            let state = self.settle(namespace, &mut nodes).await;
            let requests = self.requests(namespace).await;
            let writes = requests.iter().filter_map(|request| self.write(namespace, request)).collect();
            steps.push(ObservedStep { seconds: nodes.now, writes, counts: Counts::of(&state.pods) });
            if !nodes.advance().await {
                return steps;
            }
        }
    }

    /// Waits until the controllers have nothing to do, and their requests are logged.
    async fn settle(&mut self, namespace: &str, nodes: &mut Nodes) -> State {
        let clock = RealClock::new();
        let deadline = clock.monotonic() + TIMEOUT;
        let mut last = None;
        loop {
            let state = self.state(namespace).await;
            for pod in &state.pods {
                self.owners.insert((namespace.to_owned(), name(pod).to_owned()), owner(pod).to_owned());
            }
            let has_events = nodes.observe(&state.pods).await;
            self.read_log();
            // The objects are read one after the other, and are those of one time if they are read twice.
            let is_settled = !has_events && last.as_ref() == Some(&state) && state.is_settled();
            if is_settled && self.is_logged(namespace, &state) {
                return state;
            }
            assert!(clock.monotonic() < deadline, "the controllers have not settled: {state:#?}");
            last = Some(state);
            clock.sleep(INTERVAL).await;
        }
    }

    async fn list(&self, namespace: &str, version: &str, resource: &str) -> Vec<Value> {
        let path = format!("/{version}/namespaces/{namespace}/{resource}");
        let list: Value = serde_json::from_slice(&self.api.send(&Request::get(path)).await.unwrap()).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    pub(crate) async fn pods(&self, namespace: &str) -> Vec<Value> {
        self.list(namespace, "api/v1", "pods").await
    }

    async fn state(&self, namespace: &str) -> State {
        State {
            deployment: self.list(namespace, "apis/apps/v1", "deployments").await.remove(0),
            replica_sets: self.list(namespace, "apis/apps/v1", "replicasets").await,
            pods: self.pods(namespace).await,
        }
    }

    /// Resource versions of the objects of a namespace, by UID.
    pub(crate) async fn versions(&self, namespace: &str) -> BTreeMap<String, String> {
        let State { deployment, replica_sets, pods } = self.state(namespace).await;
        let others = self.list(namespace, "api/v1", "configmaps").await;
        let objects = [deployment].into_iter().chain(replica_sets).chain(pods).chain(others);
        let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        objects.map(|object| (text(&object, "uid"), text(&object, "resourceVersion"))).collect()
    }

    /// Name of the ReplicaSet with the highest revision.
    pub(crate) async fn newest_replica_set(&self, namespace: &str) -> String {
        let revision = |set: &Value| {
            let revision = set["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str();
            revision.and_then(|revision| revision.parse::<u64>().ok())
        };
        let sets = self.list(namespace, "apis/apps/v1", "replicasets").await;
        name(sets.iter().max_by_key(|set| revision(set)).unwrap()).to_owned()
    }

    fn read_log(&mut self) {
        while let Some(entry) = self.log.try_next() {
            if entry.is_write() && entry.resource != "events" {
                self.logged.add(&entry);
                self.requests.entry(entry.namespace.clone()).or_default().push(entry);
            }
        }
    }

    /// Requests of the manager and of the service accounts that are not watches since the last call.
    pub(crate) async fn requests(&mut self, namespace: &str) -> Vec<Entry> {
        self.read_log();
        self.requests.remove(namespace).unwrap_or_default()
    }

    /// `true` if the log contains the writes that have led to `state`.
    fn is_logged(&self, namespace: &str, state: &State) -> bool {
        let key = |name: &str| (namespace.to_owned(), name.to_owned());
        let mut pods: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, set) in self.owners.iter().filter(|((of, _), _)| of == namespace) {
            *pods.entry(set).or_default() += 1;
        }
        let logged = &self.logged;
        let is_deleted = |pod: &&Value| pod["metadata"].get("deletionTimestamp").is_some();
        pods.iter().all(|(set, pods)| logged.created.get(&key(set)) >= Some(pods))
            && state.pods.iter().filter(is_deleted).all(|pod| logged.deleted.contains(&key(name(pod))))
            && state
                .replica_sets
                .iter()
                .all(|set| logged.replicas.get(&key(name(set))).copied() == set["spec"]["replicas"].as_i64())
    }

    /// Write of a controller. `None` for statuses and failed requests.
    fn write(&self, namespace: &str, request: &Entry) -> Option<Write> {
        if !request.subresource.is_empty() || request.code >= 300 {
            return None;
        }
        let body = request.body.as_ref();
        let of = match (&*request.resource, &*request.verb) {
            ("pods", "create") => owner(body?).to_owned(),
            ("pods", _) => self.owners.get(&(namespace.to_owned(), request.name.clone()))?.clone(),
            (_, "create") => name(body?).to_owned(),
            _ => request.name.clone(),
        };
        let replicas = body.and_then(|body| body["spec"]["replicas"].as_i64());
        Some(Write {
            verb: request.verb.clone(),
            replicas: replicas.filter(|_| request.resource == "replicasets"),
            resource: request.resource.clone(),
            name: of,
            count: 1,
        })
    }
}
