//! Client certificates during the handshake.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

/// Maximum number of certificates of a client. Chains have one to four.
const MAX_CERTIFICATES: usize = 8;
/// Maximum size of a client's certificates, in bytes. It is also the memory that they take while the connection is open.
pub(crate) const MAX_CHAIN: usize = 16 * 1024;

/// Reason to reject a chain. rustls shows its debug representation.
#[derive(Debug, thiserror::Error)]
#[error("client certificates are too large")]
struct ChainTooLarge {
    certificates: usize,
    bytes: usize,
}

/// Accepts any client certificate whose key the client has, and clients without a certificate. Rejects chains that exceed
/// a limit before any signature is verified.
///
/// The issuer is verified for each request (`access`), as upstream. An untrusted certificate causes status 401 instead of a
/// failed handshake, and the removal of a CA applies to open connections.
#[derive(Debug)]
pub(super) struct AnyClientCertificate(WebPkiSupportedAlgorithms);

impl AnyClientCertificate {
    pub(super) fn new(provider: &CryptoProvider) -> Self {
        Self(provider.signature_verification_algorithms)
    }
}

impl ClientCertVerifier for AnyClientCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let certificates = 1 + intermediates.len();
        let bytes =
            end_entity.len() + intermediates.iter().map(|certificate| certificate.len()).sum::<usize>();
        if certificates > MAX_CERTIFICATES || bytes > MAX_CHAIN {
            let error = OtherError(Arc::new(ChainTooLarge { certificates, bytes }));
            return Err(Error::InvalidCertificate(CertificateError::Other(error)));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result for certificates of these sizes. They are not certificates, so nothing of them is parsed or verified.
    fn verify(sizes: &[usize]) -> Result<ClientCertVerified, Error> {
        let verifier = AnyClientCertificate::new(&super::super::provider());
        let chain: Vec<_> = sizes.iter().map(|&size| CertificateDer::from(vec![0; size])).collect();
        verifier.verify_client_cert(&chain[0], &chain[1..], UnixTime::since_unix_epoch(Default::default()))
    }

    #[test]
    fn chain_has_a_maximum_length_and_size() {
        assert!(verify(&[MAX_CHAIN]).is_ok() && verify(&[MAX_CHAIN / 8; 8]).is_ok());
        let error = verify(&[225; 280]).unwrap_err().to_string();
        assert!(error.contains("ChainTooLarge { certificates: 280, bytes: 63000 }"), "{error}");
        for sizes in [&[1; 9][..], &[MAX_CHAIN + 1], &[MAX_CHAIN, 1]] {
            verify(sizes).unwrap_err();
        }
    }
}
