//! Address of the API server and credentials, and detection of changes.

use std::{
    collections::hash_map::DefaultHasher,
    fmt,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderValue, Uri};
use kube_client::{
    Config,
    config::{AuthInfo, Cluster, Kubeconfig, KubeconfigError},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use secrecy::ExposeSecret;
use thiserror::Error;

use super::{
    exec::{ExecCredential, ExecPlugin},
    overrides::ConfigOverrides,
    proxy::{Proxy, ProxyEnvironment},
    server,
};
use crate::causes;

/// Directory with the files of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Source of the API server's address and of the credentials.
///
/// Upstream counterpart: `clientcmd.BuildConfigFromFlags`. Environment variables are read only for the address in a
/// cluster. Proxy variables are passed as a [`ProxyEnvironment`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// The current context of a kubeconfig file.
    Kubeconfig {
        /// Path of the file.
        path: PathBuf,
        /// Address that overrides the one in the file.
        master: Option<String>,
    },
    /// Merged kubeconfig files and overrides, as `kubectl` uses them.
    ///
    /// Upstream counterpart: `clientcmd.NewNonInteractiveDeferredLoadingClientConfig`.
    KubeconfigFiles {
        /// Paths of the files. The first file that sets a value takes precedence. Missing files are ignored.
        paths: Vec<PathBuf>,
        /// Values that take precedence over those of the files.
        overrides: Box<ConfigOverrides>,
    },
    /// An address, without credentials.
    Master(String),
    /// The service account of the pod that this process runs in.
    InCluster,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig { path, .. } => write!(f, "kubeconfig {path:?}"),
            Self::KubeconfigFiles { paths, .. } => {
                let paths: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
                write!(f, "kubeconfig {:?}", paths.join(":"))
            }
            Self::Master(address) => write!(f, "master {address:?}"),
            Self::InCluster => f.write_str("in-cluster configuration"),
        }
    }
}

/// Invalid client configuration.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ClientConfigError {
    /// The configuration or one of its files cannot be read or is invalid.
    #[error("{server}: {cause}")]
    Broken {
        /// Source of the configuration.
        server: String,
        /// Cause, in one line and without secrets.
        cause: String,
    },
    /// The configuration uses a feature that is not supported.
    #[error("{server}: {what} is not supported")]
    Unsupported {
        /// Source of the configuration.
        server: String,
        /// The feature.
        what: &'static str,
    },
}

impl ClientConfigError {
    pub(super) fn broken(server: &Server, cause: impl fmt::Display) -> Self {
        let cause = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Broken { server: server.to_string(), cause }
    }

    pub(super) fn caused(server: &Server, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::broken(server, causes::describe(error))
    }
}

/// Configuration read from a [`Server`], with hashes that detect changes.
#[derive(Clone)]
pub(super) struct Credentials {
    /// Contains the token of a token file, but not the client certificate of a file.
    pub(super) config: Config,
    /// Exec plugin that issues further credentials, which are not part of `config`.
    pub(super) plugin: Option<Arc<ExecPlugin>>,
    pub(super) proxy: Option<Arc<Proxy>>,
    /// Reason for which the CA of a pod's service account is not used.
    pub(super) missing_authority: Option<String>,
    /// File that contains the token.
    token_file: Option<String>,
    hashes: Hashes,
}

/// Hashes of the parts of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hashes {
    base: u64,
    authority: u64,
    /// Of the files with the client certificate and its key.
    identity: u64,
    token: u64,
}

