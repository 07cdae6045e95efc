//! TLS with a certificate that is made at the start and trusted by the kubeconfig that is written.

use std::{net::IpAddr, sync::Arc};

use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use thiserror::Error;

/// A certificate that cannot be made or used.
#[derive(Debug, Error)]
pub(crate) enum TlsError {
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot use the certificate that was made: {0}")]
    Config(#[from] rustls::Error),
}

/// What a server at `address` needs for TLS, and the certificate, PEM, that its clients must trust. The
/// certificate is for that address and for those of the loopback interface.
pub(crate) fn for_address(address: IpAddr) -> Result<(Arc<ServerConfig>, String), TlsError> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let address = address.to_string();
    if !names.contains(&address) {
        names.push(address);
    }
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(names)?.self_signed(&key)?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    // Named, since a process may have several providers built in.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((Arc::new(config), certificate.pem()))
}
