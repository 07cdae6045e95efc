//! The API server of the runs: etcd and kube-apiserver, or the embedded API server.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use kcm_apiserver::ApiServerConfig;
use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, Request, Server, UserAgent};
use kcm_clock::RealClock;
use kcm_stories::{
    ClusterError, Entry, WriteLog,
    external::{Authorization, ControlPlane, EmbeddedServer},
};
use kcm_testkit::{CertificateAuthority, Identity};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    error::{SuiteError, failed},
    proxy::http::Backend,
};

/// User of the managers, that of upstream's manager in a cluster.
pub(crate) const MANAGER: &str = "system:kube-controller-manager";
/// User agent of the suite's clients.
pub(crate) const SUITE: &str = "beside-upstream";
/// Host name of the API server.
pub(crate) const HOST: &str = "apiserver.test";

/// Audits all requests of the managers: completed ones, and the start of watches.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  users: ['system:kube-controller-manager']
  verbs: [watch]
  omitStages: [RequestReceived, ResponseComplete]
- level: Metadata
  users: ['system:kube-controller-manager']
  omitStages: [RequestReceived, ResponseStarted]
- level: None
";

/// API server with the suite's client and CA.
pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) api: ApiClient,
    pub(crate) log: WriteLog,
    pub(crate) authority: CertificateAuthority,
    pub(crate) clock: RealClock,
    flags: Vec<String>,
    folder: TempDir,
    runs: usize,
    _stop: DropGuard,
}

/// Running API server.
pub(crate) enum ApiServer {
    Embedded(EmbeddedServer),
    Real(Box<ControlPlane>),
}

impl Cluster {
    /// Starts etcd and kube-apiserver from `assets`, or the embedded API server.
    pub(crate) async fn start(assets: Option<&Path>) -> Result<Self, SuiteError> {
        let clock = RealClock::new();
        let folder = tempfile::tempdir().map_err(failed("temporary directory"))?;
        let authority = CertificateAuthority::new(SUITE);
        let (sender, log) = WriteLog::new(Arc::new(clock.clone()));
        let stop = CancellationToken::new();
        let mut flags = Vec::new();
        let (server, access) = match assets {
            None => {
                let server = EmbeddedServer::start(folder.path().join("data"), move || {
                    let sender = sender.clone();
                    let audit = move |event: &kcm_apiserver::AuditEvent| {
                        if !event.user_agent.starts_with(SUITE) {
                            sender.send(Entry::from(event));
                        }
                    };
                    ApiServerConfig { audit: Some(Arc::new(audit)), ..ApiServerConfig::default() }
                });
                let server = server.await?;
                let access = Server::Master(server.url());
                (ApiServer::Embedded(server), access)
            }
            Some(assets) => {
                let file = |name: &str| folder.path().join(name).display().to_string();
                let Identity { certificate, key, .. } = server_identity(&authority);
                write(&folder.path().join("server.crt"), &certificate)?;
                write(&folder.path().join("server.key"), &key)?;
                write(&folder.path().join("suite-audit.yaml"), AUDIT_POLICY)?;
                flags = vec![
                    format!("--tls-cert-file={}", file("server.crt")),
                    format!("--tls-private-key-file={}", file("server.key")),
                    format!("--audit-policy-file={}", file("suite-audit.yaml")),
                ];
                let plane = ControlPlane::start_with(
                    assets,
                    folder.path(),
                    Authorization::AlwaysAllow,
                    flags.clone(),
                )?;
                plane.follow(sender, stop.clone());
                let access = Server::Kubeconfig { path: plane.kubeconfig("admin"), master: None };
                (ApiServer::Real(Box::new(plane)), access)
            }
        };
        let options = ClientOptions::new(UserAgent::new(SUITE, "v0", ""), Arc::new(clock.clone()));
        let api = ClientFactory::connect(access, options).await?.client("suite", RateLimit::UNLIMITED);
        let stop = stop.drop_guard();
        let mut cluster = Self { server, api, log, authority, clock, flags, folder, runs: 0, _stop: stop };
        cluster.ready().await?;
        Ok(cluster)
    }

