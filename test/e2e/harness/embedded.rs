//! This project's API server on a local port.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use kcm_apiserver::{ApiServer, ApiServerConfig, Fault, Faults};
use kcm_stories::{Entry, WriteLogSender};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
};
use tokio_util::sync::CancellationToken;

use super::{TIMEOUT, until};

/// User agent of the tests' clients. Their requests are not recorded.
pub(super) const TEST: &str = "e2e-test";

/// API server with its objects in a folder.
#[derive(Debug)]
pub(super) struct Embedded {
    address: SocketAddr,
    data: PathBuf,
    trail: WriteLogSender,
    faults: Vec<Fault>,
    /// Separate runtime, so that all tasks of the API server can be aborted.
    runtime: Option<Runtime>,
}

impl Embedded {
    /// Starts the API server with rules for injected faults.
    pub(super) async fn start(data: PathBuf, trail: WriteLogSender, faults: &[&str]) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let faults = faults.iter().map(|rule| rule.parse().unwrap()).collect();
        let mut server = Self { address, data, trail, faults, runtime: None };
        server.start_again().await;
        server
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts the API server with the same port and folder.
    pub(super) async fn start_again(&mut self) {
        let mut opened = None;
        // A killed API server may still lock the folder.
        until("the API server starts", async || {
            opened = ApiServer::open(self.config(), &self.data).ok();
            opened.is_some()
        })
        .await;
        let server = opened.unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address = self.address;
        let (listener, address) = runtime
            .spawn(async move {
                let listener = TcpListener::bind(address).await.unwrap();
                let address = listener.local_addr().unwrap();
                (listener, address)
            })
            .await
            .unwrap();
        self.address = address;
        runtime.spawn(kcm_apiserver::serve(listener, server.service(), CancellationToken::new()));
        self.runtime = Some(runtime);
    }

    /// Kills the API server. Connections break, and requests in progress get no response.
    pub(super) async fn kill(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(TIMEOUT)).await.unwrap();
    }

    fn config(&self) -> ApiServerConfig {
        let trail = self.trail.clone();
        ApiServerConfig {
            audit: Some(Arc::new(move |event| {
                if !event.user_agent.starts_with(TEST) {
                    trail.send(Entry::from(event));
                }
            })),
            faults: Faults::new(self.faults.iter().cloned()),
            ..ApiServerConfig::default()
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
