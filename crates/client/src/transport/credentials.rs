//! Where the API server is and who we are there, and whether either has changed.

use std::{
    collections::hash_map::DefaultHasher,
    fmt,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
};

use kube_client::{
    Config,
    config::{AuthInfo, Cluster, Kubeconfig, KubeconfigError},
};
use thiserror::Error;

use super::server;
use crate::failure;

/// Where to find the API server and the credentials for it.
///
/// Upstream counterpart: `clientcmd.BuildConfigFromFlags`. The environment is not asked, except inside a
/// cluster for the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// In a kubeconfig file; its current context counts.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// An address to use instead of the one in the file.
        master: Option<String>,
    },
    /// At this address, without credentials.
    Master(String),
    /// In the cluster that this process runs in, as the service account of its pod.
    InCluster,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig { path, .. } => write!(f, "kubeconfig {path:?}"),
            Self::Master(address) => write!(f, "master {address:?}"),
            Self::InCluster => f.write_str("in-cluster configuration"),
        }
    }
}

/// Why there is no way to the API server.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The configuration, or a file that it names, cannot be read or understood.
    #[error("{server}: {cause}")]
    Broken {
        /// Where it is.
        server: String,
        /// What is wrong, in one line, without secrets.
        cause: String,
    },
    /// The configuration asks for something that is not built in.
    #[error("{server}: {what} is not supported")]
    Unsupported {
        /// Where it is.
        server: String,
        /// What it asks for.
        what: &'static str,
    },
}

impl ConfigError {
    pub(super) fn broken(server: &Server, cause: impl fmt::Display) -> Self {
        let cause = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Broken { server: server.to_string(), cause }
    }

    pub(super) fn caused(server: &Server, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::broken(server, failure::describe(error))
    }
}

/// What was found at a [`Server`], and prints of the files it came from, to tell when they change.
#[derive(Clone)]
pub(super) struct Credentials {
    /// The token file's content is in it already, the client certificate's is not.
    pub(super) config: Config,
    /// Of what a connection depends on.
    pub(super) connection_print: u64,
    /// Of what a request depends on, beyond that.
    pub(super) request_print: u64,
}

impl Credentials {
    /// Reads everything anew. Blocks on files.
    ///
    /// Prints are taken before content is used: what changes in between is noticed the next time.
    pub(super) fn load(server: &Server) -> Result<Self, ConfigError> {
        match server {
            Server::Kubeconfig { path, master } => Self::from_kubeconfig(server, path, master.as_deref()),
            Server::Master(address) => {
                let url =
                    server::parse(address, false).map_err(|cause| ConfigError::broken(server, cause))?;
                Self::finish(server, Config::new(url), 0, None)
            }
            Server::InCluster => {
                let mut config = Config::incluster().map_err(|error| ConfigError::caused(server, &error))?;
                // Taken, so that changes of the file are noticed here, by the clock that we were given.
                let authority = config.root_cert_file.take();
                Self::finish(server, config, 0, authority)
            }
        }
    }

    /// The same server, without a word on who asks.
    pub(super) fn anonymous(mut self) -> Self {
        self.config.auth_info = AuthInfo::default();
        self
    }

    fn from_kubeconfig(server: &Server, path: &Path, master: Option<&str>) -> Result<Self, ConfigError> {
        let text = std::fs::read(path).map_err(|error| ConfigError::broken(server, error))?;
        let kubeconfig = Kubeconfig::read_from(path).map_err(|error| unreadable(server, &error))?;
        let cluster = current_cluster(&kubeconfig);
        if cluster.is_some_and(|cluster| cluster.proxy_url.is_some()) {
            return Err(ConfigError::Unsupported { server: server.to_string(), what: "proxy-url" });
        }
        let authority = cluster.and_then(|cluster| cluster.certificate_authority.clone()).map(PathBuf::from);
        let mut config = Config::try_from(kubeconfig).map_err(|error| unreadable(server, &error))?;
        let has_tls = config.root_cert.is_some() || config.auth_info.client_certificate.is_some();
        let address = master.map_or_else(|| config.cluster_url.to_string(), str::to_owned);
        config.cluster_url =
            server::parse(&address, has_tls).map_err(|cause| ConfigError::broken(server, cause))?;
        Self::finish(server, config, print(&text), authority)
    }

    fn finish(
        server: &Server,
        mut config: Config,
        base_print: u64,
        authority: Option<PathBuf>,
    ) -> Result<Self, ConfigError> {
        // DEVIATION: upstream heeds HTTPS_PROXY and NO_PROXY here. A manager runs beside its API server.
        config.proxy_url = None;
        let auth = &mut config.auth_info;
        // Nothing could be trusted then, and no waiting would help.
        if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            return Err(match &authority {
                Some(path) => ConfigError::broken(server, format_args!("{path:?}: no certificate in it")),
                None => ConfigError::broken(server, "no certificate in certificate-authority-data"),
            });
        }
        let mut connection = DefaultHasher::new();
        base_print.hash(&mut connection);
        let named = [auth.client_certificate.clone(), auth.client_key.clone()];
        for path in authority.into_iter().chain(named.into_iter().flatten().map(PathBuf::from)) {
            read(server, &path)?.hash(&mut connection);
        }
        let mut request = DefaultHasher::new();
        base_print.hash(&mut request);
        if let Some(path) = auth.token_file.take() {
            let token = read(server, Path::new(&path))?;
            token.hash(&mut request);
            let token = String::from_utf8(token)
                .map_err(|_| ConfigError::broken(server, format_args!("token file {path:?} is not text")))?;
            // The file wins over a token in the kubeconfig, as upstream; a line end is no part of it.
            let token = token.trim();
            if token.is_empty() {
                return Err(ConfigError::broken(server, format_args!("token file {path:?} is empty")));
            }
            auth.token = Some(token.to_owned().into());
        }
        Ok(Self { config, connection_print: connection.finish(), request_print: request.finish() })
    }
}

fn read(server: &Server, path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|error| ConfigError::broken(server, format_args!("{path:?}: {error}")))
}

fn print(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn current_cluster(kubeconfig: &Kubeconfig) -> Option<&Cluster> {
    let name = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == *name)?.context.as_ref()?;
    kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()
}

/// A YAML error shows the lines around the fault, and with them what may be a token: only the place is told.
fn unreadable(server: &Server, error: &KubeconfigError) -> ConfigError {
    match error {
        KubeconfigError::Parse(error) => {
            let place = error.location().map(|at| format!(" at line {} column {}", at.line(), at.column()));
            ConfigError::broken(server, format_args!("not valid YAML{}", place.unwrap_or_default()))
        }
        other => ConfigError::caused(server, other),
    }
}
