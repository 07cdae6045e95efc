//! Lifecycle of a manager: standby, leader, shutdown.

use std::{future::pending, pin::pin, sync::Arc, time::Duration};

use kcm_api::ApiError;
use kcm_client::RateLimit;
use kcm_leader_election::{ElectionOutcome, HEALTH_CHECK_NAME, HEALTH_TOLERANCE};
use kcm_serving::HealthChecks;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    ManagerConfig, RunError,
    context::Dependencies,
    controllers::{ControllerError, Controllers, Standby},
    election::Election,
    liveness::liveness,
    version::BINARY,
};

/// Time for the API server to become healthy (US-1.1).
const API_SERVER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between health checks of the API server.
const API_SERVER_INTERVAL: Duration = Duration::from_secs(1);

/// Controllers of a process, with or without leader election.
///
/// Upstream counterpart: the body of `Run`.
#[derive(Debug)]
pub struct Manager {
    config: ManagerConfig,
    dependencies: Dependencies,
    host: String,
    health: HealthChecks,
}

impl Manager {
    /// Manager with `config`. `host` is part of the holder identity in the Lease.
    pub fn new(config: ManagerConfig, dependencies: Dependencies, host: impl Into<String>) -> Self {
        Self { config, dependencies, host: host.into(), health: HealthChecks::new() }
    }

    /// Sets the health checks that the manager adds its checks to: leader election and controllers.
    #[must_use]
    pub fn with_health(self, health: HealthChecks) -> Self {
        Self { health, ..self }
    }

    /// Runs the controllers until `shutdown`, then stops them gracefully.
    ///
    /// With leader election, the controllers run only while this process is the leader. Before, it is a [`Standby`],
    /// which retries without a limit while the API server is unreachable. Writes of a former leader are blocked
    /// ([`ClientFactory::gated`](kcm_client::ClientFactory::gated)).
    ///
    /// After shutdown, and after a restore of the API server's storage, the lease is released. If the outcome of a write is
    /// unknown, the lease is left to expire instead: the API server may still perform the write.
    ///
    /// # Errors
    ///
    /// If the API server is not healthy within ten seconds of the start (with leader election, of becoming the leader),
    /// a controller fails or does not stop in time, the lease is lost, or the API server returns an older Lease (to the leader)
    /// or an older list than before, because its storage was restored from a backup.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), RunError> {
        let Some(settings) = self.config.leader_election.clone() else {
            return self.run_alone(shutdown).await;
        };
        let unserved = self.config.unserved_controllers();
        if !unserved.is_empty() {
            let (lease, controllers) = (&*settings.resource_name, unserved.join(","));
            tracing::error!(lease, controllers, "Controllers that no process runs while this process leads");
        }
        let election =
            Election::new(&settings, &self.host, self.config.rate_limit, unserved.len(), &self.dependencies)?;
        let (status, alive) = (election.status(), liveness(Arc::clone(&self.dependencies.clock)));
        let check = move || {
            alive()?;
            status.check(HEALTH_TOLERANCE).map_err(|error| error.to_string())
        };
        self.health.add(HEALTH_CHECK_NAME, Arc::new(check));

