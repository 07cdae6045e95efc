//! PEM files.

use rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{Error, PemObject},
};

/// Parses all certificates in `text`.
///
/// # Errors
///
/// If there are none, or one is invalid.
pub(crate) fn chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let chain = chain.map_err(|error| error.to_string())?;
    if chain.is_empty() { Err("no certificate found".to_owned()) } else { Ok(chain) }
}

/// Parses the first private key in `text`.
///
/// # Errors
///
/// If there is none, or it is invalid. The message does not contain the text.
pub(super) fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        Error::NoItemsFound => "no private key found".to_owned(),
        error => error.to_string(),
    })
}
