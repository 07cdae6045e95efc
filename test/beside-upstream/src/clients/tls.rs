//! TLS of clients that verify no certificate.

use std::{io, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Name in the handshakes.
const NAME: &str = "localhost";

/// Certificate chain of a client with the key of the first certificate.
pub(crate) type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Configuration with a protocol, `h2` or `http/1.1`. No session is resumed.
pub(crate) fn config(protocol: &str, chain: Option<Chain>) -> Result<Arc<ClientConfig>, Error> {
    let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(AnyServer));
    let mut config = match chain {
        Some((certificates, key)) => builder.with_client_auth_cert(certificates, key)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Makes the handshake.
pub(crate) async fn connect(
    stream: TcpStream,
    config: &Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    TlsConnector::from(Arc::clone(config)).connect(name()?, stream).await
}

/// Returns the first message of a handshake.
pub(crate) fn client_hello(config: &Arc<ClientConfig>) -> io::Result<Vec<u8>> {
    let mut connection =
        rustls::ClientConnection::new(Arc::clone(config), name()?).map_err(io::Error::other)?;
    let mut hello = Vec::new();
    connection.write_tls(&mut hello)?;
    Ok(hello)
}

fn name() -> io::Result<ServerName<'static>> {
    ServerName::try_from(NAME).map_err(io::Error::other)
}

/// Accepts all servers, as the probes of the kubelet do.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
