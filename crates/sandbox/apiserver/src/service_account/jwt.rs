//! JSON Web Tokens, signed by HMAC with SHA-256.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Length in bytes of a block of SHA-256.
const BLOCK: usize = 64;

const HEADER: &str = r#"{"alg":"HS256"}"#;

/// Returns a token with `claims`.
pub(super) fn sign(key: &[u8; 32], claims: &Value) -> String {
    let encode = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
    let signed = format!("{}.{}", encode(HEADER.as_bytes()), encode(claims.to_string().as_bytes()));
    let signature = encode(&hmac(key, signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// A token whose signature is not verified.
pub(super) struct Unverified<'a> {
    pub(super) claims: Value,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Unverified<'a> {
    /// Parses a token. `None` if it is no JSON Web Token.
    pub(super) fn parse(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (_, claims) = signed.split_once('.')?;
        let claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        Some(Self { claims, signed, signature: URL_SAFE_NO_PAD.decode(signature).ok()? })
    }

    /// Returns the claims if the signature is that of `key`.
    pub(super) fn verify(self, key: &[u8; 32]) -> Option<Value> {
        let expected = hmac(key, self.signed.as_bytes());
        // Compares all bytes, so that the time does not depend on the first difference.
        let difference = expected.iter().zip(&self.signature).fold(0, |found, (a, b)| found | (a ^ b));
        (self.signature.len() == expected.len() && difference == 0).then_some(self.claims)
    }
}

/// HMAC (RFC 2104) with SHA-256. The key is shorter than a block.
fn hmac(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
    let padded = |pad: u8| {
        let mut block = [pad; BLOCK];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hmac_of_rfc_4231() {
        // Test case 1. Its key of 20 bytes is padded with zeros.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let hex: String = hmac(&key, b"Hi There").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }

    #[test]
    fn changed_tokens_are_refused() {
        let (key, claims) = ([7; 32], json!({"iss": "a"}));
        let token = sign(&key, &claims);
        let verify = |token: &str, key| Unverified::parse(token).and_then(|token| token.verify(key));
        assert_eq!(verify(&token, &key), Some(claims));
        assert_eq!(verify(&token, &[8; 32]), None);
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (header, _) = signed.split_once('.').unwrap();
        let other = URL_SAFE_NO_PAD.encode(r#"{"iss":"b"}"#);
        for changed in [
            format!("{header}.{other}.{signature}"),
            format!("{signed}."),
            format!("{signed}.{}", &signature[..40]),
            format!("{signed}.{signature}AAAA"),
            format!("x.{token}"),
            signed.to_owned(),
            String::new(),
        ] {
            assert_eq!(verify(&changed, &key), None, "{changed}");
        }
    }
}
