//! CA bundles that client certificates are verified with.

use std::{path::PathBuf, sync::Arc, time::Duration};

use kcm_client::CaBundle;
use kcm_clock::{Clock, Timestamp};
use rustls::{
    pki_types::{CertificateDer, UnixTime},
    server::WebPkiClientVerifier,
};

use crate::{ServingError, files::Watched, tls};

/// CA bundle for client certificates. Expired CAs are not trusted, as upstream.
#[derive(Debug)]
pub(super) struct Trust(CaBundle);

impl Trust {
    /// Parses the certificates in `pem`.
    ///
    /// # Errors
    ///
    /// If there is none, or one cannot be parsed. The message is one line.
    pub(super) fn parse(pem: &[u8]) -> Result<Self, String> {
        CaBundle::new(tls::pem::chain(pem)?).map(Self)
    }

    /// Reads a bundle from a file, which is reloaded when it changes.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or contains no certificates.
    pub(super) fn watch(
        what: &'static str,
        path: PathBuf,
        clock: Arc<dyn Clock>,
    ) -> Result<Watched<Arc<Self>>, ServingError> {
        let parse = |files: &[crate::files::File]| match files {
            [file] => Self::parse(&file.content).map(Arc::new).map_err(|cause| file.error(cause)),
            _ => Err(ServingError::Tls("a CA bundle must be one file".to_owned())),
        };
        Watched::open(vec![(what, path)], parse, clock)
    }

    /// Verifies that the first certificate of `chain` is one for clients that a CA of the bundle has signed, with the
    /// others as intermediates, and that all of them, and the CA, are valid at `now`.
    ///
    /// # Errors
    ///
    /// If it is not. The message is one line.
    pub(super) fn verify(&self, chain: &[CertificateDer<'static>], now: Timestamp) -> Result<(), String> {
        let Some((certificate, others)) = chain.split_first() else {
            return Err("no certificate".to_owned());
        };
        let roots = self.0.valid_at(now);
        if roots.is_empty() {
            return Err("x509: every certificate of the CA bundle has expired or is not yet valid".to_owned());
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), tls::provider()).build();
        let verifier = verifier.map_err(|error| error.to_string())?;
        let since_epoch = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
        let verified =
            verifier.verify_client_cert(certificate, others, UnixTime::since_unix_epoch(since_epoch));
        verified.map(drop).map_err(|error| error.to_string())
    }
}
