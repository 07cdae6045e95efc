//! Construction of a test environment.

use std::{fmt, sync::Arc, time::Duration};

use http::Method;
use kcm_apiserver::{ApiServer, ApiServerConfig};
use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, Request, UserAgent};
use kcm_clock::{Clock, Random, SeededRandom, SimulatedClock, Timestamp};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use kube_core::CustomResourceExt;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    TestEnv,
    env::{CLIENT, LIMIT, Log},
};

/// Path of the CustomResourceDefinitions.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Path of the namespaces.
const NAMESPACES: &str = "/api/v1/namespaces";
/// Interval between reads of a definition that is not established.
const ESTABLISHED_INTERVAL: Duration = Duration::from_millis(50);

/// Builder of a [`TestEnv`].
#[must_use]
pub struct TestEnvBuilder {
    namespaces: Vec<String>,
    definitions: Vec<Value>,
    nodes: Option<usize>,
    kubelet: KubeletConfig,
    #[cfg(feature = "controllers")]
    controllers: bool,
    seed: u64,
    server: ApiServerConfig,
    cluster: Option<(ClientFactory, Arc<dyn Clock>)>,
}

impl TestEnvBuilder {
    pub(crate) fn new() -> Self {
        Self {
            namespaces: Vec::new(),
            definitions: Vec::new(),
            nodes: None,
            kubelet: KubeletConfig::default(),
            #[cfg(feature = "controllers")]
            controllers: false,
            seed: 1,
            server: ApiServerConfig::default(),
            cluster: None,
        }
    }

    /// Creates the CustomResourceDefinition of a type that derives `CustomResource`.
    pub fn crd<K: CustomResourceExt>(self) -> Self {
        match serde_json::to_value(K::crd()) {
            Ok(definition) => self.crd_value(definition),
            Err(error) => panic!("failed to encode CustomResourceDefinition {}: {error}", K::crd_name()),
        }
    }

    /// Creates a CustomResourceDefinition.
    pub fn crd_value(mut self, definition: Value) -> Self {
        self.definitions.push(definition);
        self
    }

    /// Creates a namespace. The first one is [that of the test](TestEnv::namespace), which is `default` otherwise.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespaces.push(name.into());
        self
    }

    /// Runs `count` simulated nodes, and the components around them: scheduler, kubelets, garbage collector, and the controllers
    /// of namespaces, disruption budgets and resource quotas. Without nodes, no component runs.
    pub fn nodes(self, count: usize) -> Self {
        Self { nodes: Some(count), ..self }
    }

    /// Sets the delays of the simulated kubelets.
    pub fn kubelet(self, kubelet: KubeletConfig) -> Self {
        Self { kubelet, ..self }
    }

    /// Runs the controllers of Deployments and ReplicaSets, so that Deployments of the operator get pods. Requires the embedded
    /// API server.
    #[cfg(feature = "controllers")]
    pub fn controllers(self) -> Self {
        Self { controllers: true, ..self }
    }

    /// Sets the seed of random numbers: UIDs, generated names, jitter. Default: 1.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the configuration of the embedded API server, such as its admission webhook, its faults or the length of its
    /// history. Clock and random source are those of the environment.
    pub fn server(self, server: ApiServerConfig) -> Self {
        Self { server, ..self }
    }

    /// Uses the API server of a cluster in place of the embedded one. Namespaces may exist, and definitions are replaced.
    ///
    /// The environment then has no [server](TestEnv::server), [faults](TestEnv::faults), [requests](TestEnv::requests), nodes,
    /// controllers and client of kube-rs. Such a test requires real time: `#[tokio::test]` without `start_paused`.
    ///
    /// Upstream counterpart: `UseExistingCluster` of envtest.
    pub fn cluster(self, clients: ClientFactory, clock: Arc<dyn Clock>) -> Self {
        Self { cluster: Some((clients, clock)), ..self }
    }

    /// Starts the environment. Custom resources are served when this returns.
    ///
    /// The embedded API server follows tokio's clock: `#[tokio::test(start_paused = true)]` simulates time.
    ///
    /// # Panics
    ///
    /// If a definition, namespace or node cannot be created, a definition is not established within 30 s, and outside of a
    /// Tokio runtime.
    pub async fn start(self) -> TestEnv {
        let Self { namespaces, definitions, nodes, kubelet, seed, mut server, cluster, .. } = self;
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(seed));
        let log = Arc::new(Log::default());
        let (server, clients, clock) = match cluster {
            Some((clients, clock)) => (None, clients, clock),
            None => {
                let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(start_time()));
                (server.clock, server.random) = (Arc::clone(&clock), Arc::clone(&random));
                server.audit = Some(log.sink(server.audit.take()));
                let server = ApiServer::new(server);
                let options = ClientOptions::new(
                    UserAgent::new("operator-test", concat!("v", env!("CARGO_PKG_VERSION")), ""),
                    Arc::clone(&clock),
                );
                let clients = ClientFactory::in_process(server.service(), options);
                (Some(server), clients, clock)
            }
        };
        #[cfg(feature = "controllers")]
        assert!(server.is_some() || !self.controllers, "controllers require the embedded API server");
        let client = clients.client(CLIENT, RateLimit::UNLIMITED);
        for name in &namespaces {
            create_namespace(&client, name).await;
        }
        for definition in &definitions {
            create_definition(&client, &*clock, definition).await;
        }
        let components = match (nodes, &server) {
            (None, _) => None,
            (Some(_), None) => panic!("simulated nodes require the embedded API server"),
            (Some(nodes), Some(server)) => Some(run_components(SandboxConfig {
                server: Arc::clone(server),
                clock: Arc::clone(&clock),
                random: Arc::clone(&random),
                nodes,
                kubelet,
            })),
        };
        let namespace = namespaces.into_iter().next().unwrap_or_else(|| "default".to_owned());
        TestEnv {
            #[cfg(feature = "controllers")]
            _controllers: self.controllers.then(|| start_controllers(&clients, &clock, &random)),
            server,
            clients,
            client,
            clock,
            random,
            namespace,
            log,
            _components: components,
        }
    }
}

