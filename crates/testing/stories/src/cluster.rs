//! Clusters that stories are played in.

use std::{fmt, io, sync::Arc, time::Duration};

use async_trait::async_trait;
use kcm_api::ApiError;
use kcm_client::{ApiClient, Request};
use kcm_clock::Clock;
use serde_json::{Value, json};
use thiserror::Error;

use crate::{invariant_checker::InvariantChecker, write_log::WriteLog};

/// API server, manager, and log of the manager's writes.
///
/// Created by [`InProcess::new`](crate::InProcess::new) or [`external::start`](crate::external::start).
#[derive(Debug)]
pub struct StoryCluster {
    api: ApiClient,
    clock: Arc<dyn Clock>,
    log: WriteLog,
    manager: Box<dyn ManagerUnderTest>,
    version: String,
    /// Checks invariants; only in process.
    checker: Option<Arc<InvariantChecker>>,
}

/// Manager under test. It can be started and stopped repeatedly.
#[async_trait]
pub trait ManagerUnderTest: fmt::Debug + Send + Sync {
    /// Starts the manager with these controllers. Returns when it watches the resources of the controllers.
    async fn start(&mut self, controllers: &[String], log: &mut WriteLog) -> Result<(), ClusterError>;

    /// Stops the manager and waits until it has exited.
    async fn stop(&mut self) -> Result<(), ClusterError>;

    /// Activity of the manager. Default: idle.
    fn activity(&self) -> Activity {
        Activity::default()
    }
}

/// Activity of a process, observed from outside.
///
/// On a loaded machine, a manager may act late. It is idle if two successive observations are [`Idle`](Self::Idle) with the
/// same number of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Running, or waiting for a CPU.
    Busy,
    /// Waiting for events.
    Idle {
        /// Number of time slices so far.
        turns: u64,
    },
}

impl Default for Activity {
    fn default() -> Self {
        Self::Idle { turns: 0 }
    }
}

/// Time between two observations of the activity.
pub(crate) const IDLE_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until a process is idle, for at most about `timeout`.
pub async fn wait_until_idle(clock: &dyn Clock, timeout: Duration, activity: impl Fn() -> Activity) {
    let end = clock.monotonic().saturating_add(timeout);
    loop {
        let before = activity();
        clock.sleep(IDLE_INTERVAL).await;
        let at_rest = before != Activity::Busy && activity() == before;
        if at_rest || clock.monotonic() >= end {
            return;
        }
    }
}

/// Error of a cluster.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// A program cannot be started.
    #[error("failed to start {program:?}: {source}")]
    Spawn {
        /// Name of the program.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// A file cannot be used.
    #[error("failed to use {file}: {source}")]
    File {
        /// The file.
        file: String,
        /// Cause.
        source: io::Error,
    },
    /// A program has exited.
    #[error("{program} exited ({status}); end of its log:\n{log}")]
    Exited {
        /// Name of the program.
        program: &'static str,
        /// Exit status.
        status: String,
        /// End of its log.
        log: String,
    },
    /// A program is not ready in time.
    #[error("{program} is not ready after {seconds}s: {reason}; end of its log:\n{log}")]
    NotReady {
        /// Name of the program.
        program: &'static str,
        /// Timeout.
        seconds: u64,
        /// Cause.
        reason: String,
        /// End of its log.
        log: String,
    },
    /// The client cannot be configured.
    #[error(transparent)]
    Connect(#[from] kcm_client::ClientConfigError),
    /// A request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Unknown controllers.
    #[error(transparent)]
    Controllers(#[from] kcm_controller_manager::UnknownControllers),
    /// A controller failed.
    #[error(transparent)]
    Controller(#[from] kcm_controller_manager::ControllerError),
    /// The simulated nodes cannot be created.
    #[error("failed to create the simulated nodes: {0}")]
    Nodes(#[from] kcm_apiserver::ApiStatus),
    /// A key cannot be generated.
    #[error("failed to generate a key: {0}")]
    Key(#[from] rcgen::Error),
}

impl StoryCluster {
    /// Creates a cluster.
    ///
    /// `api` is the client of the story. Its requests must not be part of `log`.
    pub async fn new(
        api: ApiClient,
        clock: Arc<dyn Clock>,
        log: WriteLog,
        manager: Box<dyn ManagerUnderTest>,
    ) -> Result<Self, ClusterError> {
        let answer = api.send(&Request::get("/version")).await?;
        let version: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let version = version["gitVersion"].as_str().unwrap_or("unknown").to_owned();
        Ok(Self { api, clock, log, manager, version, checker: None })
    }

    /// Adds an invariant checker.
    pub(crate) fn with_invariant_checker(self, checker: Arc<InvariantChecker>) -> Self {
        Self { checker: Some(checker), ..self }
    }

    /// Invariant checker, if the cluster runs in process.
    pub(crate) fn checker(&self) -> Option<&Arc<InvariantChecker>> {
        self.checker.as_ref()
    }

    /// Client of the story.
    pub fn api(&self) -> &ApiClient {
        &self.api
    }

    /// Clock of the cluster.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Version of the API server.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Log of the manager's requests.
    pub fn log(&mut self) -> &mut WriteLog {
        &mut self.log
    }

    /// Starts the manager with these controllers.
    pub async fn start_manager(&mut self, controllers: &[String]) -> Result<(), ClusterError> {
        self.manager.start(controllers, &mut self.log).await
    }

    /// Stops the manager.
    pub async fn stop_manager(&mut self) -> Result<(), ClusterError> {
        self.manager.stop().await
    }

    /// Activity of the manager.
    pub fn activity(&self) -> Activity {
        self.manager.activity()
    }

    /// Creates a namespace.
    pub async fn create_namespace(&self, name: &str) -> Result<(), ApiError> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.api.send(&Request::post("/api/v1/namespaces", namespace.to_string())).await.map(drop)
    }
}
