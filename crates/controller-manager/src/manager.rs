//! What a manager does with its life: stand by, lead, stop.

use std::{sync::Arc, time::Duration};

use kcm_api::ApiError;
use kcm_client::{ApiClient, RateLimit};
use kcm_clock::Clock;
use kcm_leader_election::{HEALTH_CHECK_NAME, HEALTH_TOLERANCE, Outcome};
use kcm_metrics::Metrics;
use kcm_serving::HealthChecks;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    ManagerConfig, RunError,
    context::Environment,
    controllers::{ControllerError, Controllers, Standby},
    election::Election,
    version::BINARY,
};

/// How long the API server may take to become well (US-1.1).
const API_SERVER_PATIENCE: Duration = Duration::from_secs(10);

/// How often it is asked meanwhile.
const API_SERVER_INTERVAL: Duration = Duration::from_secs(1);

/// The controllers of a process, with an election around them or without.
///
/// Upstream counterpart: what is inside of `Run`.
#[derive(Debug)]
pub struct Manager {
    config: ManagerConfig,
    environment: Environment,
    host: String,
    health: HealthChecks,
}

impl Manager {
    /// What `config` asks for, on a machine called `host`: that is how people will know whose lease it is.
    pub fn new(config: ManagerConfig, environment: Environment, host: impl Into<String>) -> Self {
        Self { config, environment, host: host.into(), health: HealthChecks::new() }
    }

    /// Where its health checks are: that of the election when it runs, those of controllers when they do.
    #[must_use]
    pub fn with_health(self, health: HealthChecks) -> Self {
        Self { health, ..self }
    }

    /// Runs the controllers until `shutdown`, then lets them finish.
    ///
    /// With an election, they run while this process leads and no longer: see [`Standby`] for what it does before,
    /// and [`ClientFactory::gated`](kcm_client::ClientFactory::gated) for what stops their writes. It waits for the
    /// API server for as long as it takes. The lease is given back once all controllers have stopped in good order;
    /// after anything else it is left to run out, for a write may be under way.
    ///
    /// # Errors
    ///
    /// When the API server does not become well within ten seconds (of becoming leader, with an election), a
    /// controller fails, one does not stop in time, or the lease is lost.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), RunError> {
        let Self { config, environment, host, health } = self;
        let client = environment.clients.client(BINARY, RateLimit::UNLIMITED);
        let clock = Arc::clone(&environment.clock);
        let Some(settings) = &config.leader_election else {
            let wait = wait_for_api_server(&client, &*clock);
            let Some(outcome) = shutdown.run_until_cancelled(wait).await else { return Ok(()) };
            outcome?;
            let metrics = environment.metrics.clone();
            let controllers = Controllers::start_in(&config, environment);
            return Ok(supervise(controllers, &health, metrics.as_ref(), shutdown).await?);
        };
        let election = Election::new(settings, &host, config.rate_limit, &environment)?;
        let status = election.status();
        let check = move || status.check(HEALTH_TOLERANCE).map_err(|error| error.to_string());
        health.add(HEALTH_CHECK_NAME, Arc::new(check));

        let clients = environment.clients.gated(election.gate());
        let metrics = environment.metrics.clone();
        let standby = Standby::start(&config, Environment { clients, ..environment });
        let (failed, failure) = tokio::sync::oneshot::channel();
        let stop = shutdown.clone();
        let lead = || async move {
            let work = async move {
                let ready = async {
                    wait_for_api_server(&client, &*clock).await?;
                    Ok(standby.lead().await)
                };
                match stop.run_until_cancelled(ready).await {
                    None => Ok(Ok(())),
                    Some(Err(error)) => Ok(Err(error)),
                    Some(Ok(controllers)) => {
                        supervise(controllers, &health, metrics.as_ref(), stop).await.map(Ok)
                    }
                }
            };
            // On a task of its own, so that nothing that it does holds up a renewal. It ends when this is dropped.
            let mut tasks = JoinSet::new();
            tasks.spawn(work);
            match tasks.join_next().await {
                Some(Ok(Ok(outcome))) => return outcome,
                Some(Ok(Err(error))) => drop(failed.send(error)),
                Some(Err(error)) => {
                    if let Ok(payload) = error.try_into_panic() {
                        std::panic::resume_unwind(payload);
                    }
                }
                None => {}
            }
            // Until the other end drops this, and with it the leadership.
            std::future::pending().await
        };
        tokio::select! {
            biased;
            outcome = election.run(&shutdown, lead) => match outcome {
                Outcome::NeverLed => Ok(()),
                Outcome::Finished(outcome) => outcome,
                Outcome::Lost(loss) => Err(RunError::LeaseLost(loss)),
            },
            Ok(error) = failure => Err(error.into()),
        }
    }
}

/// Runs until `shutdown` or until a controller fails, and stops what runs.
async fn supervise(
    mut controllers: Controllers,
    health: &HealthChecks,
    metrics: Option<&Metrics>,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    for name in controllers.names() {
        if let Some(metrics) = metrics {
            metrics.controller_running(name, true);
        }
        // As upstream's, which says no more than that the controller was started.
        health.add_ping(name);
    }
    let failure = tokio::select! {
        biased;
        () = shutdown.cancelled() => None,
        failure = controllers.failed() => Some(failure),
    };
    tracing::info!("Shutting down");
    let stopped = controllers.stop().await;
    // The failure is the cause, what came of stopping a consequence.
    failure.map_or(stopped, Err)
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
