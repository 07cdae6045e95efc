//! Processes of an operator: connection, clock and randomness of one life.

use std::{fmt, sync::Arc};

use kcm_clock::{Clock, Random, SeededRandom};
use tokio_util::sync::CancellationToken;

use crate::engine::network::ProcessConnection;

/// One life of a process of the operator: connection, clock and randomness.
///
/// After the process was killed, no request of its tasks is sent, no response reaches them, and no sleep of the clock ends.
/// Otherwise, tasks that it has spawned continue.
#[derive(Clone)]
pub struct ManagerProcess {
    connection: ProcessConnection,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    shutdown: CancellationToken,
}

impl ManagerProcess {
    pub(crate) fn new(connection: ProcessConnection, seed: u64, shutdown: CancellationToken) -> Self {
        let clock = connection.process.clock(&connection.network);
        Self { connection, clock, random: Arc::new(SeededRandom::new(!seed)), shutdown }
    }

    /// Name of the process, such as `m0`. A manager of `kcm-manager` uses it as its host, with which its identity in a Lease begins.
    pub fn name(&self) -> String {
        format!("m{}", self.connection.process.manager)
    }

    /// Clock of the process. A process that is stopped waits for its sleeps.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Random numbers of the process, which follow from the seed of the scenario.
    pub fn random(&self) -> &Arc<dyn Random> {
        &self.random
    }

    /// Token that is cancelled in place of SIGTERM. An operator that does not wait for it continues.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Connection to the API server: a [`tower::Service`] of HTTP requests.
    pub fn connection(&self) -> ProcessConnection {
        self.connection.clone()
    }

    /// Client of kube-rs, with the default namespace `default`. It sends each request once. `Client::try_default` repeats those
    /// that fail with 429, 503 or 504, after random delays.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    #[cfg(feature = "kube-client")]
    pub fn kube_client(&self) -> kube_client::Client {
        kube_client::Client::new(self.connection.clone(), "default")
    }

    /// Clients of `kcm-client`. A request without a response times out after a minute.
    #[cfg(feature = "manager")]
    pub fn clients(&self) -> kcm_client::ClientFactory {
        let user_agent = kcm_client::UserAgent::new("operator", concat!("v", env!("CARGO_PKG_VERSION")), "");
        let options = kcm_client::ClientOptions {
            timeout: Some(std::time::Duration::from_secs(60)),
            ..kcm_client::ClientOptions::new(user_agent, Arc::clone(&self.clock))
        };
        kcm_client::ClientFactory::in_process(self.connection.clone(), options)
    }

    /// Dependencies of a manager of `kcm-manager`.
    #[cfg(feature = "manager")]
    pub fn dependencies(&self) -> kcm_manager::Dependencies {
        kcm_manager::Dependencies::new(&self.clients(), &self.clock, &self.random)
    }

    /// Manager of `kcm-manager` that elects a leader by the Lease `name` in the namespace `default`.
    ///
    /// # Errors
    ///
    /// If the settings of the leader election are invalid.
    #[cfg(feature = "manager")]
    pub fn manager(&self, name: &'static str) -> Result<kcm_manager::Manager, kcm_manager::RunError> {
        let leader_election = Some(kcm_manager::LeaderElectionSettings::new("default", name));
        let settings =
            kcm_manager::Settings { leader_election, host: self.name(), ..kcm_manager::Settings::new(name) };
        Ok(kcm_manager::Manager::new(settings, self.dependencies())?)
    }
}

impl fmt::Debug for ManagerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManagerProcess").field(&self.connection.process).finish()
    }
}

/// Result of a process: `()`, or a [`Result`] whose error is written to the log of the run.
pub trait ExitResult {
    /// The error, as text.
    fn into_result(self) -> Result<(), String>;
}

impl ExitResult for () {
    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Display> ExitResult for Result<(), E> {
    fn into_result(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}
