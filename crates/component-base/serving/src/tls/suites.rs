//! Cipher suites by Go's names.

use rustls::{SupportedCipherSuite, crypto::CryptoProvider};

use crate::ServingError;

/// Suites of Go that the TLS library does not implement: without forward secrecy, CBC, RC4 or 3DES.
const UNSUPPORTED: [&str; 14] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Unsupported suites with GCM and without forward secrecy.
const UNSUPPORTED_GCM: [&str; 2] = ["TLS_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_256_GCM_SHA384"];

/// Restricts the TLS 1.2 suites of `provider` to `names`. Empty `names` keep all. The suites of TLS 1.3 cannot be
/// restricted, as upstream.
///
/// # Errors
///
/// If a name is unknown.
pub(super) fn restrict(provider: &mut CryptoProvider, names: &[String]) -> Result<(), ServingError> {
    if names.is_empty() {
        return Ok(());
    }
    let mut chosen = Vec::with_capacity(names.len());
    for name in names {
        // Former names of two suites.
        let name = match name.as_str() {
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            name => name,
        };
        if UNSUPPORTED.contains(&name) || UNSUPPORTED_GCM.contains(&name) {
            tracing::warn!(suite = name, "Ignoring insecure cipher suite that is not supported");
        } else if provider.cipher_suites.iter().any(|suite| go_name(suite) == name) {
            chosen.push(name.to_owned());
        } else {
            return Err(ServingError::Option(format!("Cipher suite {name} not supported or doesn't exist")));
        }
    }
    provider.cipher_suites.retain(|suite| suite.tls13().is_some() || chosen.contains(&go_name(suite)));
    Ok(())
}

fn go_name(suite: &SupportedCipherSuite) -> String {
    suite.suite().as_str().map_or_else(String::new, |name| name.replacen("TLS13_", "TLS_", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restricted(names: &[&str]) -> Result<Vec<String>, String> {
        let mut provider = rustls::crypto::ring::default_provider();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        restrict(&mut provider, &names).map_err(|error| error.to_string())?;
        Ok(provider.cipher_suites.iter().map(go_name).collect())
    }

    #[test]
    fn restricts_tls12_suites() {
        let left =
            restricted(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_RC4_128_SHA"]).unwrap();
        assert_eq!(
            left,
            [
                "TLS_AES_256_GCM_SHA384",
                "TLS_AES_128_GCM_SHA256",
                "TLS_CHACHA20_POLY1305_SHA256",
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
            ]
        );
    }

    #[test]
    fn accepts_former_names() {
        let left = restricted(&["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"]).unwrap();
        assert_eq!(left.last().unwrap(), "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256");
    }

    #[test]
    fn rejects_unknown_names_with_upstreams_message() {
        assert_eq!(
            restricted(&["TLS_NONE"]).unwrap_err(),
            "Cipher suite TLS_NONE not supported or doesn't exist"
        );
    }

    #[test]
    fn no_names_keep_all_suites() {
        assert_eq!(restricted(&[]).unwrap().len(), 9);
    }
}