impl Credentials {
    /// Reads all files. Blocks.
    ///
    /// Hashes of files that are read again for connections are computed before, so a change in between is detected next time.
    pub(super) fn load(server: &Server, environment: &ProxyEnvironment) -> Result<Self, ClientConfigError> {
        match server {
            Server::Kubeconfig { path, master } => {
                let text = std::fs::read(path).map_err(|error| ClientConfigError::broken(server, error))?;
                let kubeconfig = read_kubeconfig(server, path)?;
                Self::from_kubeconfig(server, environment, kubeconfig, hash_of(&text), master.as_deref())
            }
            Server::KubeconfigFiles { paths, overrides } => {
                let (mut kubeconfig, texts) = merged(server, paths)?;
                if texts.is_empty() && overrides.server.is_none() {
                    return Err(ClientConfigError::broken(server, "no kubeconfig file found"));
                }
                overrides.apply(&mut kubeconfig).map_err(|error| ClientConfigError::broken(server, error))?;
                let master = overrides.server.as_deref();
                Self::from_kubeconfig(server, environment, kubeconfig, hash_of(&texts), master)
            }
            Server::Master(address) => {
                let url = server::parse(address, false)
                    .map_err(|cause| ClientConfigError::broken(server, cause))?;
                let proxy = from_environment(server, environment, &url)?;
                Self::finish(server, proxy, Config::new(url), 0, None)
            }
            Server::InCluster => {
                let variable = |name: &str| std::env::var(name).ok();
                let (config, missing_authority) = in_cluster(Path::new(SERVICE_ACCOUNT), variable)
                    .map_err(|cause| ClientConfigError::broken(server, cause))?;
                let proxy = from_environment(server, environment, &config.cluster_url)?;
                Ok(Self { missing_authority, ..Self::finish(server, proxy, config, 0, None)? })
            }
        }
    }

    /// Removes the credentials.
    pub(super) fn anonymous(mut self) -> Self {
        self.config.auth_info = AuthInfo::default();
        (self.plugin, self.token_file) = (None, None);
        (self.hashes.identity, self.hashes.token) = (0, 0);
        self
    }

    /// Returns the configuration with the credentials of the plugin.
    pub(super) fn with_issued(&self, issued: Option<&ExecCredential>) -> Config {
        let mut config = self.config.clone();
        if let Some(issued) = issued {
            let auth = &mut config.auth_info;
            auth.token = issued.token.clone().map(Into::into);
            if let Some(identity) = &issued.identity {
                auth.client_certificate_data = Some(BASE64_STANDARD.encode(&identity.certificate));
                auth.client_key_data = Some(BASE64_STANDARD.encode(&identity.key).into());
            }
        }
        config
    }

    fn from_kubeconfig(
        server: &Server,
        environment: &ProxyEnvironment,
        mut kubeconfig: Kubeconfig,
        base_hash: u64,
        master: Option<&str>,
    ) -> Result<Self, ClientConfigError> {
        let cluster = current_cluster(&kubeconfig).cloned().unwrap_or_default();
        for named in &mut kubeconfig.clusters {
            // kube-client reads environment variables if a cluster has none.
            if let Some(cluster) = &mut named.cluster {
                cluster.proxy_url = Some("http://unused".to_owned());
            }
        }
        let mut config = Config::try_from(kubeconfig).map_err(|error| unreadable(server, &error))?;
        let has_tls = config.root_cert.is_some() || config.auth_info.client_certificate.is_some();
        let address = master.map_or_else(|| config.cluster_url.to_string(), str::to_owned);
        config.cluster_url =
            server::parse(&address, has_tls).map_err(|cause| ClientConfigError::broken(server, cause))?;
        let exec = config.auth_info.exec.take();
        check_user(server, &mut config.auth_info)?;
        let has_own = has_credentials(&config.auth_info);
        let proxy = match cluster.proxy_url.as_deref().filter(|url| !url.is_empty()) {
            Some(url) => Proxy::parse(url).map(Some).map_err(|reason| format!("proxy-url: {reason}")),
            None => environment.proxy_for(&config.cluster_url),
        };
        let proxy = proxy.map_err(|error| ClientConfigError::broken(server, error))?;
        let authority = cluster.certificate_authority.as_deref().map(Path::new);
        let mut this = Self::finish(server, proxy, config, base_hash, authority)?;
        // As upstream, other credentials take precedence.
        if let Some(exec) = exec.filter(|_| !has_own) {
            let address = server::show(&this.config.cluster_url);
            let plugin = ExecPlugin::new(exec, &cluster, &address);
            this.plugin = Some(Arc::new(plugin.map_err(|reason| ClientConfigError::broken(server, reason))?));
        }
        Ok(this)
    }

