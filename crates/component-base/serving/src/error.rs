//! Why a port cannot be served.

use std::{io, net::SocketAddr, path::PathBuf};

use thiserror::Error;

/// Why a port cannot be served. Each message is one line and names the file, address or option at fault.
#[derive(Debug, Error)]
pub enum ServingError {
    /// The address is taken, or not ours.
    #[error("failed to listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        cause: io::Error,
    },
    /// A file is not there, cannot be read, or does not hold what it should.
    #[error("{what} {path:?}: {cause}")]
    File {
        /// What the file is for, such as `certificate file`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// An option has a value that cannot be used.
    #[error("{0}")]
    Option(String),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    /// There is no way to the API server that is to be asked who somebody is and what he may.
    #[error("failed to get delegated {purpose} kubeconfig: {cause}")]
    Client {
        /// `authentication` or `authorization`.
        purpose: &'static str,
        /// What is wrong.
        cause: kcm_client::ClientConfigError,
    },
    /// The cluster's client CAs cannot be read, and going without was not allowed.
    #[error("unable to load configmap based request-header-client-ca-file: {0}")]
    Lookup(String),
}
