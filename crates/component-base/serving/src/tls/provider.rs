//! Cryptography provider of TLS.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// Cryptography provider of this workspace. A process may link several.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
