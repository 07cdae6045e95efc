//! TLS configuration.

mod certificates;
mod client;
mod name;
pub(crate) mod pem;
mod provider;
mod self_signed;
mod suites;

use std::sync::Arc;

use kcm_clock::Clock;
use rustls::ServerConfig;

pub(crate) use client::MAX_CHAIN;
pub(crate) use name::Name;
pub(crate) use provider::provider;
pub use self_signed::SelfSigned;

use self::{certificates::Certificates, client::AnyClientCertificate};
use crate::{ServingError, ServingOptions, TlsVersion};

/// TLS configuration with the certificates of `options`. If `request_certificates` is `true`, client certificates are
/// requested. They are verified for each request.
///
/// # Errors
///
/// If a certificate, key or cipher suite cannot be used.
pub(crate) fn config(
    options: &ServingOptions,
    component: &str,
    request_certificates: bool,
    clock: &Arc<dyn Clock>,
) -> Result<ServerConfig, ServingError> {
    let certificates = Certificates::new(options, component, clock)?;
    let mut provider = rustls::crypto::ring::default_provider();
    suites::restrict(&mut provider, &options.tls_cipher_suites)?;
    let provider = Arc::new(provider);
    let versions: &[_] = match options.tls_min_version {
        None | Some(TlsVersion::Tls12) => &[&rustls::version::TLS12, &rustls::version::TLS13],
        Some(TlsVersion::Tls13) => &[&rustls::version::TLS13],
    };
    let clients: Arc<dyn rustls::server::danger::ClientCertVerifier> = if request_certificates {
        Arc::new(AnyClientCertificate::new(&provider))
    } else {
        Arc::new(rustls::server::NoClientAuth)
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| ServingError::Tls(error.to_string()))?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(certificates));
    // A session in the cache would keep the client's certificates after the connection.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = if options.disable_http2 {
        vec![b"http/1.1".to_vec()]
    } else {
        vec![b"h2".to_vec(), b"http/1.1".to_vec()]
    };
    Ok(config)
}
