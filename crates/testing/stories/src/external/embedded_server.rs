//! The embedded API server as a program that can be killed.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use kcm_apiserver::{ApiServer, ApiServerConfig};
use kcm_clock::{Clock, RealClock};
use kcm_sandbox_server::HttpServer;
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
};
use tokio_util::sync::CancellationToken;

use super::readiness::{POLL_INTERVAL, TIMEOUT};
use crate::cluster::ClusterError;

/// The embedded API server on a local port, with its objects in a folder. It can be killed and restarted with the same
/// port and objects.
pub struct EmbeddedServer {
    address: SocketAddr,
    data: PathBuf,
    config: Box<dyn Fn() -> ApiServerConfig + Send + Sync>,
    /// Separate runtime, so that all tasks of the API server can be aborted.
    runtime: Option<Runtime>,
}

impl EmbeddedServer {
    /// Starts the API server on a free port. `config` is called at each start.
    pub async fn start(
        data: PathBuf,
        config: impl Fn() -> ApiServerConfig + Send + Sync + 'static,
    ) -> Result<Self, ClusterError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut server = Self { address, data, config: Box::new(config), runtime: None };
        server.start_again().await?;
        Ok(server)
    }

    /// Address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// URL of the server.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts the API server with the same port and folder.
    pub async fn start_again(&mut self) -> Result<(), ClusterError> {
        let server = self.open().await?;
        let failed = |source| ClusterError::File { file: "port of the API server".to_owned(), source };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(failed)?;
        let address = self.address;
        let bound = runtime.spawn(TcpListener::bind(address)).await;
        let listener = bound.unwrap_or_else(|error| Err(error.into())).map_err(failed)?;
        self.address = listener.local_addr().map_err(failed)?;
        runtime.spawn(HttpServer::new(server).serve(listener, CancellationToken::new()));
        self.runtime = Some(runtime);
        Ok(())
    }

    /// Opens the folder. A killed API server may still lock it.
    async fn open(&self) -> Result<std::sync::Arc<ApiServer>, ClusterError> {
        let clock = RealClock::new();
        loop {
            match kcm_sandbox_server::open((self.config)(), &self.data) {
                Ok(server) => return Ok(server),
                Err(error) if clock.monotonic() > TIMEOUT => {
                    let source = std::io::Error::other(error.to_string());
                    return Err(ClusterError::File { file: self.data.display().to_string(), source });
                }
                Err(_) => clock.sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Kills the API server. Connections break, and requests in progress get no response.
    pub async fn kill(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        // The task only waits for the threads of the runtime.
        let _ = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(60))).await;
    }
}

impl Drop for EmbeddedServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for EmbeddedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedServer").field("address", &self.address).finish_non_exhaustive()
    }
}
