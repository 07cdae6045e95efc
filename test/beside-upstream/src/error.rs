//! Error of the suite.

use std::io;

use kcm_api::ApiError;
use kcm_client::ClientConfigError;
use kcm_stories::ClusterError;
use thiserror::Error;

/// Error that ends the suite. Failures of a manager are measurements, not errors.
#[derive(Debug, Error)]
pub enum SuiteError {
    /// A file, socket or program cannot be used.
    #[error("{what}: {source}")]
    Io {
        /// File, socket or operation.
        what: String,
        /// Cause.
        source: io::Error,
    },
    /// The API server or a program does not start or stop.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The client of the suite cannot be configured.
    #[error(transparent)]
    Config(#[from] ClientConfigError),
    /// A request of the suite failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A result or response cannot be read.
    #[error("failed to read JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A certificate cannot be used.
    #[error("failed to use a certificate: {0}")]
    Tls(#[from] rustls::Error),
    /// SIGINT or SIGTERM.
    #[error("interrupted; --resume continues")]
    Interrupted,
    /// A condition that precedes the fault is not met in time.
    #[error("timeout after {seconds}s: {what}")]
    Late {
        /// Condition.
        what: String,
        /// Time limit.
        seconds: u64,
    },
}

/// Adds the name of a file, socket or operation to an I/O error.
pub(crate) fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> SuiteError {
    move |source| SuiteError::Io { what: what.into(), source }
}
