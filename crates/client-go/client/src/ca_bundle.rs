//! CA certificates as trust anchors, while they are valid.

use std::str::FromStr;

use kcm_clock::Timestamp;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, TrustAnchor},
};

use crate::der::{SEQUENCE, element, expect};

const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Last day that a certificate can contain. A certificate without an expiration date is valid to the end of it (RFC 5280,
/// section 4.1.2.5). It is later than [`Timestamp::MAX`].
const LAST_DAY: &str = "9999-12-31T";

/// CA certificates, each of which is a trust anchor from its `notBefore` to its `notAfter`.
///
/// Go checks the validity of every certificate of a chain, including the root. webpki takes only the name and the key of a
/// trust anchor, so an expired CA would be trusted for ever.
///
/// Upstream counterpart: `x509.CertPool` with `x509.Certificate.Verify`.
#[derive(Debug, Clone)]
pub struct CaBundle(Vec<Anchor>);

#[derive(Debug, Clone)]
struct Anchor {
    certificate: CertificateDer<'static>,
    anchor: TrustAnchor<'static>,
    validity: Validity,
}

/// Time in which a certificate is valid: from `notBefore` to `notAfter`, both included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validity {
    /// First second in which the certificate is valid.
    pub not_before: Timestamp,
    /// Last second in which the certificate is valid.
    pub not_after: Timestamp,
}

impl CaBundle {
    /// Creates a bundle of `certificates`. They need not be valid now.
    ///
    /// # Errors
    ///
    /// If a certificate cannot be parsed. The message is one line.
    pub fn new<'a>(certificates: impl IntoIterator<Item = CertificateDer<'a>>) -> Result<Self, String> {
        let mut anchors = Vec::new();
        for certificate in certificates {
            let validity =
                Validity::of(&certificate).ok_or("failed to parse the validity of a certificate")?;
            let certificate = certificate.into_owned();
            let mut store = RootCertStore::empty();
            store.add(certificate.clone()).map_err(|error| error.to_string())?;
            let anchor = store.roots.into_iter().next().ok_or("failed to parse a certificate")?;
            anchors.push(Anchor { certificate, anchor, validity });
        }
        Ok(Self(anchors))
    }

    /// Returns the trust anchors that are valid at `now`.
    pub fn valid_at(&self, now: Timestamp) -> RootCertStore {
        let valid = self.0.iter().filter(|anchor| anchor.validity.contains(now));
        RootCertStore { roots: valid.map(|anchor| anchor.anchor.clone()).collect() }
    }

    /// `true` if this certificate is in the bundle, and is valid at `now`.
    pub fn contains(&self, certificate: &CertificateDer<'_>, now: Timestamp) -> bool {
        self.0.iter().any(|anchor| anchor.certificate == *certificate && anchor.validity.contains(now))
    }

    /// Returns when the certificates are valid.
    pub fn validities(&self) -> impl Iterator<Item = &Validity> {
        self.0.iter().map(|anchor| &anchor.validity)
    }
}

impl Validity {
    /// Parses the validity of `certificate`. `None` if it cannot be parsed.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let mut outer: &[u8] = certificate;
        let mut signed = expect(SEQUENCE, &mut outer)?;
        let mut fields = expect(SEQUENCE, &mut signed)?;
        // Version (absent in version 1), serial number, signature algorithm, issuer.
        if fields.first() == Some(&VERSION) {
            element(&mut fields)?;
        }
        for _ in 0..3 {
            element(&mut fields)?;
        }
        let mut validity = expect(SEQUENCE, &mut fields)?;
        Some(Self { not_before: time(&mut validity)?, not_after: time(&mut validity)? })
    }

    fn contains(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

/// Takes a time off the front of `rest`: `YYMMDDhhmmssZ`, where the years are 1950 to 2049, or `YYYYMMDDhhmmssZ`.
fn time(rest: &mut &[u8]) -> Option<Timestamp> {
    let (tag, text) = element(rest)?;
    let text = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match (tag, text.len()) {
        (UTC_TIME, 12) => {
            let (year, rest) = text.split_at(2);
            (format!("{}{year}", if year < "50" { "20" } else { "19" }), rest)
        }
        (GENERALIZED_TIME, 14) => (text[..4].to_owned(), &text[4..]),
        _ => return None,
    };
    let part = |at: usize| &rest[at..at + 2];
    let time = format!("{year}-{}-{}T{}:{}:{}Z", part(0), part(2), part(4), part(6), part(8));
    Timestamp::from_str(&time).ok().or_else(|| time.starts_with(LAST_DAY).then_some(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(from: i32, until: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(from, 1, 2);
        params.not_after = date_time_ymd(until, 3, 4);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn both_forms_of_time() {
        for (from, until) in [(1999, 2049), (2020, 2050), (1975, 4096)] {
            let expected = Validity {
                not_before: at(&format!("{from}-01-02T00:00:00Z")),
                not_after: at(&format!("{until}-03-04T00:00:00Z")),
            };
            assert_eq!(Validity::of(&certificate(from, until)), Some(expected));
        }
    }

    #[test]
    fn certificate_without_expiry() {
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(9999, 12, 31);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone();
        let bundle = CaBundle::new([certificate]).unwrap();
        assert_eq!(bundle.valid_at(Timestamp::MAX).len(), 1);
        assert_eq!(time(&mut &b"\x18\x0f99991231235959Z"[..]), Some(Timestamp::MAX));
        assert_eq!(time(&mut &b"\x18\x0f99991331235959Z"[..]), None);
    }

    #[test]
    fn certificate_is_trusted_while_valid() {
        let bundle = CaBundle::new([certificate(2000, 2010), certificate(2005, 2020)]).unwrap();
        for (now, anchors) in [
            ("2000-01-01T23:59:59Z", 0),
            ("2000-01-02T00:00:00Z", 1),
            ("2006-01-01T00:00:00Z", 2),
            ("2010-03-04T00:00:00Z", 2),
            ("2010-03-04T00:00:01Z", 1),
            ("2021-01-01T00:00:00Z", 0),
        ] {
            assert_eq!(bundle.valid_at(at(now)).len(), anchors, "{now}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Validity::of(&CertificateDer::from(bytes.clone()));
            let _ = time(&mut &*bytes);
        }

        #[test]
        fn changed_certificates(at in 0_usize..300, byte in any::<u8>()) {
            let mut bytes = certificate(2000, 2010).to_vec();
            if let Some(changed) = bytes.get_mut(at) {
                *changed = byte;
            }
            let _ = CaBundle::new([CertificateDer::from(bytes)]);
        }
    }
}
