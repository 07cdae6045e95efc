//! TLS configuration: verification of the server, and the client certificate.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use kcm_clock::Clock;
use kube_client::{Config, config::AuthInfo};
use rustls::{
    ClientConfig,
    client::{Resumption, danger::ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use rustls_platform_verifier::Verifier as PlatformVerifier;
use secrecy::ExposeSecret;
use tokio_rustls::TlsConnector;

use super::{
    credentials::{ClientConfigError, Server},
    server_verifier::ServerVerifier,
};
use crate::CaBundle;

/// TLS to one server, and the name that its certificate must have.
pub(super) type Tls = (TlsConnector, ServerName<'static>);

/// Returns TLS to `host` with the CAs and the client certificate of `config`. `protocols` are offered by ALPN.
pub(super) fn tls(
    server: &Server,
    config: &Config,
    host: Option<&str>,
    protocols: &[&str],
    clock: &Arc<dyn Clock>,
) -> Result<Tls, ClientConfigError> {
    let name = config.tls_server_name.as_deref().filter(|name| !name.is_empty()).or(host).unwrap_or_default();
    // An IPv6 address is in brackets in a URI only.
    let name = ServerName::try_from(name.trim_start_matches('[').trim_end_matches(']').to_owned())
        .map_err(|error| ClientConfigError::caused(server, &error))?;
    let mut tls = client_config(config, clock).map_err(|error| ClientConfigError::broken(server, error))?;
    // As upstream, which has no session cache: a resumed session would not verify the server's certificate again.
    tls.resumption = Resumption::disabled();
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Ok((TlsConnector::from(Arc::new(tls)), name))
}

/// CAs that are configured are trusted while they are valid; those of the operating system are left to it.
///
/// # Errors
///
/// If a CA, the client certificate or its key is invalid, or there are CAs although every certificate is accepted. The error contains
/// no part of them.
fn client_config(config: &Config, clock: &Arc<dyn Clock>) -> Result<ClientConfig, String> {
    let failed = |error: rustls::Error| error.to_string();
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let certificates = config.root_cert.as_ref();
    let cas =
        certificates.map(|cas| CaBundle::new(cas.iter().map(|der| CertificateDer::from(der.as_slice()))));
    let cas = cas.transpose()?;
    if config.accept_invalid_certs && cas.is_some() {
        return Err("specifying a root certificates file with the insecure flag is not allowed".to_owned());
    }
    let verifier: Arc<dyn ServerCertVerifier> = if cas.is_none() && !config.accept_invalid_certs {
        Arc::new(PlatformVerifier::new(Arc::clone(&provider)).map_err(failed)?)
    } else {
        Arc::new(ServerVerifier::new(cas, Arc::clone(clock), Arc::clone(&provider)))
    };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(failed)?.dangerous().with_custom_certificate_verifier(verifier);
    match identity(&config.auth_info)? {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(failed),
        None => Ok(builder.with_no_client_auth()),
    }
}

/// Returns the client certificate, with its intermediates, and its key.
fn identity(
    auth: &AuthInfo,
) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, String> {
    let certificate = content(auth.client_certificate_data.as_deref(), auth.client_certificate.as_deref())
        .map_err(|error| format!("client certificate: {error}"))?;
    let key = auth.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    let key = content(key, auth.client_key.as_deref()).map_err(|error| format!("client key: {error}"))?;
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return Ok(None),
        (Some(_), None) => return Err("client certificate without client key".to_owned()),
        (None, Some(_)) => return Err("client key without client certificate".to_owned()),
    };
    let chain = CertificateDer::pem_slice_iter(&certificate).collect::<Result<Vec<_>, _>>().ok();
    let chain = chain.filter(|chain| !chain.is_empty()).ok_or("client certificate: no certificate in PEM")?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| "client key: no private key in PEM")?;
    Ok(Some((chain, key)))
}

/// Returns the content of a field, or of the file that another field names. As upstream, the field takes precedence.
fn content(data: Option<&str>, file: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    match (data, file) {
        (Some(data), _) => BASE64_STANDARD.decode(data).map(Some).map_err(|error| error.to_string()),
        (None, Some(file)) => std::fs::read(file).map(Some).map_err(|error| format!("{file:?}: {error}")),
        (None, None) => Ok(None),
    }
}