        let clients = self.dependencies.clients.gated({
            let gate = election.gate();
            move || gate.remaining()
        });
        let dependencies = Dependencies { clients: clients.clone(), ..self.dependencies.clone() };
        let standby = Standby::start(&self.config, dependencies);
        let (elected, ready) = (CancellationToken::new(), oneshot::channel());
        let standby = stand_by(standby, elected.clone(), ready.0);
        let work = self.lead(ready.1, shutdown.clone(), election.restored());
        let (finish, finished) = oneshot::channel();
        let mut election = pin!(election.run(shutdown, elected.clone(), finished));
        let work = async {
            elected.cancelled().await;
            on_own_task(work).await
        };
        let outcome = tokio::select! {
            biased;
            ended = &mut election => return match ended? {
                ElectionOutcome::Lost(loss) => Err(RunError::LeaseLost(loss)),
                ElectionOutcome::NeverLed | ElectionOutcome::Finished(()) => {
                    tracing::info!("Shutting down before becoming leader");
                    Ok(())
                }
            },
            outcome = work => outcome,
            failure = standby => return Err(failure.into()),
        };
        if !clients.writes_have_settled() {
            // Drops the election, which ends the leadership without a release of the lease.
            return outcome;
        }
        // An error means that the lease is lost.
        let _ = finish.send(());
        match election.await? {
            ElectionOutcome::Lost(loss) => Err(RunError::LeaseLost(loss)),
            ElectionOutcome::NeverLed | ElectionOutcome::Finished(()) => outcome,
        }
    }

    async fn run_alone(self, shutdown: CancellationToken) -> Result<(), RunError> {
        let Some(outcome) = shutdown.run_until_cancelled(self.wait_for_api_server()).await else {
            return Ok(());
        };
        outcome?;
        let controllers = Controllers::start_in(&self.config, self.dependencies.clone());
        self.supervise(controllers, shutdown, &Notify::new()).await
    }

    /// Waits for the API server, refreshes the caches and runs the controllers.
    async fn lead(
        self,
        standby: oneshot::Receiver<Standby>,
        shutdown: CancellationToken,
        restored: Arc<Notify>,
    ) -> Result<(), RunError> {
        // The sender is dropped only if the standby failed. That ends `run`.
        let Ok(standby) = standby.await else { return pending().await };
        let ready = async {
            self.wait_for_api_server().await?;
            Ok::<_, RunError>(standby.lead().await?)
        };
        let Some(ready) = shutdown.run_until_cancelled(ready).await else { return Ok(()) };
        self.supervise(ready?, shutdown, &restored).await
    }

    /// Runs until `shutdown`, until a controller fails or until the API server's storage was `restored`, then stops all
    /// controllers.
    async fn supervise(
        &self,
        mut controllers: Controllers,
        shutdown: CancellationToken,
        restored: &Notify,
    ) -> Result<(), RunError> {
        let alive = liveness(Arc::clone(&self.dependencies.clock));
        for name in controllers.names() {
            if let Some(metrics) = &self.dependencies.metrics {
                metrics.controller_running(&name, true);
            }
            // DEVIATION: upstream's check always passes.
            self.health.add(name, Arc::clone(&alive));
        }
        let failure = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            failure = controllers.failed() => Some(failure),
            () = restored.notified() => Some(ControllerError::Restored),
        };
        tracing::info!("Shutting down");
        if let Some(failure @ ControllerError::Restored) = failure {
            // A sync of a queued key would read caches of different times.
            controllers.abort().await;
            return Err(failure.into());
        }
        let stopped = controllers.stop().await;
        // An error of the shutdown is a consequence of the failure.
        Ok(failure.map_or(stopped, Err)?)
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
                        tracing::debug!(err = %error, "API server is not healthy, retrying");
                        last = error;
                    }
                }
                clock.sleep(API_SERVER_INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            () = attempts => return Ok(()),
            () = clock.sleep(API_SERVER_TIMEOUT) => {}
        }
        let server = match client.server() {
            "" => "in this process".to_owned(),
            server => format!("at {server}"),
        };
        Err(RunError::ApiServer { server, timeout: API_SERVER_TIMEOUT, cause: last })
    }
}

/// Watches `standby` until this process is `elected`, then sends it to `leader`. Returns if the standby fails.
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
    // The receiver is dropped only at shutdown.
    let _ = leader.send(standby);
    pending().await
}

/// Runs `work` on its own task, so that it cannot delay a renewal of the lease. A panic is propagated.
///
/// # Cancel safety
///
/// Dropping the future aborts the task.
async fn on_own_task<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
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
    // The task is cancelled only if the runtime shuts down.
    pending().await
}

#[cfg(test)]
mod tests;
