//! API server, simulated nodes and managers in one process and in simulated time.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use kcm_apiserver::{
    ApiServer, ApiServerConfig, ApiService, AuditEvent, HistoryLimits, ListOptions, Object, Resource,
    WriteOptions,
};
use kcm_client::{ClientOptions, InProcessServer, RateLimit, UserAgent};
use kcm_clock::{Clock, Random, SeededRandom, SimulatedClock};
use kcm_controller_manager::{Dependencies, LeaderElectionSettings, ManagerConfig, RunError};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::takeover::connection::{Connection, Fault, ProcessClock, State, Switch};

/// Default renew deadline.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
pub const LEASE_DURATION: Duration = Duration::from_secs(15);

/// Served request of a manager.
#[derive(Debug, Clone)]
pub struct Entry {
    pub at: Duration,
    /// Name of the manager: first part of the user agent.
    pub manager: String,
    pub verb: &'static str,
    pub resource: String,
    pub namespace: String,
    pub code: u16,
    /// Holder of the lease after the request.
    pub holder: String,
}

impl Entry {
    fn is_success(&self) -> bool {
        self.code < 300
    }

    fn is_write(&self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete")
    }

    /// Returns `true` for a write that requires the lease: all writes except those of the Lease and its events.
    pub fn is_of_leader(&self) -> bool {
        self.is_write() && self.namespace != "kube-system"
    }
}

type Trail = Arc<Mutex<Vec<Entry>>>;

pub struct World {
    pub server: Arc<ApiServer>,
    pub clock: Arc<dyn Clock>,
    pub trail: Trail,
    nodes: JoinHandle<()>,
}

/// Manager with a separate clock and connection.
pub struct Running {
    pub switch: Switch,
    pub shutdown: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
}

impl World {
    pub fn new(kubelet: KubeletConfig) -> Self {
        Self::with_history(kubelet, HistoryLimits::default())
    }

