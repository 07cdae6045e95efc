//! What a manager does with its life: stand by, lead, stop.

use std::{future::pending, sync::Arc, time::Duration};

use kcm_api::ApiError;
use kcm_client::RateLimit;
use kcm_leader_election::{ElectionOutcome, HEALTH_CHECK_NAME, HEALTH_TOLERANCE};
use kcm_serving::HealthChecks;
use tokio::{sync::oneshot, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    ManagerConfig, RunError,
    context::Dependencies,
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
    dependencies: Dependencies,
    host: String,
    health: HealthChecks,
}

impl Manager {
    /// What `config` asks for, on a machine called `host`: that is how people will know whose lease it is.
    pub fn new(config: ManagerConfig, dependencies: Dependencies, host: impl Into<String>) -> Self {
        Self { config, dependencies, host: host.into(), health: HealthChecks::new() }
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
    /// API server for as long as it takes. When all is over, the lease is given back, unless a write may still be
    /// carried out that nobody waits for any more: then it is left to run out.
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
        let Some(settings) = self.config.leader_election.clone() else {
            return self.run_alone(shutdown).await;
        };
        let election = Election::new(&settings, &self.host, self.config.rate_limit, &self.dependencies)?;
        let status = election.status();
        let check = move || status.check(HEALTH_TOLERANCE).map_err(|error| error.to_string());
        self.health.add(HEALTH_CHECK_NAME, Arc::new(check));

        let clients = self.dependencies.clients.gated({
            let gate = election.gate();
            move || gate.remaining()
        });
        let dependencies = Dependencies { clients: clients.clone(), ..self.dependencies.clone() };
        let standby = Standby::start(&self.config, dependencies);
        let (elected, ready) = (CancellationToken::new(), oneshot::channel());
        let standby = stand_by(standby, elected.clone(), ready.0);
        let work = self.lead(ready.1, shutdown.clone());
        let (gives_up, given_up) = oneshot::channel();
        let lead = || async move {
            elected.cancel();
            let outcome = on_its_own(work).await;
            if !clients.writes_have_settled() {
                // The other end drops this, and with it the leadership.
                let _ = gives_up.send(outcome);
                return pending().await;
            }
            outcome
        };
        tokio::select! {
            biased;
            outcome = election.run(&shutdown, lead) => match outcome {
                ElectionOutcome::NeverLed => {
                    tracing::info!("Shutting down, without having led");
                    Ok(())
                }
                ElectionOutcome::Finished(outcome) => outcome,
                ElectionOutcome::Lost(loss) => Err(RunError::LeaseLost(loss)),
            },
            Ok(outcome) = given_up => outcome,
            failure = standby => Err(failure.into()),
        }
    }

    async fn run_alone(self, shutdown: CancellationToken) -> Result<(), RunError> {
        let Some(outcome) = shutdown.run_until_cancelled(self.wait_for_api_server()).await else {
            return Ok(());
        };
        outcome?;
        let controllers = Controllers::start_in(&self.config, self.dependencies.clone());
        Ok(self.supervise(controllers, shutdown).await?)
    }

    /// What a leader does.
    async fn lead(
        self,
        standby: oneshot::Receiver<Standby>,
        shutdown: CancellationToken,
    ) -> Result<(), RunError> {
        // It comes at once, or has failed, and then this is not waited for.
        let Ok(standby) = standby.await else { return pending().await };
        let ready = async {
            self.wait_for_api_server().await?;
            Ok::<_, RunError>(standby.lead().await?)
        };
        let Some(ready) = shutdown.run_until_cancelled(ready).await else { return Ok(()) };
        Ok(self.supervise(ready?, shutdown).await?)
    }

    /// Runs until `shutdown` or until a controller fails, and stops what runs.
    async fn supervise(
        &self,
        mut controllers: Controllers,
        shutdown: CancellationToken,
    ) -> Result<(), ControllerError> {
        for name in controllers.names() {
            if let Some(metrics) = &self.dependencies.metrics {
                metrics.controller_running(name, true);
            }
            // As upstream's, which says no more than that the controller was started.
            self.health.add_ping(name);
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
    async fn wait_for_api_server(&self) -> Result<(), RunError> {
        let client = self.dependencies.clients.client(BINARY, RateLimit::UNLIMITED);
        let clock = &self.dependencies.clock;
        let mut last = ApiError::Timeout(format!("GET {}/healthz", client.server()));
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
            () = clock.sleep(API_SERVER_PATIENCE) => {}
        }
        let place = match client.server() {
            "" => "in this process".to_owned(),
            server => format!("at {server}"),
        };
        Err(RunError::ApiServer { place, patience: API_SERVER_PATIENCE, cause: last })
    }
}

/// Looks after `standby` until this process is `elected`, and then gives it to who leads. A standby that has lost a cache
/// must not look healthy until it is needed.
async fn stand_by(
    mut standby: Standby,
    elected: CancellationToken,
    leader: oneshot::Sender<Standby>,
) -> ControllerError {
    tokio::select! {
        biased;
        () = elected.cancelled() => {}
        failure = standby.failed() => return failure,
    }
    // The other end is gone only when all is over.
    let _ = leader.send(standby);
    pending().await
}

/// Does `work` on a task of its own, so that nothing that it does holds up a renewal.
///
/// # Cancel safety
///
/// Dropping the future ends the task.
async fn on_its_own<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let mut task = JoinSet::new();
    task.spawn(work);
    match task.join_next().await {
        Some(Ok(outcome)) => return outcome,
        Some(Err(error)) => {
            if let Ok(payload) = error.try_into_panic() {
                std::panic::resume_unwind(payload);
            }
        }
        None => {}
    }
    // It was cancelled, which nobody but a runtime that ends does.
    pending().await
}

#[cfg(test)]
mod tests;
