//! Certificate chains that are expensive to verify.

use rcgen::{
    CertificateParams, CustomExtension, DnType, Issuer, KeyPair, PKCS_ED25519, SerialNumber, date_time_ymd,
};
use rustls::{
    Error,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};

use super::tls::Chain;
use crate::cluster::SUITE;

/// Certificates per level of names, from the issuers of the leaf.
const LEVELS: [usize; 6] = [8, 8, 8, 8, 8, 6];
/// Certificates of the chain of names. Those that belong to no level are read in each step of a search.
const CERTIFICATES: usize = 280;
/// Certificates of the deep chain.
const DEPTH: usize = 100;
/// Identifier of the extension, and its content `cA TRUE`.
const BASIC_CONSTRAINTS: [u64; 4] = [2, 5, 29, 19];
const IS_CA: [u8; 5] = [0x30, 3, 1, 1, 0xff];

/// Chain whose names form as many paths as the product of the levels. No path ends at a CA.
pub(super) fn chain_of_names() -> Result<Chain, Error> {
    let key = key()?;
    let mut names = vec![(0, 1)];
    for (level, number) in LEVELS.iter().enumerate() {
        names.extend(std::iter::repeat_n((level + 1, level + 2), *number));
    }
    let unused = LEVELS.len() + 3;
    names.resize(CERTIFICATES, (unused, unused));
    let certificates = names.into_iter().enumerate().map(|(serial, (subject, issuer))| {
        certificate(&key, serial, &subject.to_string(), &issuer.to_string())
    });
    Ok((certificates.collect::<Result<_, _>>()?, private_key(&key)))
}

/// Chain of which each certificate signs the one before. The last one bears the name of the CA as its issuer.
pub(super) fn deep_chain() -> Result<Chain, Error> {
    let key = key()?;
    let certificates = (0..DEPTH).map(|depth| {
        let issuer = if depth + 1 == DEPTH { SUITE.to_owned() } else { (depth + 1).to_string() };
        certificate(&key, depth, &depth.to_string(), &issuer)
    });
    Ok((certificates.collect::<Result<_, _>>()?, private_key(&key)))
}

fn certificate(
    key: &KeyPair,
    serial: usize,
    subject: &str,
    issuer: &str,
) -> Result<CertificateDer<'static>, Error> {
    let subject = params(subject, serial);
    let issuer = Issuer::new(params(issuer, 0), key);
    Ok(subject.signed_by(key, &issuer).map_err(error)?.der().clone())
}

fn params(name: &str, serial: usize) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from(serial as u64 + 1));
    // The first is that of the client. Those of CAs have this extension only, because it is short.
    if serial > 0 {
        let mut is_ca = CustomExtension::from_oid_content(&BASIC_CONSTRAINTS, IS_CA.to_vec());
        is_ca.set_criticality(true);
        params.custom_extensions = vec![is_ca];
    }
    params.not_after = date_time_ymd(2049, 1, 1);
    params
}

fn key() -> Result<KeyPair, Error> {
    KeyPair::generate_for(&PKCS_ED25519).map_err(error)
}

fn private_key(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(key.serialize_der()).into()
}

#[expect(clippy::needless_pass_by_value, reason = "argument of map_err")]
fn error(error: rcgen::Error) -> Error {
    Error::General(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_of_names_fits_into_a_handshake_message() {
        let (certificates, _) = chain_of_names().unwrap();
        // Each has a length of three bytes and the length of its extensions.
        let bytes: usize = certificates.iter().map(|certificate| certificate.len() + 5).sum();
        assert_eq!(certificates.len(), CERTIFICATES);
        assert!((60_000..=65_000).contains(&bytes), "{bytes}");
    }
}
