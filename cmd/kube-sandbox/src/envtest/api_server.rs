//! `kube-apiserver`: serves TLS and authenticates client certificates and tokens.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use kcm_apiserver::User;
use kcm_clock::Timestamp;
use kcm_sandbox_server::HttpServer;
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::arguments::{Arguments, Flag};
use crate::{SandboxError, tls};

/// Flags of kube-apiserver that test frameworks pass.
pub(super) const FLAGS: &[Flag] = &[
    ("advertise-address", "ADDRESS", ""),
    ("allow-privileged", "", ""),
    ("anonymous-auth", "", "Serve requests without credentials as system:anonymous [default: true]"),
    ("api-audiences", "NAMES", ""),
    ("audit-log-path", "FILE", "Append audit events to this file"),
    ("audit-policy-file", "FILE", "audit.k8s.io/v1 Policy that selects the requests to audit"),
    (
        "authorization-mode",
        "MODES",
        "With RBAC, roles and bindings authorize requests. Otherwise every user may do everything",
    ),
    ("bind-address", "ADDRESS", "Address to listen on [default: 0.0.0.0]"),
    (
        "cert-dir",
        "DIRECTORY",
        "Directory with apiserver.crt and apiserver.key, if --tls-cert-file is not given",
    ),
    (
        "client-ca-file",
        "FILE",
        "CA certificates of clients. The user of a certificate is its common name, the groups are its organizations",
    ),
    ("disable-admission-plugins", "NAMES", ""),
    ("enable-admission-plugins", "NAMES", ""),
    ("enable-aggregator-routing", "", ""),
    ("enable-priority-and-fairness", "", ""),
    ("etcd-cafile", "FILE", ""),
    ("etcd-certfile", "FILE", ""),
    ("etcd-keyfile", "FILE", ""),
    ("etcd-prefix", "PREFIX", ""),
    ("etcd-servers", "URLS", ""),
    ("event-ttl", "DURATION", ""),
    ("external-hostname", "NAME", ""),
    ("feature-gates", "GATES", ""),
    ("kubelet-client-certificate", "FILE", ""),
    ("kubelet-client-key", "FILE", ""),
    ("max-mutating-requests-inflight", "N", ""),
    ("max-requests-inflight", "N", ""),
    ("profiling", "", ""),
    ("proxy-client-cert-file", "FILE", ""),
    ("proxy-client-key-file", "FILE", ""),
    ("requestheader-allowed-names", "NAMES", ""),
    ("requestheader-client-ca-file", "FILE", ""),
    ("requestheader-extra-headers-prefix", "PREFIXES", ""),
    ("requestheader-group-headers", "NAMES", ""),
    ("requestheader-username-headers", "NAMES", ""),
    ("runtime-config", "VERSIONS", ""),
    ("secure-port", "PORT", "Port to listen on [default: 6443]"),
    (
        "service-account-issuer",
        "URL",
        "Issuer of the tokens of service accounts [default: https://kubernetes.default.svc.cluster.local]",
    ),
    ("service-account-key-file", "FILE", ""),
    ("service-account-signing-key-file", "FILE", ""),
    ("service-cluster-ip-range", "CIDR", ""),
    ("shutdown-delay-duration", "DURATION", ""),
    ("storage-backend", "NAME", ""),
    ("storage-media-type", "TYPE", ""),
    ("tls-cert-file", "FILE", "Certificate to serve [default: a self-signed one]"),
    ("tls-private-key-file", "FILE", "Key of the certificate"),
    ("token-auth-file", "FILE", "Tokens of users; lines have the form token,user,uid,\"group1,group2\""),
    (
        "v",
        "LEVEL",
        "Log verbosity: 0 warnings, 1 write requests, 2 all requests, 4 decisions of the controllers",
    ),
    ("watch-cache", "", ""),
];

/// A certificate, a key or an address cannot be used.
#[derive(Debug, Error)]
pub(crate) enum CertificatesError {
    /// A file cannot be read.
    #[error("{path}: {source}")]
    File { path: PathBuf, source: rustls::pki_types::pem::Error },
    /// The TLS library refuses the certificates.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The certificates in `--client-ca-file` cannot be used.
    #[error("--client-ca-file: {0}")]
    Clients(#[from] rustls::server::VerifierBuilderError),
    /// An address or a port cannot be parsed.
    #[error("invalid value {value:?} of --{flag}")]
    Address { flag: &'static str, value: String },
}

/// Serves `http` with the certificates and the address of `arguments` until `stop` is cancelled.
pub(crate) async fn serve(
    mut http: HttpServer,
    arguments: &Arguments,
    now: Timestamp,
    stop: CancellationToken,
) -> Result<(), SandboxError> {
    let address = SocketAddr::new(
        value(arguments, "bind-address", IpAddr::V4(Ipv4Addr::UNSPECIFIED))?,
        value(arguments, "secure-port", 6443)?,
    );
    http.tls = Some(server_config(arguments, address.ip(), now)?);
    http.certificate_users = Some(Arc::new(|certificate| {
        let user = kcm_serving::User::of_certificate(certificate)?;
        let digest: String = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect();
        let id =
            ("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("X509SHA256={digest}")]);
        let user = User::authenticated(user.name, user.uid, user.groups);
        Some(User { extra: [id].into(), ..user })
    }));
    // A request without a certificate and a token is refused.
    http.tokens.get_or_insert_default();
    let failed = |source| SandboxError::Listen { address: address.to_string(), source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    println!("Serving securely on {}", listener.local_addr().map_err(failed)?);
    http.serve(listener, stop).await;
    Ok(())
}

fn value<T: std::str::FromStr>(
    arguments: &Arguments,
    flag: &'static str,
    default: T,
) -> Result<T, CertificatesError> {
    let Some(value) = arguments.last(flag) else { return Ok(default) };
    value.parse().map_err(|_| CertificatesError::Address { flag, value: value.to_owned() })
}

fn server_config(
    arguments: &Arguments,
    address: IpAddr,
    now: Timestamp,
) -> Result<Arc<ServerConfig>, SandboxError> {
    let path = |flag| arguments.last(flag).filter(|path| !path.is_empty()).map(PathBuf::from);
    let in_folder = |name| path("cert-dir").map(|folder| folder.join(name)).filter(|path| path.is_file());
    let certificate = path("tls-cert-file").or_else(|| in_folder("apiserver.crt"));
    let key = path("tls-private-key-file").or_else(|| in_folder("apiserver.key"));
    let Some((certificate, key)) = certificate.zip(key) else {
        return Ok(tls::for_address(address, now)?.0);
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(CertificatesError::from)?;
    let builder = match path("client-ca-file") {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(authorities)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.allow_unauthenticated().build().map_err(CertificatesError::from)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = certificates(certificate)?;
    let key =
        PrivateKeyDer::from_pem_file(&key).map_err(|source| CertificatesError::File { path: key, source })?;
    let mut config = builder.with_single_cert(chain, key).map_err(CertificatesError::from)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: PathBuf) -> Result<Vec<CertificateDer<'static>>, CertificatesError> {
    let read = CertificateDer::pem_file_iter(&path).and_then(Iterator::collect);
    read.map_err(|source| CertificatesError::File { path, source })
}
