//! Self-signed certificates.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use kcm_clock::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};

use rustls::{
    ServerConfig,
    sign::{CertifiedKey, SingleCertAndKey},
};

use super::{pem, provider::provider};
use crate::ServingError;

/// Time before the generation from which a certificate is valid, for clients with a slow clock.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);
/// Validity of a certificate: one year.
const VALID_FOR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Certificate that is signed by a generated CA. The key of the CA is discarded.
///
/// DEVIATION: keys are ECDSA P-256. Upstream's are RSA, which takes a hundred times as long to generate.
///
/// Upstream counterpart: `cert.GenerateSelfSignedCertKey`.
pub struct SelfSigned {
    /// Certificate followed by the CA certificate, PEM.
    pub certificate_pem: String,
    /// CA certificate, PEM.
    pub authority_pem: String,
    /// Private key, PKCS #8, PEM.
    pub key_pem: String,
}

/// Omits the private key.
impl fmt::Debug for SelfSigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelfSigned")
            .field("certificate_pem", &self.certificate_pem)
            .field("authority_pem", &self.authority_pem)
            .finish_non_exhaustive()
    }
}

impl SelfSigned {
    /// Generates a certificate for `names` and `addresses`, valid for a year from `now`. Its common name is `<host>@<now>`,
    /// and the one of its CA `<host>-ca@<now>`.
    ///
    /// # Errors
    ///
    /// If a name is not valid in a certificate.
    pub fn new(
        host: &str,
        names: &[&str],
        addresses: &[IpAddr],
        now: Timestamp,
    ) -> Result<Self, ServingError> {
        Self::generate(host, names, addresses, now)
            .map_err(|error| ServingError::Tls(format!("failed to generate a certificate: {error}")))
    }

    /// TLS configuration with this certificate, for HTTP/2 and HTTP/1.1, without client certificates.
    ///
    /// # Errors
    ///
    /// If the TLS library rejects the certificate.
    pub fn server_config(&self) -> Result<ServerConfig, ServingError> {
        let key = self.certified_key()?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| ServingError::Tls(error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Certificate and key for the TLS library.
    pub(super) fn certified_key(&self) -> Result<CertifiedKey, ServingError> {
        let chain = pem::chain(self.certificate_pem.as_bytes()).map_err(ServingError::Tls)?;
        let key = pem::private_key(self.key_pem.as_bytes()).map_err(ServingError::Tls)?;
        CertifiedKey::from_der(chain, key, &provider()).map_err(|error| ServingError::Tls(error.to_string()))
    }

    fn generate(
        host: &str,
        names: &[&str],
        addresses: &[IpAddr],
        now: Timestamp,
    ) -> Result<Self, rcgen::Error> {
        let mut authority = params(&format!("{host}-ca@{}", now.as_second()), now);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::KeyCertSign,
        ];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

        let mut certificate = params(&format!("{host}@{}", now.as_second()), now);
        certificate.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        certificate.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        certificate.is_ca = IsCa::ExplicitNoCa;
        certificate.use_authority_key_identifier_extension = true;
        for name in names {
            certificate.subject_alt_names.push(SanType::DnsName((*name).try_into()?));
        }
        let addresses = addresses.iter().map(|&address| SanType::IpAddress(address));
        certificate.subject_alt_names.extend(addresses);
        let key = KeyPair::generate()?;
        let certificate = certificate.signed_by(&key, &authority)?;
        Ok(Self {
            certificate_pem: certificate.pem() + &authority.pem(),
            authority_pem: authority.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

fn params(common_name: &str, now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let since_epoch = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
    params.not_before = date_time_ymd(1970, 1, 1) + since_epoch.saturating_sub(CLOCK_SKEW);
    params.not_after = params.not_before + VALID_FOR;
    params
}
