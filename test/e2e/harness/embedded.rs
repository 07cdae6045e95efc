//! This project's API server on a port of this machine, to be ended and started again.

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

use super::{PATIENCE, until};

/// Requests of clients of this name are not the manager's.
pub(super) const TEST: &str = "e2e-test";

/// The server, with its objects in a folder.
#[derive(Debug)]
pub(super) struct Embedded {
    address: SocketAddr,
    data: PathBuf,
    trail: WriteLogSender,
    faults: Vec<Fault>,
    /// Its tasks have a runtime of their own, with which they can be ended wherever they are.
    runtime: Option<Runtime>,
}

impl Embedded {
    /// Starts one that does so to requests.
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

    /// Starts it where it was, with what it has left in its folder.
    pub(super) async fn start_again(&mut self) {
        let mut opened = None;
        // One that has just been ended may not have let go of the folder yet.
        until("the server can be opened", async || {
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

    /// Ends it as a crash would: connections break off, requests under way are not answered.
    pub(super) async fn kill(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(PATIENCE)).await.unwrap();
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
