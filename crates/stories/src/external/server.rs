//! Starting API servers.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
};

use kcm_apiserver::{ApiServer, Config};
use kcm_clock::Clock;
use kcm_controller_manager::BEHAVES_AS;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{files::Files, free_port, program::Program, text};
use crate::{
    in_process::STORY,
    trail::{Entry, TrailSender},
    world::WorldError,
};

/// Serves the embedded server on a free port until `stop`; gives the address.
pub(super) async fn embedded(
    clock: &Arc<dyn Clock>,
    trail: TrailSender,
    stop: CancellationToken,
) -> Result<SocketAddr, WorldError> {
    let server = ApiServer::new(Config {
        clock: Arc::clone(clock),
        advertise_version: BEHAVES_AS.to_owned(),
        audit: Some(Arc::new(move |event| {
            if !event.user_agent.starts_with(STORY) {
                trail.leave(Entry::from(event));
            }
        })),
        ..Config::default()
    });
    let failed = |source: io::Error| WorldError::File { file: "a free port".to_owned(), source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tokio::spawn(async move { kcm_apiserver::serve(listener, server.service(), stop).await });
    Ok(address)
}

/// Starts etcd and kube-apiserver from `assets`; the server comes first.
pub(super) fn kubebuilder(assets: &Path, files: &Files, port: u16) -> Result<Vec<Program>, WorldError> {
    let (client, peer) = (free_port()?, free_port()?);
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let path = |name: &str| text(&files.path(name));
    let etcd = [
        format!("--data-dir={}", path("etcd")),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync=true".to_owned(),
    ];
    let etcd = Program::run("etcd", assets.join("etcd").as_os_str(), &etcd, &files.log("etcd"))?;
    let server = [
        format!("--etcd-servers={client}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", path("certs")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-signing-key-file={}", path("sa.key")),
        format!("--service-account-key-file={}", path("sa.pub")),
        format!("--token-auth-file={}", path("tokens.csv")),
        "--authorization-mode=AlwaysAllow".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        // There is nobody to make the default account that every pod would have to have.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--audit-policy-file={}", path("audit.yaml")),
        format!("--audit-log-path={}", text(&files.audit_log())),
        // One file, whatever its size.
        "--audit-log-maxsize=2000".to_owned(),
        "--max-requests-inflight=4000".to_owned(),
        "--max-mutating-requests-inflight=2000".to_owned(),
    ];
    let program = assets.join("kube-apiserver");
    let server = Program::run("kube-apiserver", program.as_os_str(), &server, &files.log("apiserver"))?;
    Ok(vec![server, etcd])
}
