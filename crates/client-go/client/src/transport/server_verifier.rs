//! Verification of server certificates, with CAs that expire.

use std::{fmt, sync::Arc, time::Duration};

use kcm_clock::Clock;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use crate::CaBundle;

/// Verifies a server's certificate against the CAs of a bundle that are valid at the time of the handshake.
///
/// The time is that of the clock. A CA that has expired is no trust anchor, which is Go's rule; webpki alone does not check
/// the validity of a trust anchor. As in Go, the bundle may contain the server's certificate, also that of a server that is its own
/// CA. The extended key usage is not checked then.
pub(super) struct ServerVerifier {
    /// `None` accepts every certificate, and every signature.
    cas: Option<CaBundle>,
    clock: Arc<dyn Clock>,
    provider: Arc<CryptoProvider>,
}

impl ServerVerifier {
    pub(super) fn new(cas: Option<CaBundle>, clock: Arc<dyn Clock>, provider: Arc<CryptoProvider>) -> Self {
        Self { cas, clock, provider }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(cas) = &self.cas else { return Ok(ServerCertVerified::assertion()) };
        let now = self.clock.now();
        let roots = cas.valid_at(now);
        if roots.is_empty() {
            return Err(Error::InvalidCertificate(CertificateError::Expired));
        }
        if cas.contains(end_entity, now) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
                .build()
                .map_err(|error| Error::General(error.to_string()))?;
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.cas.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.cas.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.provider.signature_verification_algorithms.supported_schemes();
        if self.cas.is_none() {
            use SignatureScheme::{ECDSA_NISTP521_SHA512, ECDSA_SHA1_Legacy, ED448, RSA_PKCS1_SHA1};
            schemes.extend([ECDSA_NISTP521_SHA512, ED448, RSA_PKCS1_SHA1, ECDSA_SHA1_Legacy]);
        }
        schemes
    }
}

impl fmt::Debug for ServerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerVerifier").field("cas", &self.cas).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, Timestamp};
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

    use super::*;

    fn authority(until: i32) -> CertifiedIssuer<'static, KeyPair> {
        named_authority(vec![], until)
    }

    fn named_authority(names: Vec<String>, until: i32) -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// Certificate for `api.test` until 2030.
    fn leaf(authority: &CertifiedIssuer<'static, KeyPair>) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["api.test".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2030, 1, 1);
        params.signed_by(&KeyPair::generate().unwrap(), authority).unwrap().der().clone()
    }

    fn verify(
        authority: &CertifiedIssuer<'static, KeyPair>,
        leaf: &CertificateDer<'_>,
        at: &str,
    ) -> Result<(), Error> {
        verify_with(authority.der(), leaf, at)
    }

    fn verify_with(bundle: &CertificateDer<'_>, leaf: &CertificateDer<'_>, at: &str) -> Result<(), Error> {
        let clock = Arc::new(FakeClock::new(at.parse::<Timestamp>().unwrap()));
        let cas = CaBundle::new([bundle.clone()]).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let name = ServerName::try_from("api.test").unwrap();
        let verifier = ServerVerifier::new(Some(cas), clock, provider);
        // The operating system's time has no effect.
        let now = UnixTime::since_unix_epoch(Duration::ZERO);
        verifier.verify_server_cert(leaf, &[], &name, &[], now).map(|_| ())
    }

    fn expired(result: &Result<(), Error>) -> bool {
        use CertificateError::{Expired, ExpiredContext};
        matches!(result, Err(Error::InvalidCertificate(Expired | ExpiredContext { .. })))
    }

    #[test]
    fn accepts_a_certificate_of_a_valid_ca() {
        let ca = authority(2020);
        assert_eq!(verify(&ca, &leaf(&ca), "2019-12-31T00:00:00Z"), Ok(()));
    }

    #[test]
    fn refuses_a_certificate_of_an_expired_ca() {
        let ca = authority(2020);
        assert!(expired(&verify(&ca, &leaf(&ca), "2020-01-02T00:00:00Z")));
    }

    #[test]
    fn refuses_an_expired_certificate() {
        let ca = authority(2040);
        assert!(expired(&verify(&ca, &leaf(&ca), "2030-01-02T00:00:00Z")));
    }

    #[test]
    fn accepts_a_certificate_of_the_bundle_for_its_names() {
        let ca = authority(2040);
        let own = |names: Vec<String>| named_authority(names, 2030).der().clone();
        let pinned = [leaf(&ca), own(vec!["api.test".to_owned()])];
        for certificate in &pinned {
            assert_eq!(verify_with(certificate, certificate, "2010-01-01T00:00:00Z"), Ok(()));
            assert!(expired(&verify_with(certificate, certificate, "2030-01-02T00:00:00Z")));
        }
        let other = own(vec!["other.test".to_owned()]);
        let error = verify_with(&other, &other, "2010-01-01T00:00:00Z").unwrap_err();
        let is_for_another_name = matches!(
            error,
            Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            )
        );
        assert!(is_for_another_name, "{error}");
    }

    #[test]
    fn refuses_a_certificate_of_another_ca() {
        let (ca, other) = (authority(2040), authority(2040));
        assert!(matches!(
            verify(&other, &leaf(&ca), "2010-01-01T00:00:00Z"),
            Err(Error::InvalidCertificate(_))
        ));
    }
}
