//! Errors of a manager.

use std::time::Duration;

use kcm_api::ApiError;
use kcm_leader_election::LossReason;
use thiserror::Error;

use crate::controllers::ControllerError;

/// Reason why a manager did not start, or exited. Each message is one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The kubeconfig, the credentials or the environment of the pod cannot be used.
    #[error(transparent)]
    Connect(#[from] kcm_client::ClientConfigError),
    /// A variable of the environment is invalid.
    #[error("{variable}: {cause}")]
    Environment {
        /// Name, such as `PORT`.
        variable: &'static str,
        /// Cause.
        cause: String,
    },
    /// The API server did not become healthy.
    #[error("failed to wait for the API server {server} to become healthy within {timeout:?}: {cause}")]
    ApiServer {
        /// API server, such as `at https://10.0.0.1:6443`.
        server: String,
        /// Time that was waited.
        timeout: Duration,
        /// Last error of a health check.
        cause: ApiError,
    },
    /// The settings of leader election are invalid.
    #[error("invalid leader election settings: {0}")]
    Election(#[from] kcm_leader_election::ElectionConfigError),
    /// The options of metrics are invalid.
    #[error(transparent)]
    Metrics(#[from] kcm_metrics::MetricsOptionsError),
    /// A thread cannot be started.
    #[error("failed to start thread {name}: {cause}")]
    Thread {
        /// Name of the thread, such as `leader-election`.
        name: &'static str,
        /// Cause.
        cause: std::io::Error,
    },
    /// The secure port cannot be served.
    #[error(transparent)]
    Serving(#[from] kcm_serving::ServingError),
    /// The process is no longer the leader. Upstream's message, with the reason.
    #[error("leaderelection lost/stopped: {0}")]
    LeaseLost(LossReason),
    /// A controller failed, or the API server's storage was restored from a backup.
    #[error(transparent)]
    Controllers(#[from] ControllerError),
}
