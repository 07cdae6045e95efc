//! This project's API server on a local port.

use std::{path::PathBuf, sync::Arc};

use kcm_apiserver::{ApiServerConfig, Faults};
use kcm_stories::{Entry, WriteLogSender, external::EmbeddedServer};

/// User agent of the tests' clients. Their requests are not recorded.
pub(super) const TEST: &str = "e2e-test";

/// Starts the API server with its objects in a folder.
pub(super) async fn start(data: PathBuf, trail: WriteLogSender, faults: Faults) -> EmbeddedServer {
    let config = move || {
        let trail = trail.clone();
        ApiServerConfig {
            audit: Some(Arc::new(move |event| {
                if !event.user_agent.starts_with(TEST) {
                    trail.send(Entry::from(event));
                }
            })),
            faults: faults.clone(),
            ..ApiServerConfig::default()
        }
    };
    EmbeddedServer::start(data, config).await.unwrap()
}