    fn finish(
        server: &Server,
        proxy: Option<Proxy>,
        mut config: Config,
        base_hash: u64,
        authority: Option<&Path>,
    ) -> Result<Self, ClientConfigError> {
        config.proxy_url = None;
        let auth = &mut config.auth_info;
        // No server certificate could be verified.
        if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            return Err(match authority {
                Some(path) => {
                    ClientConfigError::broken(server, format_args!("{path:?}: no certificate in it"))
                }
                None => ClientConfigError::broken(server, "no certificate in certificate-authority-data"),
            });
        }
        let mut hashes = Hashes {
            base: base_hash,
            authority: hash_of(&config.root_cert),
            identity: identity_hash(server, auth)?,
            token: 0,
        };
        let token_file = auth.token_file.take();
        if let Some(path) = &token_file {
            // As upstream, the file takes precedence over a token in the kubeconfig.
            let token = read_token(server, path)?;
            hashes.token = hash_of(&token);
            auth.token = Some(token.into());
        } else if let Some(token) = &auth.token {
            check_token(server, token.expose_secret())?;
        }
        let proxy = proxy.map(Arc::new);
        Ok(Self { config, plugin: None, proxy, missing_authority: None, token_file, hashes })
    }

    /// Reads the token file of this configuration again. A token that cannot be read is kept. Blocks.
    ///
    /// Upstream counterpart: `transport.NewCachedFileTokenSource`.
    pub(super) fn with_present_token(&self, server: &Server) -> Self {
        let mut this = self.clone();
        if let Some(token) = self.token_file.as_deref().and_then(|path| read_token(server, path).ok()) {
            this.hashes.token = hash_of(&token);
            this.config.auth_info.token = Some(token.into());
        }
        this
    }

    /// Reads the files with the token and the client certificate of this configuration again. A part that cannot be read is kept.
    /// Blocks.
    ///
    /// Upstream counterpart: `transport.NewCachedFileTokenSource` and `dynamicClientCert`.
    pub(super) fn with_present_files(&self, server: &Server) -> Self {
        let mut this = self.with_present_token(server);
        if let Ok(hash) = identity_hash(server, &self.config.auth_info) {
            this.hashes.identity = hash;
        }
        this
    }

    /// Checks that these credentials can replace `current`.
    pub(super) fn check_successor_of(
        &self,
        current: &Self,
        server: &Server,
    ) -> Result<(), ClientConfigError> {
        if self.config.cluster_url != current.config.cluster_url {
            // The caches contain objects of the old server.
            let error = "it names another API server now; restart to go there";
            return Err(ClientConfigError::broken(server, error));
        }
        match &self.missing_authority {
            Some(cause) if current.missing_authority.is_none() => {
                Err(ClientConfigError::broken(server, cause))
            }
            _ => Ok(()),
        }
    }

    /// `true` if requests and connections are those of `other`.
    pub(super) fn has_same_contents(&self, other: &Self) -> bool {
        self.hashes == other.hashes
    }

    /// `true` if requests can use the connections of `other`.
    pub(super) fn has_same_connections(&self, other: &Self) -> bool {
        self.hashes == Hashes { token: self.hashes.token, ..other.hashes }
    }
}

fn check_token(server: &Server, token: &str) -> Result<(), ClientConfigError> {
    let header = HeaderValue::from_str(token);
    header.map(drop).map_err(|_| ClientConfigError::broken(server, "the token cannot be sent in a header"))
}

/// Reads a token. As upstream, white space around it is removed.
fn read_token(server: &Server, path: &str) -> Result<String, ClientConfigError> {
    let token = String::from_utf8(read(server, Path::new(path))?)
        .map_err(|_| ClientConfigError::broken(server, format_args!("token file {path:?} is not text")))?;
    let token = token.trim();
    if token.is_empty() {
        return Err(ClientConfigError::broken(server, format_args!("token file {path:?} is empty")));
    }
    check_token(server, token)?;
    Ok(token.to_owned())
}

/// Returns the hash of the files with the client certificate and its key.
fn identity_hash(server: &Server, auth: &AuthInfo) -> Result<u64, ClientConfigError> {
    let paths = [&auth.client_certificate, &auth.client_key].into_iter().flatten();
    let files = paths.map(|path| read(server, Path::new(path))).collect::<Result<Vec<_>, _>>()?;
    Ok(if files.is_empty() { 0 } else { hash_of(&files) })
}

