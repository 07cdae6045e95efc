//! The embedded API server on a socket.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use kcm_apiserver::{ApiServer, ApiServerConfig};
use kcm_clock::Clock;
use kcm_controller_manager::KUBERNETES_VERSION;
use kcm_invariants::Entry;
use kcm_sandbox_server::HttpServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{cluster::ClusterError, in_process::STORY_USER_AGENT, write_log::WriteLogSender};

/// Serves the embedded API server on a free port until `stop` is cancelled. Returns the address.
pub(super) async fn serve(
    clock: &Arc<dyn Clock>,
    log: WriteLogSender,
    stop: CancellationToken,
) -> Result<SocketAddr, ClusterError> {
    let server = ApiServer::new(ApiServerConfig {
        clock: Arc::clone(clock),
        advertise_version: KUBERNETES_VERSION.to_owned(),
        audit: Some(Arc::new(move |event| {
            if !event.user_agent.starts_with(STORY_USER_AGENT) {
                log.send(Entry::from(event));
            }
        })),
        ..ApiServerConfig::default()
    });
    let failed = |source: io::Error| ClusterError::File { file: "free port".to_owned(), source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tokio::spawn(HttpServer::new(server).serve(listener, stop));
    Ok(address)
}
