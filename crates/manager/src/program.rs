//! A program with a manager, such as an operator: from its environment to its end.

use std::{env, path::PathBuf, sync::Arc};

use kcm_client::{ClientFactory, ClientOptions, ProxyEnvironment, Server, UserAgent};
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_metrics::{BuildInfo, MetricsOptions};
use kcm_serving::{AuthenticationOptions, AuthorizationOptions, Routes, ServingOptions};

use crate::{
    Dependencies, LeaderElectionSettings, Manager, Metrics, Placement, Port, RunError, Settings,
    logging::{self, LoggingOptions},
    shutdown_signal,
};

/// Port of an operator, if `PORT` does not name another one.
const SECURE_PORT: u16 = 8443;

/// Options of a program with a manager.
#[derive(Debug, Clone)]
pub struct ProgramOptions {
    /// Version of the program, such as `v1.0.0`, for its user agent.
    pub version: String,
    /// API server. It reviews the requests to the secure port if it is that of a kubeconfig or of the pod; for others, requests
    /// with credentials are refused.
    pub server: Server,
    /// Log lines. `None` leaves the global subscriber to the program.
    pub logging: Option<LoggingOptions>,
    /// Metrics.
    pub metrics: MetricsOptions,
    /// Secure port with `/healthz`, `/readyz`, `/metrics` and `routes`. Requests are authenticated by the API server.
    /// Port 0 disables it.
    pub serving: ServingOptions,
    /// Further routes of the secure port.
    pub routes: Routes,
    /// Settings of the manager.
    pub manager: Settings,
}

impl ProgramOptions {
    /// Options of the program called `name`, from the environment:
    ///
    /// | Variable | Meaning | Default |
    /// |---|---|---|
    /// | `KUBECONFIG` | path of a kubeconfig | the service account of the pod |
    /// | `POD_NAMESPACE` | namespace of the Lease called `name` | `default` |
    /// | `POD_NAME` | name of the process in the Lease | `localhost` |
    /// | `PORT` | secure port; 0 disables it | 8443 |
    ///
    /// # Errors
    ///
    /// If `PORT` is not a port, or `KUBECONFIG` contains several paths.
    pub fn from_env(name: &'static str, version: &str) -> Result<Self, RunError> {
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let invalid = |variable, cause: &str| RunError::Environment { variable, cause: cause.to_owned() };
        let server = match variable("KUBECONFIG") {
            Some(paths) if env::split_paths(&paths).nth(1).is_some() => {
                return Err(invalid("KUBECONFIG", "several paths are not supported"));
            }
            Some(path) => Server::Kubeconfig { path: PathBuf::from(path), master: None },
            None => Server::InCluster,
        };
        let namespace = variable("POD_NAMESPACE").unwrap_or_else(|| "default".to_owned());
        let secure_port = match variable("PORT").map(|port| port.parse()) {
            Some(port) => port.map_err(|_| invalid("PORT", "not a port"))?,
            None => SECURE_PORT,
        };
        let mut manager = Settings::new(name);
        manager.leader_election = Some(LeaderElectionSettings::new(namespace, name));
        if let Some(host) = variable("POD_NAME") {
            manager.host = host;
        }
        Ok(Self {
            version: version.to_owned(),
            server,
            logging: Some(LoggingOptions {
                targets: vec![name.replace('-', "_")],
                ..LoggingOptions::default()
            }),
            metrics: MetricsOptions::default(),
            serving: ServingOptions { secure_port, ..ServingOptions::default() },
            routes: Routes::new(),
            manager,
        })
    }
}

