//! This project's API server on a local port.

use std::{path::PathBuf, sync::Arc};

use kcm_apiserver::{ApiServerConfig, Fault, Faults};
use kcm_stories::{Entry, WriteLogSender, external::EmbeddedServer};

/// User agent of the tests' clients. Their requests are not recorded.
pub(super) const TEST: &str = "e2e-test";

/// Starts the API server with its objects in a folder, and with rules for injected faults.
pub(super) async fn start(data: PathBuf, trail: WriteLogSender, faults: &[&str]) -> EmbeddedServer {
    let faults: Vec<Fault> = faults.iter().map(|rule| rule.parse().unwrap()).collect();
    let config = move || {
        let trail = trail.clone();
        ApiServerConfig {
            audit: Some(Arc::new(move |event| {
                if !event.user_agent.starts_with(TEST) {
                    trail.send(Entry::from(event));
                }
            })),
            faults: Faults::new(faults.iter().cloned()),
            ..ApiServerConfig::default()
        }
    };
    EmbeddedServer::start(data, config).await.unwrap()
}
