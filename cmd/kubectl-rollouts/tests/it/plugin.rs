//! The plugin as a program: exit codes, formats, and what it cannot read.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, mpsc},
    time::Duration,
};

use kcm_apiserver::{ApiServer, ApiServerConfig, Faults};
use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, Request, Server, UserAgent};
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_controller_manager::{Controllers, DebugControllers, Dependencies, ManagerConfig};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use kcm_sandbox_server::{Extension, ExtensionResponse, HttpServer};
use kcm_stories::external::{Authorization, ControlPlane};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

const WIDTH: usize = 80;

/// API server on a port, with controllers.
struct Cluster {
    api: ApiClient,
    kubeconfig: PathBuf,
    _controllers: Controllers,
    _plane: Option<ControlPlane>,
    _folder: TempDir,
    _stop: DropGuard,
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(RealClock::new())
}

async fn connect(kubeconfig: &Path) -> ClientFactory {
    let options = ClientOptions::new(UserAgent::new("test", "v0", ""), clock());
    let server = Server::KubeconfigFiles { paths: vec![kubeconfig.to_owned()], overrides: Box::default() };
    ClientFactory::connect(server, options).await.unwrap()
}

fn start_controllers(factory: &ClientFactory, debug: DebugControllers) -> Controllers {
    let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
    let clock = clock();
    let config = ManagerConfig { rate_limit: RateLimit::UNLIMITED, ..ManagerConfig::default() };
    let dependencies = Dependencies::new(factory, &clock, &random).with_debug(debug);
    kcm_controller_manager::start(&config, &dependencies)
}

/// Serves `/debug/controllers/` of the controllers, as `kube-sandbox` does.
fn serve_debug(debug: DebugControllers) -> Extension {
    Arc::new(move |request| {
        let path = request.uri().path().strip_prefix("/debug/controllers/").map(str::to_owned);
        let response = path.map(|path| debug.respond(&path));
        Box::pin(async move {
            response.map(|response| ExtensionResponse { status: response.status, body: response.body })
        })
    })
}

