//! Cipher suites, by the names that Go has for them.

use rustls::{SupportedCipherSuite, crypto::CryptoProvider};

use crate::ServingError;

/// What Go knows and this library does not have: no forward secrecy, CBC, RC4 or 3DES.
const NOT_HERE: [&str; 14] = [
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

/// The same, without CBC.
const NOT_HERE_GCM: [&str; 2] = ["TLS_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_256_GCM_SHA384"];

/// Leaves in `provider` the suites for TLS 1.2 that are in `names`, all if there are none. Those for TLS 1.3 stay:
/// as upstream, there is no choosing among them.
///
/// # Errors
///
/// When there is no suite of that name.
pub(super) fn restrict(provider: &mut CryptoProvider, names: &[String]) -> Result<(), ServingError> {
    if names.is_empty() {
        return Ok(());
    }
    let mut chosen = Vec::with_capacity(names.len());
    for name in names {
        // Two names that Go once had.
        let name = match name.as_str() {
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            name => name,
        };
        if NOT_HERE.contains(&name) || NOT_HERE_GCM.contains(&name) {
            tracing::warn!(suite = name, "Cipher suite is not secure and not built in, going on without it");
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
    fn suites_that_are_not_named_are_left_out_but_for_those_of_tls13() {
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
    fn suites_are_known_by_their_old_names_too() {
        let left = restricted(&["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"]).unwrap();
        assert_eq!(left.last().unwrap(), "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256");
    }

    #[test]
    fn suite_that_nobody_knows_is_refused_in_upstreams_words() {
        assert_eq!(
            restricted(&["TLS_NONE"]).unwrap_err(),
            "Cipher suite TLS_NONE not supported or doesn't exist"
        );
    }

    #[test]
    fn no_names_leave_all_suites() {
        assert_eq!(restricted(&[]).unwrap().len(), 9);
    }
}
