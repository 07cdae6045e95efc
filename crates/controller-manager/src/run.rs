//! All of it in order.

use std::{sync::Arc, time::Duration};

use kcm_api::ApiError;
use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, Server};
use kcm_clock::{Clock, Random};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::{
    BEHAVES_AS, Invocation, ManagerConfig, VERSION,
    controllers::{ControllerError, Controllers},
    user_agent,
};

/// How long the API server may take to become well (US-1.1).
const API_SERVER_PATIENCE: Duration = Duration::from_secs(10);

/// How often it is asked meanwhile.
const API_SERVER_INTERVAL: Duration = Duration::from_secs(1);

/// Why a manager did not run, or ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// There is no way to an API server.
    #[error(transparent)]
    Connect(kcm_client::ConfigError),
    /// Nobody has said where the API server is, and there is none around.
    #[error("neither --kubeconfig nor --master is given, and this is no pod of a cluster: {0}")]
    NotInCluster(kcm_client::ConfigError),
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
    /// A controller failed.
    #[error(transparent)]
    Controllers(#[from] ControllerError),
}

/// Makes the clients that an invocation asks for.
///
/// # Errors
///
/// When a kubeconfig, or a file that it names, cannot be used.
pub async fn connect(invocation: &Invocation, clock: &Arc<dyn Clock>) -> Result<ClientFactory, RunError> {
    let options = ClientOptions::new(user_agent(), Arc::clone(clock));
    ClientFactory::connect(invocation.server.clone(), options).await.map_err(|error| {
        match invocation.server {
            Server::InCluster => RunError::NotInCluster(error),
            Server::Kubeconfig { .. } | Server::Master(_) => RunError::Connect(error),
        }
    })
}

/// Runs the controllers until `shutdown`, then lets them finish.
///
/// Nothing is logged before the API server is well, at ordinary verbosity: what cannot start says why in one line,
/// the error's.
///
/// # Errors
///
/// When the API server does not become well within ten seconds, a controller fails, or one does not stop in time.
pub async fn run(
    config: &ManagerConfig,
    clients: &ClientFactory,
    clock: &Arc<dyn Clock>,
    random: &Arc<dyn Random>,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let client = clients.client("kube-controller-manager", RateLimit::UNLIMITED);
    match shutdown.run_until_cancelled(wait_for_api_server(&client, &**clock)).await {
        None => return Ok(()),
        Some(outcome) => outcome?,
    }
    tracing::info!(version = VERSION, kubernetes = BEHAVES_AS, server = clients.server(), "Starting");
    if config.leader_election.is_some() {
        tracing::warn!("Running without leader election: no other manager may run the same controllers");
    }
    let mut controllers = Controllers::start(config, clients, clock, random);
    let failure = tokio::select! {
        biased;
        () = shutdown.cancelled() => None,
        failure = controllers.failed() => Some(failure),
    };
    tracing::info!("Shutting down");
    let stopped = controllers.stop().await;
    // The failure is the cause, what came of stopping a consequence.
    failure.map_or(stopped, Err)?;
    Ok(())
}

/// Upstream counterpart: `WaitForAPIServer`.
async fn wait_for_api_server(client: &ApiClient, clock: &dyn Clock) -> Result<(), RunError> {
    let mut last = ApiError::Timeout(format!("GET {}/healthz", client.server()));
    let mut patience = clock.sleep(API_SERVER_PATIENCE);
    let attempts = async {
        loop {
            match client.health().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!(err = %error, "The API server is not healthy yet");
                    last = error;
                }
            }
            clock.sleep(API_SERVER_INTERVAL).await;
        }
    };
    tokio::select! {
        biased;
        () = attempts => return Ok(()),
        () = &mut patience => {}
    }
    let place = match client.server() {
        "" => "in this process".to_owned(),
        server => format!("at {server}"),
    };
    Err(RunError::ApiServer { place, patience: API_SERVER_PATIENCE, cause: last })
}

#[cfg(test)]
mod tests;
