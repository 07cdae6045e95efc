//! Startup of the process: clients, metrics, the secure port, then the manager.

use std::sync::Arc;

use kcm_client::{ClientConfigError, ClientFactory, ClientOptions, ProxyEnvironment, Server};
use kcm_clock::{Clock, Random};
use kcm_manager::{Placement, Port, RunError, logging};
use kcm_metrics::BuildInfo;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::{
    DebugControllers, Dependencies, KUBERNETES_VERSION, Metrics, Options, VERSION, manager, serving,
    user_agent, version::BINARY,
};

/// Namespace of the controllers' service accounts.
const SERVICE_ACCOUNT_NAMESPACE: &str = "kube-system";

/// Resources of the process that the manager runs in.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// Source of time.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness.
    pub random: Arc<dyn Random>,
    /// Hostname.
    pub host: String,
    /// Proxy settings of the environment.
    pub proxy: ProxyEnvironment,
    /// Cancelled when the process must shut down.
    pub shutdown: CancellationToken,
    /// Handle that `/debug/flags/v` changes the log verbosity with.
    pub log: Option<logging::Handle>,
    /// Threads that leader election and the secure port run on.
    pub placement: Placement,
}

/// Reason why the manager did not start, or exited. Each message is one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// No API server is configured, and the process does not run in a pod.
    #[error("no API server configured: set --kubeconfig or --master, or run inside a cluster: {0}")]
    NotInCluster(ClientConfigError),
    /// The manager did not start, or exited.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Runs the manager until `runtime.shutdown` is cancelled.
///
/// The secure port is served during the whole run, so that a standby responds to probes and scrapes.
///
/// Upstream counterpart: `Run`.
///
/// # Errors
///
/// If no API server is configured, the port cannot be served, or [`Manager::run`](kcm_manager::Manager::run) fails.
///
/// # Panics
///
/// Outside of a Tokio runtime.
pub async fn run(options: &Options, runtime: Runtime) -> Result<(), StartError> {
    options.log_flags();
    let Runtime { clock, random, host, proxy, shutdown, log, placement } = runtime;
    let build = BuildInfo { version: VERSION.to_owned(), ..BuildInfo::default() };
    let metrics = Metrics::new(&options.metrics, Arc::clone(&clock), &build).map_err(RunError::from)?;
    metrics.features(options.features.all());
    let client_options = ClientOptions {
        metrics: metrics.clients(),
        proxy,
        content_type: options.content_type,
        ..ClientOptions::new(user_agent(), Arc::clone(&clock))
    };
    let clients = connect(options, &client_options).await?;
    tracing::info!(version = VERSION, kubernetes = KUBERNETES_VERSION, server = clients.server(), "Starting");
    let (health, readiness) = (Port::health(&metrics), Port::health(&metrics));
    let debug = options.profiling.then(DebugControllers::default);
    let mut dependencies = Dependencies::new(&clients, &clock, &random).with_metrics(metrics.clone());
    dependencies.manager.placement = placement;
    dependencies.manager.informer_sync.add_to(&readiness);
    dependencies.debug.clone_from(&debug);
    let mut manager =
        manager(&options.manager, &dependencies, host).map_err(RunError::from)?.with_health(health.clone());
    if options.serving.secure_port != 0 {
        manager = manager.with_port(Port {
            name: BINARY,
            serving: options.serving.clone(),
            authentication: options.authentication.clone(),
            authorization: options.authorization.clone(),
            client: client_options,
            routes: serving::routes(serving::RouteInputs {
                options,
                metrics: &metrics,
                health: &health,
                readiness: &readiness,
                log,
                debug: debug.as_ref(),
                clock: &clock,
            }),
        });
    }
    Ok(manager.run(shutdown).await?)
}

/// Connects to the API server.
async fn connect(options: &Options, client_options: &ClientOptions) -> Result<ClientFactory, StartError> {
    let clients = ClientFactory::connect(options.server.clone(), client_options.clone()).await;
    let clients = clients.map_err(|error| match options.server {
        Server::InCluster => StartError::NotInCluster(error),
        Server::Kubeconfig { .. } | Server::KubeconfigFiles { .. } | Server::Master(_) => {
            RunError::Connect(error).into()
        }
    })?;
    if !options.service_account_credentials {
        return Ok(clients);
    }
    // Tokens are requested with the manager's own credentials, as upstream.
    let client = clients.client(BINARY, options.manager.rate_limit);
    Ok(clients.with_service_accounts(SERVICE_ACCOUNT_NAMESPACE, client).await.map_err(RunError::Connect)?)
}