    /// Waits until the API server is ready.
    pub(crate) async fn ready(&mut self) -> Result<(), SuiteError> {
        if let ApiServer::Real(plane) = &mut self.server {
            plane.ready(&self.api, &self.clock).await?;
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
        self.create("/api/v1/namespaces", &namespace).await
    }

    /// Programs of the control plane. An error with the embedded API server.
    pub(crate) fn plane(&mut self) -> Result<&mut ControlPlane, SuiteError> {
        match &mut self.server {
            ApiServer::Real(plane) => Ok(plane),
            ApiServer::Embedded(_) => {
                let source = std::io::ErrorKind::Unsupported.into();
                Err(SuiteError::Io { what: "the fault requires KUBEBUILDER_ASSETS".to_owned(), source })
            }
        }
    }

    /// Restarts the API server with further flags.
    pub(crate) async fn restart_with(&mut self, more: &[&str]) -> Result<(), SuiteError> {
        let flags = self.flags.iter().cloned().chain(more.iter().map(|flag| (*flag).to_owned())).collect();
        let plane = self.plane()?;
        plane.kill_server().await?;
        plane.set_flags(flags);
        plane.start_server()?;
        self.ready().await
    }

    /// Address of the API server.
    pub(crate) fn address(&self) -> Result<SocketAddr, SuiteError> {
        match &self.server {
            ApiServer::Embedded(server) => Ok(server.address()),
            ApiServer::Real(plane) => {
                let url = plane.url();
                let address = url.trim_start_matches("https://");
                address.parse().map_err(|_| failed(url.clone())(std::io::ErrorKind::InvalidInput.into()))
            }
        }
    }

    /// The API server as a backend of the HTTP proxy.
    pub(crate) fn backend(&self) -> Result<Backend, SuiteError> {
        let tls = match &self.server {
            ApiServer::Embedded(_) => None,
            ApiServer::Real(_) => {
                let mut roots = rustls::RootCertStore::empty();
                let authority = CertificateDer::from_pem_slice(self.authority.pem().as_bytes());
                roots.add(authority.map_err(|error| rustls::Error::General(error.to_string()))?)?;
                let mut tls =
                    rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
                tls.alpn_protocols = vec![b"h2".to_vec()];
                Some(Arc::new(tls))
            }
        };
        Ok(Backend { address: self.address()?, tls })
    }

    /// `true` for the embedded API server.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self.server, ApiServer::Embedded(_))
    }

    /// Number of the next run.
    pub(crate) fn next_run(&mut self) -> usize {
        self.runs += 1;
        self.runs
    }

    /// Folder for files.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Creates an object. It may exist.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<(), SuiteError> {
        match self.api.send(&Request::create(path, object.to_string())).await {
            Err(error) if !error.is_already_exists() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Deletes an object. It may be gone.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), SuiteError> {
        match self.api.send(&Request::delete(path, Vec::new())).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Deletes all objects of the workload in a namespace.
    pub(crate) async fn clear(&self, namespace: &str) -> Result<(), SuiteError> {
        let immediately = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}).to_string();
        for resource in [
            "apis/apps/v1/namespaces/{}/deployments",
            "apis/apps/v1/namespaces/{}/replicasets",
            "api/v1/namespaces/{}/pods",
        ] {
            let path = format!("/{}", resource.replace("{}", namespace));
            self.api.send(&Request::delete(path, immediately.clone())).await?;
        }
        Ok(())
    }
}

/// Certificate of the API server for its addresses and its name.
pub(crate) fn server_identity(authority: &CertificateAuthority) -> Identity {
    authority.server(&["127.0.0.1", "127.0.0.2", "localhost", HOST])
}

/// TLS of a server.
pub(crate) fn server_tls(identity: &Identity) -> Result<rustls::ServerConfig, SuiteError> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(identity.key.as_bytes());
    let key = PrivateKeyDer::from(key.map_err(|error| rustls::Error::General(error.to_string()))?);
    let certificates = vec![CertificateDer::from(identity.der.clone())];
    let mut tls =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

/// Writes a file.
pub(crate) fn write(file: &Path, text: &str) -> Result<(), SuiteError> {
    fs::write(file, text).map_err(failed(file.display().to_string()))
}

/// Converts an error of a program.
pub(crate) fn not_running(program: &'static str) -> SuiteError {
    let (status, log) = ("not running".to_owned(), String::new());
    SuiteError::Cluster(ClusterError::Exited { program, status, log })
}
