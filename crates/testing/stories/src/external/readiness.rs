//! Readiness of an API server.

use std::{fmt, time::Duration};

use kcm_client::{ApiClient, Request};
use kcm_clock::Clock;

use super::program::Program;
use crate::cluster::ClusterError;

/// Timeout for start and stop of a program.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Interval of readiness checks.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// API server process, or task of this process.
pub(super) trait Serving: fmt::Debug + Send + Sync {
    /// Returns an error if a process has exited.
    fn check_running(&mut self) -> Result<(), ClusterError>;

    /// End of the log of the API server.
    fn log_tail(&self) -> String;
}

impl Serving for Program {
    fn check_running(&mut self) -> Result<(), ClusterError> {
        Self::check_running(self)
    }

    fn log_tail(&self) -> String {
        Self::log_tail(self)
    }
}

/// Waits until the API server is ready.
pub(super) async fn ready(
    serving: &mut dyn Serving,
    api: &ApiClient,
    clock: &dyn Clock,
    timeout: Duration,
) -> Result<(), ClusterError> {
    let deadline = clock.monotonic().saturating_add(timeout);
    // The default namespace is the last object that an API server creates at startup.
    let requests = [Request::get("/readyz"), Request::get("/api/v1/namespaces/default")];
    for request in requests {
        while let Err(error) = api.send(&request).await {
            serving.check_running()?;
            if clock.monotonic() > deadline {
                let (seconds, reason, log) = (timeout.as_secs(), error.to_string(), serving.log_tail());
                return Err(ClusterError::NotReady { program: "API server", seconds, reason, log });
            }
            clock.sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}