impl Manager {
    /// Manager of a program: real clock, random source, metrics, connection to the API server, and a secure port.
    ///
    /// Leader election and the port run on separate threads.
    ///
    /// # Errors
    ///
    /// If the kubeconfig, the service account or the settings cannot be used.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub async fn connect(options: ProgramOptions) -> Result<Self, RunError> {
        let (server, parts) = (options.server.clone(), Parts::new(options)?);
        let clients = ClientFactory::connect(server, parts.client.clone()).await?;
        parts.into_manager(&clients)
    }

    /// Manager of a program over `clients`, such as those of a `kube::Client`. As [`connect`](Self::connect), except that the
    /// server of the options only reviews requests to the secure port, and requests of `clients` are not counted in metrics.
    ///
    /// # Errors
    ///
    /// If the settings cannot be used.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn with_clients(options: ProgramOptions, clients: &ClientFactory) -> Result<Self, RunError> {
        Parts::new(options)?.into_manager(clients)
    }

    /// Runs the manager until SIGTERM or SIGINT. See [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// See [`run`](Self::run).
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    #[cfg(unix)]
    pub async fn run_until_signal(self) -> Result<(), RunError> {
        self.run(shutdown_signal()).await
    }
}

/// Parts of a program's manager, without its clients.
struct Parts {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    metrics: Metrics,
    client: ClientOptions,
    /// Kubeconfig of the API server that reviews requests to the secure port. `None` for that of the pod.
    kubeconfig: Option<PathBuf>,
    serving: ServingOptions,
    routes: Routes,
    manager: Settings,
}

impl Parts {
    fn new(options: ProgramOptions) -> Result<Self, RunError> {
        let ProgramOptions { version, server, logging, metrics, serving, routes, manager } = options;
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let random: Arc<dyn Random> = Arc::new(SeededRandom::from_entropy());
        if let Some(logging) = logging {
            logging::init(&logging, Arc::clone(&clock));
        }
        let build = BuildInfo { version: version.clone(), ..BuildInfo::default() };
        let metrics = Metrics::new(manager.name, &metrics, Arc::clone(&clock), &build)?;
        let client = ClientOptions {
            metrics: metrics.clients(),
            proxy: ProxyEnvironment::read(|name| env::var(name).ok()),
            ..ClientOptions::new(UserAgent::new(manager.name, &version, ""), Arc::clone(&clock))
        };
        let kubeconfig = match &server {
            Server::Kubeconfig { path, .. } => Some(path.clone()),
            _ => None,
        };
        Ok(Self { clock, random, metrics, client, kubeconfig, serving, routes, manager })
    }

    fn into_manager(self, clients: &ClientFactory) -> Result<Manager, RunError> {
        let Self { clock, random, metrics, client, kubeconfig, serving, routes, manager } = self;
        let (health, readiness) = (Port::health(&metrics), Port::health(&metrics));
        let mut dependencies = Dependencies::new(clients, &clock, &random);
        dependencies.metrics = Some(metrics.clone());
        dependencies.placement = Placement::OwnThreads;
        dependencies.informer_sync.add_to(&readiness);
        let name = manager.name;
        let manager = Manager::new(manager, dependencies)?.with_health(health.clone());
        if serving.secure_port == 0 {
            return Ok(manager);
        }
        Ok(manager.with_port(Port {
            name,
            serving,
            authentication: AuthenticationOptions {
                kubeconfig: kubeconfig.clone(),
                ..AuthenticationOptions::default()
            },
            authorization: AuthorizationOptions { kubeconfig, ..AuthorizationOptions::default() },
            client,
            routes: Port::add_routes(routes, &metrics, &health, &readiness),
        }))
    }
}

#[cfg(test)]
mod tests {
    use kcm_testkit::FakeApiServer;

    use super::*;

    #[tokio::test]
    async fn program_over_given_clients() {
        let api = FakeApiServer::scripted([]);
        let given = ClientOptions::new(UserAgent::new("given", "v1", ""), api.clock());
        let clients = ClientFactory::in_process(api.service(), given);
        let mut options = ProgramOptions::from_env("test", "v1").unwrap();
        options.logging = None;
        let manager = Manager::with_clients(options, &clients).unwrap();
        assert!(manager.context().queue_metrics().is_some());
        let _ = manager.context().client("test").health().await;
        assert_eq!(api.requests().len(), 1);
    }
}
