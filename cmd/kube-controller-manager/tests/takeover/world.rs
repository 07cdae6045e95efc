//! An API server with simulated nodes, and managers on it, all in this process and in simulated time.

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
use kcm_controller_manager::{Dependencies, LeaderElectionSettings, Manager, ManagerConfig, RunError};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::line::{Instead, Line, ProcessClock, State, Switch};

/// A leader's term, as the default settings have it.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// One request of a manager that the server has served.
#[derive(Debug, Clone)]
pub struct Entry {
    pub at: Duration,
    /// Who sent it, by the first part of the user agent.
    pub manager: String,
    pub verb: &'static str,
    pub resource: String,
    pub namespace: String,
    pub code: u16,
    /// Who held the lease right after.
    pub holder: String,
}

impl Entry {
    fn is_success(&self) -> bool {
        self.code < 300
    }

    fn is_write(&self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete")
    }

    /// A write that only a leader may send: all but to the lease, and what is told on it.
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

/// A manager as a process of its own, as far as that goes.
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
        let (server_later, told, time): (Arc<OnceLock<Weak<ApiServer>>>, _, _) =
            (Arc::default(), Arc::clone(&trail), Arc::clone(&clock));
        let late = Arc::clone(&server_later);
        let server = ApiServer::new(ApiServerConfig {
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            history,
            audit: Some(Arc::new(move |event: &AuditEvent| {
                if let Some(server) = late.get().and_then(Weak::upgrade) {
                    told.lock().extend(entry(event, &server, time.monotonic()));
                }
            })),
            ..ApiServerConfig::default()
        });
        server_later.set(Arc::downgrade(&server)).unwrap();
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

    /// Starts a manager of this name, which is also its machine's.
    pub fn start(&self, name: &str) -> Running {
        self.start_with(name, RateLimit::UNLIMITED, None)
    }

    /// Starts a manager on a front end of the API server.
    pub fn start_at(&self, name: &str, server: ApiService, instead: Option<Instead>) -> Running {
        self.start_on(name, server, RateLimit::UNLIMITED, instead)
    }

    pub fn start_with(&self, name: &str, rate_limit: RateLimit, instead: Option<Instead>) -> Running {
        self.start_on(name, self.server.service(), rate_limit, instead)
    }

    fn start_on(
        &self,
        name: &str,
        server: ApiService,
        rate_limit: RateLimit,
        instead: Option<Instead>,
    ) -> Running {
        let switch = Switch::new();
        let clock: Arc<dyn Clock> =
            Arc::new(ProcessClock { clock: Arc::clone(&self.clock), switch: switch.clone() });
        let seed = name.bytes().map(u64::from).sum::<u64>() + self.now().as_secs();
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(seed));
        let options = ClientOptions::new(UserAgent::new(name, "v1", ""), Arc::clone(&clock));
        let line = Line { server, switch: switch.clone(), instead };
        let dependencies = Dependencies::new(&line.clients(options), &clock, &random);
        let config = ManagerConfig {
            rate_limit,
            leader_election: Some(LeaderElectionSettings::default()),
            ..ManagerConfig::default()
        };
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(Manager::new(config, dependencies, name).run(shutdown.clone()));
        Running { switch, shutdown, task }
    }

    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    pub async fn sleep(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }

    /// Waits until `is_so`, and says how long that took.
    pub async fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) -> Duration {
        let began = self.now();
        while !is_so(self) {
            assert!(self.now() - began < Duration::from_secs(600), "{what}: not after ten minutes");
            self.clock.sleep(Duration::from_millis(10)).await;
        }
        self.now() - began
    }

    /// The machine of who holds the lease; empty for nobody.
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

    /// Whether all its pods are of its present template, and ready.
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

    /// What managers have done so far that only a leader may.
    pub fn writes(&self) -> Vec<Entry> {
        self.trail.lock().iter().filter(|entry| entry.is_of_leader()).cloned().collect()
    }

    /// How often something of `resource` was created, or deleted, by managers.
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        let is_one = |entry: &&Entry| entry.verb == verb && entry.resource == resource && entry.is_success();
        self.writes().iter().filter(is_one).count()
    }

    /// Every write of a leader came while it held the lease, and no later than a term after it had renewed.
    pub fn assert_never_two_writers(&self) {
        let mut renewed = BTreeMap::new();
        for entry in &*self.trail.lock() {
            if entry.resource == "leases" && entry.is_write() && entry.is_success() {
                renewed.insert(entry.manager.clone(), entry.at);
            }
            if entry.is_of_leader() {
                assert_eq!(entry.holder, entry.manager, "{entry:?}");
                assert!(entry.at < renewed[&entry.manager] + RENEW_DEADLINE, "too late: {entry:?}");
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

    /// As kill -9 does.
    pub fn kill(self) {
        self.task.abort();
        // What its tasks have under way does not come through either.
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
    let lease = server.get(Resource::LEASES, "kube-system", "kube-controller-manager");
    let identity =
        lease.ok().and_then(|lease| lease.value()["spec"]["holderIdentity"].as_str().map(str::to_owned));
    identity.unwrap_or_default().split('_').next().unwrap_or_default().to_owned()
}
