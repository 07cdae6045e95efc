//! etcd and kube-apiserver.

use std::path::{Path, PathBuf};

use kcm_client::ApiClient;
use kcm_clock::Clock;
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, Serving, files::Files, free_port, program::Program, ready, tail, text};
use crate::{trail::TrailSender, world::WorldError};

/// A real API server with its etcd, on ports that they keep. Each can be ended, and started again where it was. Both
/// are killed when this is dropped.
#[derive(Debug)]
pub struct ControlPlane {
    assets: PathBuf,
    files: Files,
    authorization: Authorization,
    port: u16,
    client: String,
    peer: String,
    /// Before etcd, so that it is dropped first.
    server: Option<Program>,
    etcd: Option<Program>,
}

/// Who may do what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorization {
    /// Everybody may do everything.
    AlwaysAllow,
    /// As roles and their bindings say. The users of the kubeconfigs are administrators.
    Rbac,
}

impl Authorization {
    const fn mode(self) -> &'static str {
        match self {
            Self::AlwaysAllow => "AlwaysAllow",
            Self::Rbac => "RBAC",
        }
    }
}

impl ControlPlane {
    /// Starts `etcd` and `kube-apiserver` from `assets`, as `KUBEBUILDER_ASSETS` names them. All files are in `folder`,
    /// which is there. The server is not [ready](Self::ready) yet.
    ///
    /// # Errors
    ///
    /// When a file cannot be written or a program not be started.
    pub fn start(assets: &Path, folder: &Path, authorization: Authorization) -> Result<Self, WorldError> {
        let files = Files::new(folder);
        files.write_for_server()?;
        let port = free_port()?;
        files.write_kubeconfigs(&format!("https://127.0.0.1:{port}"), true)?;
        let (client, peer) = (free_port()?, free_port()?);
        let mut plane = Self {
            assets: assets.to_owned(),
            files,
            authorization,
            port,
            client: format!("http://127.0.0.1:{client}"),
            peer: format!("http://127.0.0.1:{peer}"),
            server: None,
            etcd: None,
        };
        plane.start_etcd()?;
        plane.start_server()?;
        Ok(plane)
    }

    /// The kubeconfig of `admin` or `manager`. What the latter writes is in the audit log, and what service accounts do.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.files.kubeconfig(user)
    }

    /// Where it serves.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The API server, if it has not been ended.
    pub fn server(&self) -> Option<&Program> {
        self.server.as_ref()
    }

    /// Its etcd, if it has not been ended.
    pub fn etcd(&self) -> Option<&Program> {
        self.etcd.as_ref()
    }

    /// Leaves on a trail, until `stop`, what is in the audit log.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn follow(&self, trail: TrailSender, stop: CancellationToken) {
        tail::follow(self.files.audit_log(), trail, stop);
    }

    /// Waits until the server can be used.
    ///
    /// # Errors
    ///
    /// When a program ends, or the server is not ready in time.
    pub async fn ready(&mut self, api: &ApiClient, clock: &dyn Clock) -> Result<(), WorldError> {
        ready(self, api, clock, PATIENCE).await
    }

    /// Ends the server as a crash would.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub async fn kill_server(&mut self) -> Result<(), WorldError> {
        match self.server.take() {
            Some(server) => server.kill(PATIENCE).await,
            None => Ok(()),
        }
    }

    /// Starts the server where it was, with what it left in etcd.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start_server(&mut self) -> Result<(), WorldError> {
        let path = |name: &str| text(&self.files.path(name));
        let flags = [
            format!("--etcd-servers={}", self.client),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port),
            format!("--cert-dir={}", path("certs")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-signing-key-file={}", path("sa.key")),
            format!("--service-account-key-file={}", path("sa.pub")),
            format!("--token-auth-file={}", path("tokens.csv")),
            format!("--authorization-mode={}", self.authorization.mode()),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            // There is nobody to make the default account that every pod would have to have.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--audit-policy-file={}", path("audit.yaml")),
            format!("--audit-log-path={}", text(&self.files.audit_log())),
            // One file, whatever its size.
            "--audit-log-maxsize=2000".to_owned(),
            "--max-requests-inflight=4000".to_owned(),
            "--max-mutating-requests-inflight=2000".to_owned(),
        ];
        self.server = Some(self.program("kube-apiserver", &flags)?);
        Ok(())
    }

    fn start_etcd(&mut self) -> Result<(), WorldError> {
        let Self { client, peer, .. } = self;
        let flags = [
            format!("--data-dir={}", text(&self.files.path("etcd"))),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync=true".to_owned(),
        ];
        self.etcd = Some(self.program("etcd", &flags)?);
        Ok(())
    }

    fn program(&self, name: &'static str, flags: &[String]) -> Result<Program, WorldError> {
        Program::run(name, self.assets.join(name).as_os_str(), flags, &self.files.log(name))
    }
}

impl Serving for ControlPlane {
    fn must_run(&mut self) -> Result<(), WorldError> {
        self.etcd.as_mut().map_or(Ok(()), Program::must_run)?;
        self.server.as_mut().map_or(Ok(()), Program::must_run)
    }

    fn last_words(&self) -> String {
        self.server.as_ref().map(Program::last_words).unwrap_or_default()
    }
}
