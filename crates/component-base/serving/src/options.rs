//! What flags say about the secure port. The defaults are upstream's (US-1.5).

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Duration,
};

/// Where and how to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingOptions {
    /// `--bind-address`.
    pub bind_address: IpAddr,
    /// `--secure-port`; 0: do not serve.
    pub secure_port: u16,
    /// `--cert-dir`: where a self-signed pair is kept when no files are given; empty: in memory only.
    pub cert_dir: Option<PathBuf>,
    /// `--tls-cert-file`.
    pub tls_cert_file: Option<PathBuf>,
    /// `--tls-private-key-file`.
    pub tls_private_key_file: Option<PathBuf>,
    /// `--tls-sni-cert-key`.
    pub tls_sni_cert_keys: Vec<SniCertKey>,
    /// `--tls-cipher-suites`, by Go's names; empty: the library's choice.
    pub tls_cipher_suites: Vec<String>,
    /// `--tls-min-version`.
    pub tls_min_version: Option<TlsVersion>,
    /// `--http2-max-streams-per-connection`; 0: the library's default.
    pub http2_max_streams_per_connection: u32,
    /// `--disable-http2-serving`.
    pub disable_http2: bool,
    /// `--permit-address-sharing` (`SO_REUSEADDR`).
    pub permit_address_sharing: bool,
    /// `--permit-port-sharing` (`SO_REUSEPORT`).
    pub permit_port_sharing: bool,
}

/// One element of `--tls-sni-cert-key`: `certificate,key` or `certificate,key:name,name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SniCertKey {
    /// The certificate's file.
    pub cert_file: PathBuf,
    /// The key's file.
    pub key_file: PathBuf,
    /// The names that it is for; none: those in the certificate.
    pub names: Vec<String>,
}

/// `--tls-min-version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// `VersionTLS12`, and what is older, which nothing here speaks.
    Tls12,
    /// `VersionTLS13`.
    Tls13,
}

/// Who somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticationOptions {
    /// `--authentication-kubeconfig`: who is asked about tokens, and for the cluster's client CAs.
    pub kubeconfig: Option<PathBuf>,
    /// `--authentication-skip-lookup`: do not ask the cluster for its client CAs.
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

/// Whom to believe when he says for whom he asks: `--requestheader-*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeaderOptions {
    /// `--requestheader-client-ca-file`.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-allowed-names`; none: any that the CA has signed.
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

/// What somebody may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationOptions {
    /// `--authorization-kubeconfig`: who is asked.
    pub kubeconfig: Option<PathBuf>,
    /// `--authorization-always-allow-paths`: open to all; `/x/*` for all below.
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
