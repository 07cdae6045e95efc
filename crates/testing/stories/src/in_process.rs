//! A cluster in this process: embedded API server and controllers, in simulated time.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use kcm_apiserver::{ApiServer, ApiServerConfig, AuditEvent, Faults};
use kcm_client::{ClientFactory, ClientOptions, RateLimit, UserAgent};
use kcm_clock::{Clock, Random, SeededRandom, SimulatedClock};
use kcm_controller_manager::{
    ControllerSelection, Controllers, Dependencies, KUBERNETES_VERSION, ManagerConfig,
};
use kcm_invariants::Entry;
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    cluster::{ClusterError, ManagerUnderTest, StoryCluster},
    invariant_checker::InvariantChecker,
    story::SimulatedNodes,
    write_log::{WriteLog, WriteLogSender},
};

/// User agent of the requests of stories.
pub(crate) const STORY_USER_AGENT: &str = "kcm-stories";

/// Time from 1970 to 2026.
const YEARS: jiff::SignedDuration = jiff::SignedDuration::from_hours(24 * 365 * 56 + 24 * 14);

/// Cluster in this process and in simulated time. It must run under tokio's paused clock, on one thread.
///
/// Runs with the same seed are equal, write by write.
#[derive(Debug)]
pub struct InProcess {
    /// The cluster.
    pub cluster: StoryCluster,
    /// The API server.
    pub server: Arc<ApiServer>,
    /// Checks the invariants.
    pub checker: Arc<InvariantChecker>,
    /// Stops the simulated nodes.
    _stop: DropGuard,
}

impl InProcess {
    /// Creates an empty cluster. `seed` is that of UIDs, names and jitter.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub async fn new(seed: u64, nodes: Option<SimulatedNodes>, faults: Faults) -> Result<Self, ClusterError> {
        // Fixed, so that runs are reproducible.
        let start = Timestamp::UNIX_EPOCH.saturating_add(YEARS).unwrap_or_default();
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(start));
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(seed));
        let (sender, log) = WriteLog::new(Arc::clone(&clock));
        let checker = Arc::new(InvariantChecker::default());
        let watcher = Watcher { sender, checker: Arc::clone(&checker) };
        let server = ApiServer::new(ApiServerConfig {
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            advertise_version: KUBERNETES_VERSION.to_owned(),
            audit: Some(Arc::new(move |event| watcher.handle(event))),
            faults,
            ..ApiServerConfig::default()
        });
        checker.watch(&server);
        let stop = CancellationToken::new();
        if let Some(SimulatedNodes { nodes, pod_ready_delay, pod_stop_delay }) = nodes {
            let sandbox = Sandbox::new(SandboxConfig {
                server: Arc::clone(&server),
                clock: Arc::clone(&clock),
                random: Arc::clone(&random),
                nodes,
                kubelet: KubeletConfig { pod_ready_delay, pod_stop_delay },
            })?;
            let stop = stop.clone();
            tokio::spawn(async move { sandbox.run(stop).await });
        }

        let options = ClientOptions::new(UserAgent::new(STORY_USER_AGENT, "v0", ""), Arc::clone(&clock));
        let clients = ClientFactory::in_process(server.service(), options);
        let api = clients.client("story", RateLimit::UNLIMITED);
        let runner = Runner {
            server: Arc::clone(&server),
            clock: Arc::clone(&clock),
            random,
            checker: Arc::clone(&checker),
            running: None,
        };
        let cluster = StoryCluster::new(api, clock, log, Box::new(runner))
            .await?
            .with_invariant_checker(Arc::clone(&checker));
        Ok(Self { cluster, server, checker, _stop: stop.drop_guard() })
    }
}

/// Handles the audit events of the API server.
struct Watcher {
    sender: WriteLogSender,
    checker: Arc<InvariantChecker>,
}

impl Watcher {
    fn handle(&self, event: &AuditEvent) {
        if event.user_agent.starts_with(STORY_USER_AGENT) {
            self.checker.handle(event, None);
            return;
        }
        let entry = Entry::from(event);
        if entry.is_write() {
            self.checker.handle(event, Some(&entry));
        } else if entry.verb != "watch" {
            return;
        }
        self.sender.send(entry);
    }
}

/// Runs the controllers in this process.
#[derive(Debug)]
struct Runner {
    server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    checker: Arc<InvariantChecker>,
    running: Option<Controllers>,
}

#[async_trait]
impl ManagerUnderTest for Runner {
    async fn start(&mut self, controllers: &[String], _: &mut WriteLog) -> Result<(), ClusterError> {
        let config = ManagerConfig {
            controllers: ControllerSelection::new(controllers)?,
            // The configuration of the recorded upstream manager.
            concurrent_deployment_syncs: 1,
            concurrent_replica_set_syncs: 1,
            rate_limit: RateLimit { qps: 1000.0, burst: 1000 },
            ..ManagerConfig::default()
        };
        let options = ClientOptions::new(kcm_controller_manager::user_agent(), Arc::clone(&self.clock));
        let clients = ClientFactory::in_process(self.server.service(), options);
        let syncs = Arc::clone(&self.checker);
        let mut dependencies = Dependencies::new(&clients, &self.clock, &self.random);
        dependencies.manager.syncs = Some(Arc::new(move |_| syncs.syncs()));
        self.running = Some(kcm_controller_manager::start(&config, &dependencies));
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), ClusterError> {
        if let Some(controllers) = self.running.take() {
            controllers.stop().await?;
        }
        Ok(())
    }
}
