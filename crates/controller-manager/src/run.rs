//! Startup of the process: clients, metrics, the secure port, then the manager.

use std::{future::pending, sync::Arc};

use kcm_client::{ClientFactory, ClientOptions, ProxyEnvironment, Server};
use kcm_clock::{Clock, Random};
use kcm_metrics::BuildInfo;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    DebugControllers, KUBERNETES_VERSION, Metrics, Options, Placement, RunError, VERSION,
    context::Dependencies,
    logging,
    manager::Manager,
    readiness::{INFORMER_SYNC, InformerSync},
    serving, user_agent,
    version::BINARY,
};

/// Name of the thread of the secure port.
const PORT_THREAD: &str = "secure-port";

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

/// Runs the manager until `runtime.shutdown` is cancelled.
///
/// The secure port is served during the whole run, so that a standby responds to probes and scrapes.
///
/// Upstream counterpart: `Run`.
///
/// # Errors
///
/// If no API server is configured, the port cannot be served, or [`Manager::run`] fails.
///
/// # Panics
///
/// Outside of a Tokio runtime.
pub async fn run(options: &Options, runtime: Runtime) -> Result<(), RunError> {
    options.log_flags();
    let Runtime { clock, random, host, proxy, shutdown, log, placement } = runtime;
    let build = BuildInfo { version: VERSION.to_owned(), ..BuildInfo::default() };
    let metrics = Metrics::new(&options.metrics, Arc::clone(&clock), &build)?;
    metrics.features(options.features.all());
    let client_options = ClientOptions {
        metrics: metrics.clients(),
        proxy,
        content_type: options.content_type,
        ..ClientOptions::new(user_agent(), Arc::clone(&clock))
    };
    let clients = connect(options, &client_options).await?;
    tracing::info!(version = VERSION, kubernetes = KUBERNETES_VERSION, server = clients.server(), "Starting");
    let (health, readiness) = (serving::health(&metrics), serving::health(&metrics));
    let informer_sync = InformerSync::default();
    let caches = informer_sync.clone();
    readiness.add(INFORMER_SYNC, Arc::new(move || caches.check()));
    let debug = options.profiling.then(DebugControllers::default);
    let (bound, is_bound) = oneshot::channel();
    // Dropping the future stops the server.
    let mut port = if options.serving.secure_port == 0 {
        drop(bound);
        Box::pin(pending())
    } else {
        let routes = serving::routes(options, &metrics, &health, &readiness, log, debug.as_ref(), &clock);
        let port = serving::serve(options, routes, client_options, bound);
        placement.start(PORT_THREAD, port).map_err(|cause| RunError::Thread { name: PORT_THREAD, cause })?
    };
    tokio::select! {
        biased;
        Err(error) = &mut port => return Err(error.into()),
        // An error means that the port is not served.
        _ = is_bound => {}
    }
    let dependencies = Dependencies {
        metrics: Some(metrics),
        informer_sync,
        debug,
        placement,
        ..Dependencies::new(&clients, &clock, &random)
    };
    let manager = Manager::new(options.manager.clone(), dependencies, host).with_health(health);
    tokio::select! {
        biased;
        Err(error) = port => Err(error.into()),
        outcome = manager.run(shutdown) => outcome,
    }
}

/// Connects to the API server.
async fn connect(options: &Options, client_options: &ClientOptions) -> Result<ClientFactory, RunError> {
    let clients = ClientFactory::connect(options.server.clone(), client_options.clone()).await;
    let clients = clients.map_err(|error| match options.server {
        Server::InCluster => RunError::NotInCluster(error),
        Server::Kubeconfig { .. } | Server::KubeconfigFiles { .. } | Server::Master(_) => {
            RunError::Connect(error)
        }
    })?;
    if !options.service_account_credentials {
        return Ok(clients);
    }
    // Tokens are requested with the manager's own credentials, as upstream.
    let client = clients.client(BINARY, options.manager.rate_limit);
    clients.with_service_accounts(SERVICE_ACCOUNT_NAMESPACE, client).await.map_err(RunError::Connect)
}
