//! Options of the secure port. The defaults are upstream's (US-1.5).

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Duration,
};

/// Options of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingOptions {
    /// `--bind-address`. Unspecified addresses, `0.0.0.0` and `::`, select all addresses of both families.
    pub bind_address: IpAddr,
    /// `--secure-port`. 0 disables the server.
    pub secure_port: u16,
    /// `--cert-dir`: directory of the self-signed certificate. `None` keeps it in memory.
    pub cert_dir: Option<PathBuf>,
    /// `--tls-cert-file`.
    pub tls_cert_file: Option<PathBuf>,
    /// `--tls-private-key-file`.
    pub tls_private_key_file: Option<PathBuf>,
    /// `--tls-sni-cert-key`.
    pub tls_sni_cert_keys: Vec<SniCertKey>,
    /// `--tls-cipher-suites`, by Go's names. Empty selects the defaults of the TLS library.
    pub tls_cipher_suites: Vec<String>,
    /// `--tls-min-version`.
    pub tls_min_version: Option<TlsVersion>,
    /// `--http2-max-streams-per-connection`. 0 selects the default, 10.
    pub http2_max_streams_per_connection: u32,
    /// `--disable-http2-serving`.
    pub disable_http2: bool,
    /// `--permit-address-sharing` (`SO_REUSEADDR`).
    pub permit_address_sharing: bool,
    /// `--permit-port-sharing` (`SO_REUSEPORT`).
    pub permit_port_sharing: bool,
}

/// Element of `--tls-sni-cert-key`: `certFile,keyFile` or `certFile,keyFile:name,name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SniCertKey {
    /// Certificate file.
    pub cert_file: PathBuf,
    /// Private key file.
    pub key_file: PathBuf,
    /// Server names. Empty selects the names in the certificate.
    pub names: Vec<String>,
}

/// `--tls-min-version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// `VersionTLS12` and older versions, which are not supported.
    Tls12,
    /// `VersionTLS13`.
    Tls13,
}

/// Options of authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticationOptions {
    /// `--authentication-kubeconfig`: API server for token reviews and the cluster's client CA bundle.
    pub kubeconfig: Option<PathBuf>,
    /// `--authentication-skip-lookup`: if `true`, the cluster's client CA bundle is not read.
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`.
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`.
    pub token_cache_ttl: Duration,
    /// `--client-ca-file`.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-*`.
    pub request_header: RequestHeaderOptions,
}

/// Options of authenticating proxies (`--requestheader-*`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeaderOptions {
    /// `--requestheader-client-ca-file`.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-allowed-names`. Empty allows all certificates of the CA bundle.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`.
    pub username_headers: Vec<String>,
    /// `--requestheader-uid-headers`.
    pub uid_headers: Vec<String>,
    /// `--requestheader-group-headers`.
    pub group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_header_prefixes: Vec<String>,
}

/// Options of authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationOptions {
    /// `--authorization-kubeconfig`: API server for subject access reviews.
    pub kubeconfig: Option<PathBuf>,
    /// `--authorization-always-allow-paths`: paths without authorization. `/x/*` matches all paths below `/x/`.
    pub always_allow_paths: Vec<String>,
    /// `--authorization-webhook-cache-authorized-ttl`.
    pub authorized_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`.
    pub unauthorized_ttl: Duration,
}

impl Default for ServingOptions {
    fn default() -> Self {
        Self {
            bind_address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            secure_port: 10257,
            cert_dir: None,
            tls_cert_file: None,
            tls_private_key_file: None,
            tls_sni_cert_keys: Vec::new(),
            tls_cipher_suites: Vec::new(),
            tls_min_version: None,
            http2_max_streams_per_connection: 0,
            disable_http2: false,
            permit_address_sharing: false,
            permit_port_sharing: false,
        }
    }
}

impl Default for AuthenticationOptions {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            skip_lookup: false,
            tolerate_lookup_failure: false,
            token_cache_ttl: Duration::from_secs(10),
            client_ca_file: None,
            request_header: RequestHeaderOptions::default(),
        }
    }
}

impl Default for RequestHeaderOptions {
    fn default() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            client_ca_file: None,
            allowed_names: Vec::new(),
            username_headers: one("x-remote-user"),
            uid_headers: Vec::new(),
            group_headers: one("x-remote-group"),
            extra_header_prefixes: one("x-remote-extra-"),
        }
    }
}

impl Default for AuthorizationOptions {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            always_allow_paths: ["/healthz", "/readyz", "/livez"].map(str::to_owned).to_vec(),
            authorized_ttl: Duration::from_secs(10),
            unauthorized_ttl: Duration::from_secs(10),
        }
    }
}
