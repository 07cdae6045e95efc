//! Names in certificates.

use kcm_client::der::{SEQUENCE, element, expect};
use rustls::pki_types::CertificateDer;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const TELETEX_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const BMP_STRING: u8 = 0x1e;

/// Names of a certificate's subject.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Name {
    /// Last common name. Empty if there is none.
    pub(crate) common_name: String,
    /// Organizations, in order.
    pub(crate) organizations: Vec<String>,
    /// Host names in the subject alternative names.
    pub(crate) dns_names: Vec<String>,
}

impl Name {
    /// Parses the names of `certificate`.
    ///
    /// # Errors
    ///
    /// If the certificate is invalid. The message is one line.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|error| error.to_string())?;
        let mut name = Self::of_subject(parsed.subject()).ok_or("invalid subject")?;
        name.dns_names = parsed.valid_dns_names().map(str::to_owned).collect();
        Ok(name)
    }

    /// Parses the contents of an X.501 name: a sequence of sets of types with values.
    fn of_subject(mut subject: &[u8]) -> Option<Self> {
        let mut name = Self::default();
        while !subject.is_empty() {
            let mut set = expect(SET, &mut subject)?;
            while !set.is_empty() {
                let mut attribute = expect(SEQUENCE, &mut set)?;
                let kind = expect(OBJECT_IDENTIFIER, &mut attribute)?;
                let (tag, value) = element(&mut attribute)?;
                if kind == COMMON_NAME {
                    name.common_name = text(tag, value)?;
                } else if kind == ORGANIZATION {
                    name.organizations.push(text(tag, value)?);
                }
            }
        }
        Some(name)
    }
}

fn text(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        UTF8_STRING | PRINTABLE_STRING | IA5_STRING => String::from_utf8(value.to_vec()).ok(),
        TELETEX_STRING => Some(value.iter().map(|&byte| char::from(byte)).collect()),
        BMP_STRING => {
            let (pairs, rest) = value.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().map(|&pair| u16::from_be_bytes(pair)).collect();
            rest.is_empty().then(|| String::from_utf16(&units).ok()).flatten()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    use super::*;

    fn certificate(subject: &[(DnType, DnValue)], names: &[&str]) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn parses_names() {
        let long = "x".repeat(300);
        let subject = [
            (DnType::CountryName, DnValue::Utf8String("AA".to_owned())),
            (DnType::OrganizationName, DnValue::Utf8String(long.clone())),
            (DnType::CommonName, DnValue::PrintableString("alice".try_into().unwrap())),
        ];
        let name = Name::of(&certificate(&subject, &["a.example", "10.0.0.1", "*.b.example"])).unwrap();
        assert_eq!(name.common_name, "alice");
        assert_eq!(name.organizations, [long]);
        assert_eq!(name.dns_names, ["a.example", "*.b.example"]);
    }

    #[test]
    fn parses_bmp_strings() {
        let subject = [(DnType::CommonName, DnValue::BmpString("Zoë".try_into().unwrap()))];
        assert_eq!(Name::of(&certificate(&subject, &[])).unwrap().common_name, "Zoë");
    }

    #[test]
    fn certificate_without_a_subject_has_no_names() {
        assert_eq!(Name::of(&certificate(&[], &[])).unwrap(), Name::default());
    }

    #[test]
    fn parses_several_organizations() {
        let organization = |text: &str| {
            let mut attribute =
                vec![0x06, 3, 0x55, 0x04, 0x0a, UTF8_STRING, u8::try_from(text.len()).unwrap()];
            attribute.extend(text.bytes());
            let mut set = vec![SET, u8::try_from(attribute.len() + 2).unwrap(), SEQUENCE];
            set.push(u8::try_from(attribute.len()).unwrap());
            set.extend(attribute);
            set
        };
        let subject = [organization("dev"), organization("ops")].concat();
        assert_eq!(Name::of_subject(&subject).unwrap().organizations, ["dev", "ops"]);
    }

    #[test]
    fn rejects_invalid_certificates() {
        assert!(Name::of(&CertificateDer::from(vec![0x30, 0x82, 0xff])).is_err());
    }

    proptest! {
        #[test]
        fn any_subject_is_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Name::of_subject(&bytes);
        }
    }
}
