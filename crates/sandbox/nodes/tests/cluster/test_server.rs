//! API server with its clock, and the sandbox around it.

use std::sync::Arc;

use kcm_apiserver::ApiServer;
use kcm_clock::{Clock, Random, RealClock, SeededRandom, SimulatedClock};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::probe::ReadinessProbe;

/// API server with its clock and its source of randomness.
pub(crate) struct TestServer {
    pub(crate) server: Arc<ApiServer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
}

/// A running sandbox. Dropping it stops the sandbox.
pub(crate) struct RunningSandbox {
    _stop: DropGuard,
    _probe: ReadinessProbe,
}

impl TestServer {
    /// An empty API server in simulated time.
    pub(crate) fn new() -> Self {
        Self::with(kcm_apiserver::ApiServerConfig::default())
    }

    /// An API server in simulated time with this configuration, except for the clock and the source of randomness.
    pub(crate) fn with(config: kcm_apiserver::ApiServerConfig) -> Self {
        let clock = SimulatedClock::new("2026-01-01T00:00:00Z".parse().unwrap());
        Self::at(Arc::new(clock), config)
    }

    /// An empty API server in real time.
    pub(crate) fn in_real_time() -> Self {
        Self::at(Arc::new(RealClock::new()), kcm_apiserver::ApiServerConfig::default())
    }

    fn at(clock: Arc<dyn Clock>, config: kcm_apiserver::ApiServerConfig) -> Self {
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
        let (timed, drawn) = (Arc::clone(&clock), Arc::clone(&random));
        let server = ApiServer::new(kcm_apiserver::ApiServerConfig { clock: timed, random: drawn, ..config });
        Self { server, clock, random }
    }

    /// Runs the sandbox until the returned value is dropped. The API server must answer `/readyz` during that time.
    pub(crate) fn run_sandbox(&self, nodes: usize) -> RunningSandbox {
        self.run_sandbox_with(nodes, |sandbox| sandbox)
    }

    /// As [`run_sandbox`](Self::run_sandbox), after `configure`.
    pub(crate) fn run_sandbox_with(
        &self,
        nodes: usize,
        configure: impl FnOnce(Sandbox) -> Sandbox,
    ) -> RunningSandbox {
        let Self { server, clock, random } = self;
        let probe = ReadinessProbe::start(server, clock);
        let (server, clock, random) = (Arc::clone(server), Arc::clone(clock), Arc::clone(random));
        let config = SandboxConfig { server, clock, random, nodes, kubelet: KubeletConfig::default() };
        let (sandbox, stop) = (configure(Sandbox::new(config).unwrap()), CancellationToken::new());
        let stopped = stop.clone();
        tokio::spawn(async move { sandbox.run(stopped).await });
        RunningSandbox { _stop: stop.drop_guard(), _probe: probe }
    }
}