/// Time at which simulations start.
fn start_time() -> Timestamp {
    // 2026-01-01T00:00:00Z
    Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn run_components(config: SandboxConfig) -> DropGuard {
    let sandbox = match Sandbox::new(config) {
        Ok(sandbox) => sandbox,
        Err(error) => panic!("failed to create simulated nodes: {error}"),
    };
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move { sandbox.run(stopped).await });
    stop.drop_guard()
}

#[cfg(feature = "controllers")]
fn start_controllers(
    clients: &ClientFactory,
    clock: &Arc<dyn Clock>,
    random: &Arc<dyn Random>,
) -> kcm_controller_manager::Controllers {
    let dependencies = kcm_controller_manager::Dependencies::new(clients, clock, random);
    kcm_controller_manager::start(&kcm_controller_manager::ManagerConfig::default(), &dependencies)
}

pub(crate) async fn create_namespace(client: &ApiClient, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    create(client, NAMESPACES, &namespace).await;
}

/// Creates or replaces a definition, and waits until its objects are served.
async fn create_definition(client: &ApiClient, clock: &dyn Clock, definition: &Value) {
    let path = format!("{DEFINITIONS}/{}", name(definition));
    if !create(client, DEFINITIONS, definition).await {
        let mut replacement = definition.clone();
        replacement["metadata"]["resourceVersion"] =
            read(client, &path).await["metadata"]["resourceVersion"].take();
        let request = Request::json(Method::PUT, &*path, replacement.to_string());
        if let Err(error) = client.send(&request).await {
            panic!("failed to replace {path}: {error}");
        }
    }
    let mut waited = Duration::ZERO;
    loop {
        let stored = read(client, &path).await;
        // The condition can precede the first request that is served.
        if is_established(&stored) && is_served(client, definition).await {
            return;
        }
        assert!(waited < LIMIT, "{path} is not established: {}", stored["status"]);
        clock.sleep(ESTABLISHED_INTERVAL).await;
        waited += ESTABLISHED_INTERVAL;
    }
}

async fn read(client: &ApiClient, path: &str) -> Value {
    let body = match client.send(&Request::get(path)).await {
        Ok(body) => body,
        Err(error) => panic!("failed to read {path}: {error}"),
    };
    match serde_json::from_slice(&body) {
        Ok(object) => object,
        Err(error) => panic!("failed to decode {path}: {error}"),
    }
}

/// Returns `true` if all served versions of the objects of a definition can be listed.
async fn is_served(client: &ApiClient, definition: &Value) -> bool {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let versions = spec["versions"].as_array().into_iter().flatten();
    for version in versions.filter(|version| version["served"] == true) {
        let path = format!("/apis/{group}/{}/{plural}?limit=1", text(&version["name"]));
        match client.send(&Request::get(&*path)).await {
            Err(error) if error.is_not_found() => return false,
            _ => {}
        }
    }
    true
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// Creates an object. Returns `false` if it exists.
async fn create(client: &ApiClient, path: &str, object: &Value) -> bool {
    match client.send(&Request::post(path, object.to_string())).await {
        Ok(_) => true,
        Err(error) if error.is_already_exists() => false,
        Err(error) => panic!("failed to create {path}/{}: {error}", name(object)),
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

impl fmt::Debug for TestEnvBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestEnvBuilder")
            .field("namespaces", &self.namespaces)
            .field("nodes", &self.nodes)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}