/// Returns the configuration of a pod with the service account in `directory`, and the reason for which its CA is not used, if
/// there is one. Without it, the CAs of the operating system are trusted, as upstream.
///
/// Upstream counterpart: `rest.InClusterConfig`.
fn in_cluster(
    directory: &Path,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(Config, Option<String>), String> {
    let [host, port] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"]
        .map(|name| variable(name).filter(|value| !value.is_empty()));
    let (Some(host), Some(port)) = (host, port) else {
        return Err("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined".to_owned());
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let mut config = Config::new(server::parse(&format!("https://{host}:{port}"), true)?);
    config.auth_info.token_file = Some(directory.join("token").to_string_lossy().into_owned());
    let authority = directory.join("ca.crt");
    match certificates(&authority) {
        Ok(certificates) => {
            config.root_cert = Some(certificates);
            Ok((config, None))
        }
        Err(cause) => Ok((config, Some(format!("{authority:?}: {cause}")))),
    }
}

/// Reads the certificates of a file.
fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    let certificates = CertificateDer::pem_slice_iter(&pem).map(|one| one.map(|one| one.to_vec()));
    let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    if certificates.is_empty() { Err("no certificate in it".to_owned()) } else { Ok(certificates) }
}

/// Reads a kubeconfig. As upstream, an empty path of a file is no value.
fn read_kubeconfig(server: &Server, path: &Path) -> Result<Kubeconfig, ClientConfigError> {
    let mut kubeconfig = Kubeconfig::read_from(path).map_err(|error| unreadable(server, &error))?;
    // kube-client has made it absolute: the directory of the kubeconfig.
    let directory = path.parent().and_then(|directory| directory.join("").to_str().map(str::to_owned));
    let is_empty = |text: &String| text.is_empty() || directory.as_ref() == Some(text);
    let clusters = kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut());
    let users = kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut());
    let of_clusters = clusters
        .flat_map(|cluster| [&mut cluster.certificate_authority, &mut cluster.certificate_authority_data]);
    let of_users =
        users.flat_map(|user| [&mut user.client_certificate, &mut user.client_key, &mut user.token_file]);
    of_clusters.chain(of_users).for_each(|text| *text = text.take().filter(|text| !is_empty(text)));
    Ok(kubeconfig)
}

fn read(server: &Server, path: &Path) -> Result<Vec<u8>, ClientConfigError> {
    std::fs::read(path).map_err(|error| ClientConfigError::broken(server, format_args!("{path:?}: {error}")))
}

fn hash_of(content: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

fn from_environment(
    server: &Server,
    environment: &ProxyEnvironment,
    address: &Uri,
) -> Result<Option<Proxy>, ClientConfigError> {
    environment.proxy_for(address).map_err(|error| ClientConfigError::broken(server, error))
}

/// `true` if there are credentials that take precedence over a plugin, as upstream.
fn has_credentials(auth: &AuthInfo) -> bool {
    let has_token = auth.token.is_some() || auth.token_file.is_some();
    let has_password = auth.username.is_some() || auth.password.is_some();
    let has_certificate = auth.client_certificate.is_some() || auth.client_certificate_data.is_some();
    has_token || has_password || has_certificate
}

/// Rejects what upstream rejects, and what is not supported.
fn check_user(server: &Server, auth: &mut AuthInfo) -> Result<(), ClientConfigError> {
    if auth.auth_provider.is_some() {
        // DEVIATION: upstream supports the provider `oidc`.
        return Err(ClientConfigError::Unsupported { server: server.to_string(), what: "auth-provider" });
    }
    // As upstream, an empty text is no value.
    for text in [&mut auth.username, &mut auth.impersonate, &mut auth.impersonate_uid] {
        *text = text.take().filter(|text| !text.is_empty());
    }
    for secret in [&mut auth.password, &mut auth.token, &mut auth.client_key_data] {
        *secret = secret.take().filter(|secret| !secret.expose_secret().is_empty());
    }
    auth.client_certificate_data = auth.client_certificate_data.take().filter(|data| !data.is_empty());
    let has_groups = auth.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty());
    let has_extra = auth.impersonate_user_extra.as_ref().is_some_and(|extra| !extra.is_empty());
    if auth.impersonate.is_none() && (auth.impersonate_uid.is_some() || has_groups || has_extra) {
        let error = "requesting uid, groups or user-extra without impersonating a user";
        return Err(ClientConfigError::broken(server, error));
    }
    Ok(())
}

