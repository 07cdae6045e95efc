//! Certificates and keys as text.

use rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{Error, PemObject},
};

/// All certificates in `text`.
///
/// # Errors
///
/// When there is none, or one is broken.
pub(crate) fn chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let chain = chain.map_err(|error| error.to_string())?;
    if chain.is_empty() { Err("no certificate in it".to_owned()) } else { Ok(chain) }
}

/// The first private key in `text`.
///
/// # Errors
///
/// When there is none, or it is broken. The text is not quoted.
pub(super) fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        Error::NoItemsFound => "no private key in it".to_owned(),
        error => error.to_string(),
    })
}
