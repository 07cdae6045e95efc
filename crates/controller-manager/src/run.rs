//! All of it in order.

use std::{sync::Arc, time::Duration};

use kcm_api::ApiError;
use kcm_client::{ClientFactory, ClientOptions, ProxyEnvironment, Server};
use kcm_clock::{Clock, Random};
use kcm_leader_election::Loss;
use kcm_metrics::{BuildInfo, Metrics};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    KUBERNETES_VERSION, Options, VERSION,
    context::Dependencies,
    controllers::ControllerError,
    logging,
    manager::Manager,
    readiness::{INFORMER_SYNC, InformerSync},
    serving, user_agent,
    version::BINARY,
};

/// Where the service accounts of controllers are, if each acts as its own.
const SERVICE_ACCOUNTS: &str = "kube-system";

/// Why a manager did not run, or ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// There is no way to an API server.
    #[error(transparent)]
    Connect(kcm_client::ClientConfigError),
    /// Nobody has said where the API server is, and there is none around.
    #[error("neither --kubeconfig nor --master is given, and this is no pod of a cluster: {0}")]
    NotInCluster(kcm_client::ClientConfigError),
    /// The way leads nowhere.
    #[error("the API server {place} is not healthy after {patience:?}: {cause}")]
    ApiServer {
        /// Where it should be, such as `at https://10.0.0.1:6443`.
        place: String,
        /// How long it was given.
        patience: Duration,
        /// What it, or the transport, said last.
        cause: ApiError,
    },
    /// An election as asked for would not work.
    #[error("leader election: {0}")]
    Election(#[from] kcm_leader_election::ElectionConfigError),
    /// Metrics as asked for make no sense.
    #[error(transparent)]
    Metrics(#[from] kcm_metrics::MetricsOptionsError),
    /// The secure port cannot be served.
    #[error(transparent)]
    Serving(#[from] kcm_serving::ServingError),
    /// Another leads by now, or will. Upstream's words, with the reason.
    #[error("leaderelection lost/stopped: {0}")]
    LeaseLost(Loss),
    /// A controller failed.
    #[error(transparent)]
    Controllers(#[from] ControllerError),
}

/// What a process gives to the manager that runs in it.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where chance comes from.
    pub random: Arc<dyn Random>,
    /// The name of the machine.
    pub host: String,
    /// Proxy settings of the environment.
    pub proxy: ProxyEnvironment,
    /// Cancelled when the process is to end.
    pub shutdown: CancellationToken,
    /// Changes how much is logged, if somebody asks for that at the port.
    pub log: Option<logging::Handle>,
}

/// Does what a command line asks for, until `process` is to end.
///
/// The port is served from the beginning, so a standby answers probes and scrapes, and to the end.
///
/// Upstream counterpart: `Run`.
///
/// # Errors
///
/// When there is no way to an API server, the port cannot be served, and as [`Manager::run`].
///
/// # Panics
///
/// Outside a tokio runtime.
pub async fn run(options: &Options, runtime: Runtime) -> Result<(), RunError> {
    options.log_flags();
    let Runtime { clock, random, host, proxy, shutdown, log } = runtime;
    let build = BuildInfo { version: VERSION.to_owned(), ..BuildInfo::default() };
    let metrics = Metrics::new(&options.metrics, Arc::clone(&clock), &build)?;
    metrics.features(options.features.all());
    let client_options = ClientOptions {
        metrics: metrics.clients(),
        proxy,
        ..ClientOptions::new(user_agent(), Arc::clone(&clock))
    };
    let clients = connect(options, &client_options).await?;
    tracing::info!(version = VERSION, kubernetes = KUBERNETES_VERSION, server = clients.server(), "Starting");
    let (health, readiness) = (serving::health(&metrics), serving::health(&metrics));
    let informer_sync = InformerSync::default();
    let caches = informer_sync.clone();
    readiness.add(INFORMER_SYNC, Arc::new(move || caches.check()));
    // Ends with this.
    let mut port = JoinSet::new();
    if let Some(server) = serving::bind(options, &metrics, &health, &readiness, log, &client_options).await? {
        port.spawn(server.run(CancellationToken::new()));
    }
    let dependencies = Dependencies {
        metrics: Some(metrics),
        informer_sync,
        ..Dependencies::new(&clients, &clock, &random)
    };
    Manager::new(options.manager.clone(), dependencies, host).with_health(health).run(shutdown).await
}

/// Connects to the API server.
async fn connect(options: &Options, client_options: &ClientOptions) -> Result<ClientFactory, RunError> {
    let clients = ClientFactory::connect(options.server.clone(), client_options.clone()).await;
    let clients = clients.map_err(|error| match options.server {
        Server::InCluster => RunError::NotInCluster(error),
        Server::Kubeconfig { .. } | Server::Master(_) => RunError::Connect(error),
    })?;
    if !options.service_account_credentials {
        return Ok(clients);
    }
    // Tokens are asked for with the manager's own credentials, as upstream.
    let client = clients.client(BINARY, options.manager.rate_limit);
    clients.with_service_accounts(SERVICE_ACCOUNTS, client).await.map_err(RunError::Connect)
}
