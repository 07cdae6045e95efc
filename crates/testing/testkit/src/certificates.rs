//! Certificate authority.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};

/// Certificate authority with a new key.
pub struct CertificateAuthority(CertifiedIssuer<'static, KeyPair>);

/// Certificate and its key. Valid since 1970, for clocks that start at the Unix epoch.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Certificate, PEM.
    pub certificate: String,
    /// Private key, PEM.
    pub key: String,
    /// Certificate, DER.
    pub der: Vec<u8>,
}

impl CertificateAuthority {
    /// Creates a CA that does not expire.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::until(name, 4096)
    }

    /// Creates a CA whose certificate expires at the start of `year`. Certificates that it signs are valid longer.
    #[must_use]
    pub fn until(name: &str, year: i32) -> Self {
        let mut params = params(name, &[]);
        params.not_after = date_time_ymd(year, 1, 1);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Certificate of the CA, PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Signs a certificate of a client.
    #[must_use]
    pub fn client(&self, name: &str, organization: &str) -> Identity {
        let mut params = params(name, &[]);
        params.distinguished_name.push(DnType::OrganizationName, organization);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    /// Signs a certificate of a server with these host names or addresses, of which the first is the common name.
    #[must_use]
    pub fn server(&self, names: &[&str]) -> Identity {
        self.sign(&params(names[0], names))
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Identity { certificate: certificate.pem(), key: key.serialize_pem(), der: certificate.der().to_vec() }
    }
}

fn params(common_name: &str, names: &[&str]) -> CertificateParams {
    let mut params =
        CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = date_time_ymd(1970, 1, 1);
    params
}
