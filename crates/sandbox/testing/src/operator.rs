//! Managers of a test environment.

use std::panic::resume_unwind;

use kcm_manager::{Dependencies, Manager, RunError, Settings};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::TestEnv;

impl TestEnv {
    /// Manager called `name`, without leader election. The operator adds its controllers to it.
    pub fn manager(&self, name: &'static str) -> Manager {
        Manager::without_election(Settings::new(name), self.dependencies())
    }

    /// Dependencies of a manager with other [`Settings`], such as those of leader election.
    pub fn dependencies(&self) -> Dependencies {
        Dependencies::new(&self.clients, &self.clock, &self.random)
    }

    /// Runs a manager in the background. A failure is listed when [`eventually`](Self::eventually) fails.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn run(&self, manager: Manager) -> RunningManager {
        let (stop, log) = (CancellationToken::new(), self.log.clone());
        let running = manager.run(stop.clone());
        let task = tokio::spawn(async move {
            let outcome = running.await;
            if let Err(error) = &outcome {
                log.add_failure(format!("manager failed: {error}"));
            }
            outcome
        });
        RunningManager { stop: stop.drop_guard(), task }
    }
}

/// Manager that runs in the background. Dropping it stops the manager as a signal does.
#[derive(Debug)]
#[must_use = "dropping it stops the manager"]
pub struct RunningManager {
    stop: DropGuard,
    task: JoinHandle<Result<(), RunError>>,
}

impl RunningManager {
    /// Stops the manager as SIGTERM does: syncs in progress finish, events are written, the Lease is released.
    ///
    /// # Errors
    ///
    /// Those of [`Manager::run`].
    pub async fn stop(self) -> Result<(), RunError> {
        drop(self.stop);
        match self.task.await {
            Ok(outcome) => outcome,
            // The task is not aborted.
            Err(error) => resume_unwind(error.into_panic()),
        }
    }

    /// Ends the manager as SIGKILL does: requests in flight are dropped, and the Lease is not released.
    pub async fn kill(self) {
        self.task.abort();
        _ = self.task.await;
    }
}
