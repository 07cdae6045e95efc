//! Errors of the secure port.

use std::{io, net::SocketAddr, path::PathBuf};

use thiserror::Error;

/// Reason why a port cannot be served. Each message is one line and names the file, address or option.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServingError {
    /// The address is in use or not local.
    #[error("failed to listen on {address}: {cause}")]
    Listen {
        /// Address.
        address: SocketAddr,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// A file does not exist, cannot be read, or has invalid contents.
    #[error("{what} {path:?}: {cause}")]
    File {
        /// Purpose of the file, such as `certificate file`.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        cause: String,
    },
    /// The value of an option is invalid.
    #[error("{0}")]
    Option(String),
    /// TLS cannot be configured.
    #[error("failed to configure TLS: {0}")]
    Tls(String),
    /// The kubeconfig of the API server that authenticates or authorizes requests cannot be used.
    #[error("failed to get delegated {purpose} kubeconfig: {cause}")]
    Client {
        /// `authentication` or `authorization`.
        purpose: &'static str,
        /// Reason.
        cause: kcm_client::ClientConfigError,
    },
    /// The cluster's client CA bundle cannot be read, and `--authentication-tolerate-lookup-failure` is off.
    #[error("unable to load configmap based request-header-client-ca-file: {0}")]
    Lookup(String),
}