    pub fn with_history(kubelet: KubeletConfig, history: HistoryLimits) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
        let trail = Trail::default();
        let (later, recorded, time): (Arc<OnceLock<Weak<ApiServer>>>, _, _) =
            (Arc::default(), Arc::clone(&trail), Arc::clone(&clock));
        let late = Arc::clone(&later);
        let server = ApiServer::new(ApiServerConfig {
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            history,
            audit: Some(Arc::new(move |event: &AuditEvent| {
                if let Some(server) = late.get().and_then(Weak::upgrade) {
                    recorded.lock().extend(entry(event, &server, time.monotonic()));
                }
            })),
            ..ApiServerConfig::default()
        });
        later.set(Arc::downgrade(&server)).unwrap();
        let config = SandboxConfig {
            server: Arc::clone(&server),
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            nodes: 3,
            kubelet,
        };
        let sandbox = Sandbox::new(config).unwrap();
        let nodes = tokio::spawn(async move { sandbox.run(CancellationToken::new()).await });
        Self { server, clock, trail, nodes }
    }

    /// Starts a manager. `name` is also its hostname.
    pub fn start(&self, name: &str) -> Running {
        self.start_with(name, RateLimit::UNLIMITED, None)
    }

    /// Starts a manager with another front end of the API server.
    pub fn start_at(&self, name: &str, server: ApiService, fault: Option<Fault>) -> Running {
        self.start_on(name, server, RateLimit::UNLIMITED, fault)
    }

    pub fn start_with(&self, name: &str, rate_limit: RateLimit, fault: Option<Fault>) -> Running {
        self.start_on(name, self.server.service(), rate_limit, fault)
    }

    fn start_on(
        &self,
        name: &str,
        server: ApiService,
        rate_limit: RateLimit,
        fault: Option<Fault>,
    ) -> Running {
        let switch = Switch::new();
        let clock: Arc<dyn Clock> =
            Arc::new(ProcessClock { clock: Arc::clone(&self.clock), switch: switch.clone() });
        let seed = name.bytes().map(u64::from).sum::<u64>() + self.now().as_secs();
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(seed));
        let mut options = ClientOptions::new(UserAgent::new(name, "v1", ""), Arc::clone(&clock));
        // In place of the pings, which find a silent connection dead.
        options.timeout = Some(Duration::from_secs(60));
        let connection = Connection { server, switch: switch.clone(), fault };
        let dependencies = Dependencies::new(&connection.clients(options), &clock, &random);
        let config = ManagerConfig {
            rate_limit,
            leader_election: Some(LeaderElectionSettings::new("kube-system", "kube-controller-manager-rs")),
            ..ManagerConfig::default()
        };
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(
            kcm_controller_manager::manager(&config, &dependencies, name).unwrap().run(shutdown.clone()),
        );
        Running { switch, shutdown, task }
    }

    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    pub async fn sleep(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }

    /// Waits until `condition` is true. Returns the time waited.
    pub async fn until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) -> Duration {
        let start = self.now();
        while !condition(self) {
            assert!(self.now() - start < Duration::from_secs(600), "timeout waiting until {what}");
            self.clock.sleep(Duration::from_millis(10)).await;
        }
        self.now() - start
    }

    /// Hostname of the holder of the lease. Empty if there is none.
    pub fn leader(&self) -> String {
        holder(&self.server)
    }

    pub async fn until_led_by(&self, name: &str) -> Duration {
        self.until(&format!("{name} leads"), |world| world.leader() == name).await
    }

    pub fn deploy(&self, name: &str, replicas: u32) {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "c", "image": "app:1"}]},
                },
            },
        });
        self.server.create(Resource::DEPLOYMENTS, "default", object, &WriteOptions::default()).unwrap();
    }

    pub fn set_image(&self, name: &str, image: &str) {
        let mut object = self.deployment(name);
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        self.server.update(Resource::DEPLOYMENTS, "default", object, &WriteOptions::default()).unwrap();
    }

    fn deployment(&self, name: &str) -> Value {
        self.server.get(Resource::DEPLOYMENTS, "default", name).unwrap().value().clone()
    }

    /// Returns `true` if all pods are updated and available.
    pub fn is_rolled_out(&self, name: &str) -> bool {
        let object = self.deployment(name);
        let (wanted, status) = (&object["spec"]["replicas"], &object["status"]);
        status["observedGeneration"] == object["metadata"]["generation"]
            && status["replicas"] == *wanted
            && status["updatedReplicas"] == *wanted
            && status["availableReplicas"] == *wanted
    }

    pub async fn until_rolled_out(&self, name: &str) -> Duration {
        self.until(&format!("{name} is rolled out"), |world| world.is_rolled_out(name)).await
    }

    pub fn list(&self, resource: Resource) -> Vec<Arc<Object>> {
        self.server.list(resource, Some("default"), &ListOptions::default()).unwrap().items
    }

    /// Writes that require the lease.
    pub fn writes(&self) -> Vec<Entry> {
        self.trail.lock().iter().filter(|entry| entry.is_of_leader()).cloned().collect()
    }

    /// Number of successful requests with `verb` for `resource`.
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        let is_one = |entry: &&Entry| entry.verb == verb && entry.resource == resource && entry.is_success();
        self.writes().iter().filter(is_one).count()
    }

    /// Asserts that the holder of the lease sent each write, within the renew deadline after its last renewal.
    pub fn assert_single_writer(&self) {
        let mut renewed = BTreeMap::new();
        for entry in &*self.trail.lock() {
            if entry.resource == "leases" && entry.is_write() && entry.is_success() {
                renewed.insert(entry.manager.clone(), entry.at);
            }
            if entry.is_of_leader() {
                assert_eq!(entry.holder, entry.manager, "{entry:?}");
                assert!(entry.at < renewed[&entry.manager] + RENEW_DEADLINE, "after the deadline: {entry:?}");
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.nodes.abort();
    }
}

impl Running {
    pub async fn ended(self) -> Result<(), RunError> {
        self.task.await.unwrap()
    }

    pub fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// Kills the manager, as SIGKILL.
    pub fn kill(self) {
        self.task.abort();
        // Requests in progress are lost.
        self.switch.set(State::Cut);
    }
}

fn entry(event: &AuditEvent, server: &ApiServer, at: Duration) -> Option<Entry> {
    let manager = event.user_agent.split('/').next().filter(|agent| agent.starts_with("manager-"))?;
    let object = event.object.clone().unwrap_or_default();
    Some(Entry {
        at,
        manager: manager.to_owned(),
        verb: event.verb,
        resource: object.resource,
        namespace: object.namespace,
        code: event.code,
        holder: holder(server),
    })
}

fn holder(server: &ApiServer) -> String {
    let lease = server.get(Resource::LEASES, "kube-system", "kube-controller-manager-rs");
    let identity =
        lease.ok().and_then(|lease| lease.value()["spec"]["holderIdentity"].as_str().map(str::to_owned));
    identity.unwrap_or_default().split('_').next().unwrap_or_default().to_owned()
}
