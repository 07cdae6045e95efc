//! etcd and kube-apiserver as processes.

use std::path::{Path, PathBuf};

use kcm_client::ApiClient;
use kcm_clock::Clock;
use tokio_util::sync::CancellationToken;

use super::{
    commands::{free_port, text},
    files::Files,
    program::Program,
    readiness::{Serving, TIMEOUT, ready},
    tail,
};
use crate::{cluster::ClusterError, write_log::WriteLogSender};

/// kube-apiserver with its etcd, on fixed ports. Both can be stopped and restarted with their data. Both are killed on
/// drop.
#[derive(Debug)]
pub struct ControlPlane {
    assets: PathBuf,
    files: Files,
    authorization: Authorization,
    /// Further flags of the API server. A flag that is given twice has the last value.
    flags: Vec<String>,
    port: u16,
    client: String,
    peer: String,
    /// Declared before etcd, so that it is dropped first.
    server: Option<Program>,
    etcd: Option<Program>,
}

/// Authorization mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorization {
    /// All requests are allowed.
    AlwaysAllow,
    /// Roles and bindings decide. The users of the kubeconfigs are administrators.
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
    /// Starts `etcd` and `kube-apiserver` from the directory `assets` (see `KUBEBUILDER_ASSETS`). All files are written to
    /// `folder`, which must exist. Call [`ready`](Self::ready) before sending requests.
    pub fn start(assets: &Path, folder: &Path, authorization: Authorization) -> Result<Self, ClusterError> {
        Self::start_with(assets, folder, authorization, Vec::new())
    }

    /// As [`start`](Self::start), with further flags of the API server. They override the flags of this type.
    pub fn start_with(
        assets: &Path,
        folder: &Path,
        authorization: Authorization,
        flags: Vec<String>,
    ) -> Result<Self, ClusterError> {
        let files = Files::new(folder);
        files.write_for_server()?;
        let port = free_port()?;
        files.write_kubeconfigs(&format!("https://127.0.0.1:{port}"), true)?;
        let (client, peer) = (free_port()?, free_port()?);
        let mut plane = Self {
            assets: assets.to_owned(),
            files,
            authorization,
            flags,
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

    /// Kubeconfig of the user `admin` or `manager`. The audit log contains the writes of `manager` and of service accounts.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.files.kubeconfig(user)
    }

    /// URL of the API server.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The API server process, if it runs.
    pub fn server(&self) -> Option<&Program> {
        self.server.as_ref()
    }

    /// The etcd process, if it runs.
    pub fn etcd(&self) -> Option<&Program> {
        self.etcd.as_ref()
    }

    /// Sends the entries of the audit log to `log` until `stop` is cancelled.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn follow(&self, log: WriteLogSender, stop: CancellationToken) {
        tail::follow(self.files.audit_log(), log, stop);
    }

    /// Waits until the API server is ready.
    pub async fn ready(&mut self, api: &ApiClient, clock: &dyn Clock) -> Result<(), ClusterError> {
        ready(self, api, clock, TIMEOUT).await
    }

    /// Kills the API server.
    pub async fn kill_server(&mut self) -> Result<(), ClusterError> {
        match self.server.take() {
            Some(server) => server.kill(TIMEOUT).await,
            None => Ok(()),
        }
    }

    /// Starts the API server with the same port and etcd.
    pub fn start_server(&mut self) -> Result<(), ClusterError> {
        let path = |name: &str| text(&self.files.path(name));
        let mut flags = vec![
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
            // No controller creates the default service account that this plugin requires.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--audit-policy-file={}", path("audit.yaml")),
            format!("--audit-log-path={}", text(&self.files.audit_log())),
            // No log rotation.
            "--audit-log-maxsize=2000".to_owned(),
            "--max-requests-inflight=4000".to_owned(),
            "--max-mutating-requests-inflight=2000".to_owned(),
        ];
        flags.extend_from_slice(&self.flags);
        self.server = Some(self.program("kube-apiserver", &flags)?);
        Ok(())
    }

    /// Sets the further flags of the API server. They have effect from its next start.
    pub fn set_flags(&mut self, flags: Vec<String>) {
        self.flags = flags;
    }

    /// URL of etcd's clients.
    pub fn etcd_url(&self) -> &str {
        &self.client
    }

    /// Directory of etcd's data.
    pub fn etcd_folder(&self) -> PathBuf {
        self.files.path("etcd")
    }

    /// Kills etcd.
    pub async fn kill_etcd(&mut self) -> Result<(), ClusterError> {
        match self.etcd.take() {
            Some(etcd) => etcd.kill(TIMEOUT).await,
            None => Ok(()),
        }
    }

    /// Starts etcd with the same ports and data directory.
    pub fn start_etcd(&mut self) -> Result<(), ClusterError> {
        let Self { client, peer, .. } = &*self;
        let flags = [
            format!("--data-dir={}", text(&self.etcd_folder())),
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

    fn program(&self, name: &'static str, flags: &[String]) -> Result<Program, ClusterError> {
        Program::run(name, self.assets.join(name).as_os_str(), flags, &self.files.log(name))
    }
}

impl Serving for ControlPlane {
    fn check_running(&mut self) -> Result<(), ClusterError> {
        self.etcd.as_mut().map_or(Ok(()), Program::check_running)?;
        self.server.as_mut().map_or(Ok(()), Program::check_running)
    }

    fn log_tail(&self) -> String {
        self.server.as_ref().map(Program::log_tail).unwrap_or_default()
    }
}