fn current_cluster(kubeconfig: &Kubeconfig) -> Option<&Cluster> {
    let name = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == *name)?.context.as_ref()?;
    kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()
}

/// Reads and merges kubeconfig files. Also returns their texts.
fn merged(server: &Server, paths: &[PathBuf]) -> Result<(Kubeconfig, Vec<u8>), ClientConfigError> {
    let (mut merged, mut texts) = (Kubeconfig::default(), Vec::new());
    for path in paths {
        match std::fs::read(path) {
            Ok(text) => texts.extend(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(ClientConfigError::broken(server, format_args!("{path:?}: {error}"))),
        }
        let next = read_kubeconfig(server, path)?;
        merged = merged.merge(next).map_err(|error| unreadable(server, &error))?;
    }
    Ok((merged, texts))
}

/// Returns the error of an invalid kubeconfig. YAML errors quote the file, which may contain a token, so only the
/// position is used.
fn unreadable(server: &Server, error: &KubeconfigError) -> ClientConfigError {
    match error {
        KubeconfigError::Parse(error) => {
            let place = error.location().map(|at| format!(" at line {} column {}", at.line(), at.column()));
            ClientConfigError::broken(server, format_args!("not valid YAML{}", place.unwrap_or_default()))
        }
        other => ClientConfigError::caused(server, other),
    }
}

#[cfg(test)]
mod tests {
    use kcm_testkit::CertificateAuthority;

    use super::*;

    fn variable(name: &str) -> Option<String> {
        let value = match name {
            "KUBERNETES_SERVICE_HOST" => "fd00::1",
            "KUBERNETES_SERVICE_PORT" => "6443",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn anonymous_credentials_read_no_files() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        let write_files = |text: &str| ["t", "c", "k"].into_iter().for_each(|name| write(name, text));
        write(
            "kubeconfig",
            "current-context: c\n\
             contexts: [{name: c, context: {cluster: k, user: u}}]\n\
             clusters: [{name: k, cluster: {server: 'https://127.0.0.1'}}]\n\
             users: [{name: u, user: {tokenFile: t, client-certificate: c, client-key: k}}]\n",
        );
        write_files("old");
        let server = Server::Kubeconfig { path: directory.path().join("kubeconfig"), master: None };
        let credentials = Credentials::load(&server, &ProxyEnvironment::default()).unwrap();
        let anonymous = credentials.clone().anonymous();
        write_files("new");
        let [present, of_anonymous] = [&credentials, &anonymous].map(|one| one.with_present_files(&server));
        assert!(!present.has_same_contents(&credentials) && !present.has_same_connections(&credentials));
        assert!(of_anonymous.has_same_contents(&anonymous) && of_anonymous.config.auth_info.token.is_none());
    }

    #[test]
    fn pod_requires_only_variables_and_a_token() {
        let directory = tempfile::tempdir().unwrap();
        let (config, missing) = in_cluster(directory.path(), variable).unwrap();
        assert_eq!(server::show(&config.cluster_url), "https://[fd00::1]:6443");
        assert_eq!(config.auth_info.token_file.as_deref(), directory.path().join("token").to_str());
        assert!(config.root_cert.is_none() && missing.unwrap().contains("No such file"));

        std::fs::write(directory.path().join("ca.crt"), CertificateAuthority::new("ca").pem()).unwrap();
        let (config, missing) = in_cluster(directory.path(), variable).unwrap();
        assert_eq!(config.root_cert.map(|certificates| certificates.len()), Some(1));
        assert_eq!(missing, None);

        let error = in_cluster(directory.path(), |name| variable(name).filter(|_| name.ends_with("PORT")));
        assert!(error.unwrap_err().ends_with("must be defined"));
    }
}
