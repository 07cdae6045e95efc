//! Where stories happen.

use std::{fmt, io, sync::Arc, time::Duration};

use async_trait::async_trait;
use kcm_api::ApiError;
use kcm_client::{ApiClient, Request};
use kcm_clock::Clock;
use serde_json::{Value, json};
use thiserror::Error;

use crate::{guard::Guard, trail::Trail};

/// A server, a manager, and the trail of what the manager writes.
///
/// Make one with [`InProcess::new`](crate::InProcess::new) or [`external::start`](crate::external::start).
#[derive(Debug)]
pub struct World {
    api: ApiClient,
    clock: Arc<dyn Clock>,
    trail: Trail,
    manager: Box<dyn Manager>,
    version: String,
    /// Who holds the invariants, where that can be done.
    guard: Option<Arc<Guard>>,
}

/// The manager under observation. It can be started and stopped as often as one likes.
#[async_trait]
pub trait Manager: fmt::Debug + Send + Sync {
    /// Starts it with these controllers; answers when it watches what they need.
    ///
    /// # Errors
    ///
    /// When it does not start.
    async fn start(&mut self, controllers: &[String], trail: &mut Trail) -> Result<(), WorldError>;

    /// Stops it and waits until it has stopped.
    ///
    /// # Errors
    ///
    /// When it does not stop as it should, or has stopped already.
    async fn stop(&mut self) -> Result<(), WorldError>;

    /// What it is at. Managers of which nothing is known are taken to be at rest.
    fn activity(&self) -> Activity {
        Activity::default()
    }
}

/// What a manager is at, as far as can be told without asking it.
///
/// On a machine with much else to do a manager can be slow to act on what it has seen. It has come to rest when it
/// is [idle](Self::Idle) twice in a row with the same count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It runs, or waits for its turn to.
    Busy,
    /// It waits for something to happen.
    Idle {
        /// How often it has been given a processor so far.
        turns: u64,
    },
}

impl Default for Activity {
    fn default() -> Self {
        Self::Idle { turns: 0 }
    }
}

/// How long a manager must have done nothing to be at rest.
pub(crate) const BREATH: Duration = Duration::from_millis(50);

/// Waits until a manager has come to rest, by its `activity`, but not much longer than `patience`.
pub async fn come_to_rest(clock: &dyn Clock, patience: Duration, activity: impl Fn() -> Activity) {
    let end = clock.monotonic().saturating_add(patience);
    loop {
        let before = activity();
        clock.sleep(BREATH).await;
        let at_rest = before != Activity::Busy && activity() == before;
        if at_rest || clock.monotonic() >= end {
            return;
        }
    }
}

/// A world that does not work.
#[derive(Debug, Error)]
pub enum WorldError {
    /// A program cannot be started.
    #[error("cannot start {program:?}: {source}")]
    Spawn {
        /// What.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// A file that the programs need, or leave, cannot be used.
    #[error("{file}: {source}")]
    File {
        /// Which.
        file: String,
        /// Why not.
        source: io::Error,
    },
    /// A program ended while it was needed.
    #[error("{program} ended early ({status}); the end of what it said:\n{said}")]
    Ended {
        /// Which.
        program: &'static str,
        /// How.
        status: String,
        /// Its last words.
        said: String,
    },
    /// A program is not ready in time.
    #[error("{program} is not ready after {seconds} s: {lacks}; the end of what it said:\n{said}")]
    NotReady {
        /// Which.
        program: &'static str,
        /// How long it was given.
        seconds: u64,
        /// What is missing.
        lacks: String,
        /// Its last words.
        said: String,
    },
    /// There is no way to the server.
    #[error(transparent)]
    Connect(#[from] kcm_client::ClientConfigError),
    /// The server does not answer as one should.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// There are no such controllers.
    #[error(transparent)]
    Controllers(#[from] kcm_controller_manager::UnknownControllers),
    /// A controller failed.
    #[error(transparent)]
    Controller(#[from] kcm_controller_manager::ControllerError),
    /// The simulated nodes cannot be made.
    #[error("cannot make the nodes: {0}")]
    Nodes(#[from] kcm_apiserver::ApiStatus),
    /// A key for the server cannot be made.
    #[error("cannot make a key: {0}")]
    Key(#[from] rcgen::Error),
}

impl World {
    /// Puts a world together.
    ///
    /// `api` is what the story's own requests go through; they must not be left on the `trail`.
    ///
    /// # Errors
    ///
    /// When the server does not tell its version.
    pub async fn new(
        api: ApiClient,
        clock: Arc<dyn Clock>,
        trail: Trail,
        manager: Box<dyn Manager>,
    ) -> Result<Self, WorldError> {
        let answer = api.send(&Request::get("/version")).await?;
        let version: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let version = version["gitVersion"].as_str().unwrap_or("unknown").to_owned();
        Ok(Self { api, clock, trail, manager, version, guard: None })
    }

    /// The same in simulated time, where every write is seen as it happens.
    pub(crate) fn guarded(self, guard: Arc<Guard>) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// Who holds the invariants. There is one in this process only.
    pub(crate) fn guard(&self) -> Option<&Arc<Guard>> {
        self.guard.as_ref()
    }

    /// The story's own way to the server.
    pub fn api(&self) -> &ApiClient {
        &self.api
    }

    /// The time that passes in the story.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// The version that the server says it has.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What the manager has done and nobody has looked at.
    pub fn trail(&mut self) -> &mut Trail {
        &mut self.trail
    }

    /// Starts the manager with these controllers.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub async fn start_manager(&mut self, controllers: &[String]) -> Result<(), WorldError> {
        self.manager.start(controllers, &mut self.trail).await
    }

    /// Stops the manager.
    ///
    /// # Errors
    ///
    /// When it does not stop, or has stopped already.
    pub async fn stop_manager(&mut self) -> Result<(), WorldError> {
        self.manager.stop().await
    }

    /// What the manager is at.
    pub fn activity(&self) -> Activity {
        self.manager.activity()
    }

    /// Makes a namespace.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub async fn make_namespace(&self, name: &str) -> Result<(), ApiError> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.api.send(&Request::post("/api/v1/namespaces", namespace.to_string())).await.map(drop)
    }
}