impl Cluster {
    /// The embedded API server with simulated nodes.
    async fn embedded(faults: &[&str]) -> Self {
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
        let server = ApiServer::new(ApiServerConfig {
            clock: clock(),
            random: Arc::clone(&random),
            faults: Faults::new(faults.iter().map(|fault| fault.parse().unwrap())),
            ..ApiServerConfig::default()
        });
        let kubelet = KubeletConfig {
            pod_ready_delay: Duration::from_millis(100),
            pod_stop_delay: Duration::from_millis(100),
        };
        let config = SandboxConfig { server: Arc::clone(&server), clock: clock(), random, nodes: 1, kubelet };
        let sandbox = Sandbox::new(config).unwrap();
        let stop = CancellationToken::new();
        let (components, serving) = (stop.clone(), stop.clone());
        tokio::spawn(async move { sandbox.run(components).await });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let debug = DebugControllers::default();
        let extension = Some(serve_debug(debug.clone()));
        tokio::spawn(HttpServer { extension, ..HttpServer::new(server) }.serve(listener, serving));
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("config");
        let contexts = json!([
            { "name": "sandbox", "context": { "cluster": "sandbox", "user": "none" } },
            { "name": "shop", "context": { "cluster": "sandbox", "user": "none", "namespace": "shop" } },
        ]);
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "sandbox",
            "clusters": [{ "name": "sandbox", "cluster": { "server": url } }],
            "users": [{ "name": "none", "user": {} }],
            "contexts": contexts,
        });
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        let factory = connect(&kubeconfig).await;
        Self::new(factory, kubeconfig, None, folder, stop, debug).await
    }

    /// kube-apiserver, without nodes. `None` without `KUBEBUILDER_ASSETS`.
    async fn real() -> Option<Self> {
        let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") else {
            // Written to stderr directly, because the test harness captures the output of `eprintln!`.
            let _ = writeln!(std::io::stderr(), "SKIPPED: why with kube-apiserver (no KUBEBUILDER_ASSETS)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let mut plane =
            ControlPlane::start(Path::new(&assets), folder.path(), Authorization::AlwaysAllow).unwrap();
        let kubeconfig = plane.kubeconfig("admin");
        let factory = connect(&kubeconfig).await;
        plane.ready(&factory.client("test", RateLimit::UNLIMITED), &RealClock::new()).await.unwrap();
        let debug = DebugControllers::default();
        Some(Self::new(factory, kubeconfig, Some(plane), folder, CancellationToken::new(), debug).await)
    }

    async fn new(
        factory: ClientFactory,
        kubeconfig: PathBuf,
        plane: Option<ControlPlane>,
        folder: TempDir,
        stop: CancellationToken,
        debug: DebugControllers,
    ) -> Self {
        let api = factory.client("test", RateLimit::UNLIMITED);
        let controllers = start_controllers(&factory, debug);
        let cluster = Self {
            api,
            kubeconfig,
            _controllers: controllers,
            _plane: plane,
            _folder: folder,
            _stop: stop.drop_guard(),
        };
        cluster.create("/api/v1/namespaces", &json!({ "metadata": { "name": "shop" } })).await;
        cluster
    }

    async fn create(&self, path: &str, object: &Value) {
        self.api.send(&Request::create(path, object.to_string())).await.unwrap();
    }

    async fn patch(&self, path: &str, patch: &Value) {
        self.api.send(&Request::strategic_merge_patch(path, patch.to_string())).await.unwrap();
    }

    async fn deploy(&self, name: &str, image: &str, replicas: i32) {
        self.create("/apis/apps/v1/namespaces/shop/deployments", &deployment(name, image, replicas)).await;
    }

    /// Runs `kubectl-rollouts why` with the arguments.
    async fn why(&self, arguments: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-rollouts"));
        command.arg("why").args(arguments.split_whitespace()).arg("--kubeconfig").arg(&self.kubeconfig);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Runs `why` until it exits with `code`, and returns its output.
    async fn until(&self, arguments: &str, code: i32) -> String {
        let clock = RealClock::new();
        let deadline = clock.monotonic() + Duration::from_secs(60);
        loop {
            let output = self.why(arguments).await;
            let text = String::from_utf8(output.stdout).unwrap();
            if output.status.code() == Some(code) {
                return text;
            }
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(clock.monotonic() < deadline, "{:?}\n{text}{errors}", output.status);
            clock.sleep(Duration::from_millis(200)).await;
        }
    }

    async fn json(&self, name: &str, code: i32) -> Value {
        serde_json::from_str(&self.until(&format!("{name} -n shop -o json"), code).await).unwrap()
    }

    /// Waits until `why` reports the cause.
    async fn until_cause(&self, name: &str, code: i32, cause: &str) {
        let clock = RealClock::new();
        let deadline = clock.monotonic() + Duration::from_secs(30);
        loop {
            let diagnosis = self.json(name, code).await;
            if diagnosis["cause"] == cause {
                return;
            }
            assert!(clock.monotonic() < deadline, "{diagnosis:#}");
            clock.sleep(Duration::from_millis(100)).await;
        }
    }
}

fn deployment(name: &str, image: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "labels": { "tier": name } },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "app", "image": image }] },
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_and_formats() {
    let cluster = Cluster::embedded(&[]).await;
    cluster.deploy("good", "app:1", 2).await;
    cluster.deploy("bad", "app:broken", 2).await;

    let text = cluster.until("deployment/good -n shop", 0).await;
    assert!(text.contains("Complete: 2 of 2 pods updated, 2 available."), "{text}");
    let text = cluster.until("bad --context shop", 3).await;
    assert!(text.contains("image_pull: Image app:broken cannot be pulled"), "{text}");
    assert!(!text.contains('\x1b'), "colour without a terminal: {text}");
    for line in text.lines().filter(|line| !line.starts_with("  kubectl")) {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    let diagnosis = cluster.json("bad", 3).await;
    assert_eq!(diagnosis["kind"], "RolloutDiagnosis");
    assert_eq!((&diagnosis["state"], &diagnosis["cause"]), (&json!("stuck"), &json!("image_pull")));
    let yaml = cluster.until("bad -n shop -o yaml", 3).await;
    assert!(yaml.contains("cause: image_pull"), "{yaml}");

    // The worst rollout determines the exit code of a table.
    let table = cluster.until("-A", 3).await;
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[1].contains("bad") && rows[1].contains("stuck"), "{table}");
    assert!(rows[2].contains("good") && rows[2].contains("complete"), "{table}");
    assert!(rows.iter().all(|row| row.chars().count() <= WIDTH), "{table}");
    let table = cluster.until("-n shop -l tier=good", 0).await;
    assert!(!table.contains("bad"), "{table}");

    let missing = cluster.why("missing -n shop").await;
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("\"missing\" not found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_state_of_the_controller_manager() {
    let cluster = Cluster::embedded(&[]).await;
    let quota = json!({ "metadata": { "name": "small" }, "spec": { "hard": { "pods": "1" } } });
    cluster.create("/api/v1/namespaces/shop/resourcequotas", &quota).await;
    cluster.deploy("web", "app:1", 3).await;
    // The API server serves the endpoint, as that of kube-sandbox.
    cluster.until_cause("web", 3, "quota_exceeded").await;
    let diagnosis = cluster.json("web", 3).await;
    let controllers = diagnosis["controllers"].as_array().unwrap();
    let retried = controllers.iter().find(|one| one["kind"] == "replicaset").unwrap();
    assert!(retried["retries"].as_i64().unwrap() > 0, "{diagnosis:#}");
    assert!(retried["lastError"].as_str().unwrap().contains("exceeded quota: small"), "{diagnosis:#}");
    let text = cluster.until("web -n shop", 3).await;
    assert!(text.contains("the controller's queue: replicaset web-"), "{text}");

    // Another context, whose server is the manager's.
    let text = cluster.until("web -n shop --manager-context shop", 3).await;
    assert!(text.contains("the controller's queue: replicaset web-"), "{text}");
    let missing = cluster.why("web -n shop --manager-context missing").await;
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_refuses_is_named() {
    let cluster = Cluster::embedded(&["GET /debug/controllers/deployment/shop/web 403"]).await;
    cluster.deploy("web", "app:1", 1).await;
    let text = cluster.until("web -n shop", 0).await;
    assert!(!text.contains("debug/controllers"), "{text}");
    let text = cluster.until("web -n shop --manager-context shop", 0).await;
    assert!(text.contains("  - debug/controllers: "), "{text}");
}

/// Process that prints until it is killed.
struct Watching {
    process: Child,
    lines: mpsc::Receiver<String>,
}

impl Watching {
    fn start(cluster: &Cluster, arguments: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-rollouts"));
        command.arg("why").args(arguments.split_whitespace()).arg("--kubeconfig").arg(&cluster.kubeconfig);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        Self { process, lines }
    }

    /// Waits until a line contains `part`.
    fn until(&self, part: &str, timeout: Duration) {
        let clock = RealClock::new();
        let deadline = clock.monotonic() + timeout;
        loop {
            let left = deadline.saturating_sub(clock.monotonic());
            if self.lines.recv_timeout(left).unwrap().contains(part) {
                return;
            }
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_prints_after_a_change() {
    let cluster = Cluster::embedded(&[]).await;
    cluster.deploy("web", "app:1", 2).await;
    cluster.until("web -n shop", 0).await;
    let watching = Watching::start(&cluster, "web -n shop --watch");
    let started = tokio::task::spawn_blocking(move || {
        watching.until("Complete", Duration::from_secs(30));
        watching
    });
    let watching = started.await.unwrap();
    let change = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "app", "image": "app:broken" }] } } } });
    cluster.patch("/apis/apps/v1/namespaces/shop/deployments/web", &change).await;
    // A line for each change. Without watches, the cluster is read every 10 seconds.
    let line = "Z shop/web image_pull: ";
    let stuck = tokio::task::spawn_blocking(move || watching.until(line, Duration::from_secs(8)));
    stuck.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_of_a_user_who_may_only_get() {
    let paths = ["/api/v1/**", "/apis/coordination.k8s.io/**", "/apis/*/*/namespaces/*/*"];
    let rules = paths.map(|path| format!("* {path} 403 agent=kubectl-rollouts*"));
    let watches = "WATCH /** 403 agent=kubectl-rollouts*";
    let faults: Vec<&str> = rules.iter().map(String::as_str).chain([watches]).collect();
    let cluster = Cluster::embedded(&faults).await;
    cluster.deploy("web", "app:1", 2).await;
    let text = cluster.until("web -n shop", 5).await;
    assert!(text.contains("not permitted to list pods in namespace shop"), "{text}");
    let watching = Watching::start(&cluster, "web -n shop --watch");
    let started = tokio::task::spawn_blocking(move || {
        watching.until("create rolebinding rollouts-view", Duration::from_secs(30));
        watching
    });
    let watching = started.await.unwrap();
    let change = json!({ "spec": {
        "paused": true, "template": { "spec": { "containers": [{ "name": "app", "image": "app:2" }] } },
    } });
    cluster.patch("/apis/apps/v1/namespaces/shop/deployments/web", &change).await;
    // The Deployment is read every 10 seconds.
    let line = "Z shop/web paused: Paused: 0 of 2 pods updated";
    tokio::task::spawn_blocking(move || watching.until(line, Duration::from_secs(30))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_resources_are_named() {
    let cluster = Cluster::embedded(&["GET /api/v1/namespaces/shop/resourcequotas 403"]).await;
    cluster.deploy("good", "app:1", 1).await;
    let text = cluster.until("good -n shop", 0).await;
    let section = text.split_once("Not read\n").map_or("", |(_, section)| section);
    assert!(section.contains("not permitted to list resourcequotas in namespace shop"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn causes_on_a_real_api_server() {
    let Some(cluster) = Cluster::real().await else { return };
    let namespace = "/api/v1/namespaces/shop";
    cluster.deploy("none", "app:1", 0).await;
    cluster.json("none", 0).await;
    let scale = "/apis/apps/v1/namespaces/shop/deployments/none/scale?fieldManager=keda-operator";
    cluster.patch(scale, &json!({ "spec": { "replicas": 1 } })).await;
    let notes = cluster.until("none -n shop", 2).await;
    assert!(notes.contains("keda-operator writes spec.replicas through the scale"), "{notes}");

    cluster.deploy("paused", "app:1", 0).await;
    cluster.json("paused", 0).await;
    let change = json!({ "spec": { "paused": true, "template": { "spec": {
        "containers": [{ "name": "app", "image": "app:2" }],
    } } } });
    cluster.patch("/apis/apps/v1/namespaces/shop/deployments/paused", &change).await;
    cluster.until_cause("paused", 3, "paused").await;

    // No scheduler runs.
    cluster.deploy("pending", "app:1", 1).await;
    cluster.until_cause("pending", 2, "pod_starting").await;

    let limits = json!({ "metadata": { "name": "small" }, "spec": { "limits": [
        { "type": "Container", "max": { "cpu": "100m" } },
    ] } });
    cluster.create(&format!("{namespace}/limitranges"), &limits).await;
    let mut large = deployment("large", "app:1", 1);
    large["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "2" } });
    cluster.create("/apis/apps/v1/namespaces/shop/deployments", &large).await;
    cluster.until_cause("large", 3, "limit_range").await;

    let enforce = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    cluster.patch(namespace, &enforce).await;
    cluster.deploy("insecure", "app:1", 1).await;
    cluster.until_cause("insecure", 3, "pod_security").await;

    let webhook = json!({ "metadata": { "name": "images" }, "webhooks": [{
        "name": "images.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": { "url": "https://127.0.0.1:1/" },
        "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] }],
    }] });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let disable = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "privileged" } } });
    cluster.patch(namespace, &disable).await;
    cluster.create(path, &webhook).await;
    cluster.deploy("refused", "app:1", 1).await;
    let refused = cluster.until("refused -n shop", 3).await;
    assert!(refused.contains("admission_webhook"), "{refused}");
}
