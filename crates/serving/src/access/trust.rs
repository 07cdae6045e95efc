//! Certificate authorities whose word counts.

use std::{path::PathBuf, sync::Arc, time::Duration};

use kcm_clock::{Clock, Timestamp};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, UnixTime},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use crate::{ServingError, files::Watched, tls};

/// A bundle of authorities for clients' certificates.
#[derive(Debug)]
pub(super) struct Trust(Arc<dyn ClientCertVerifier>);

impl Trust {
    /// The bundle in `pem`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in one line.
    pub(super) fn parse(pem: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in tls::pem::chain(pem)? {
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), tls::provider())
            .build()
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// The bundle in a file, which is followed.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or holds no certificates.
    pub(super) fn watch(
        what: &'static str,
        path: PathBuf,
        clock: Arc<dyn Clock>,
    ) -> Result<Watched<Arc<Self>>, ServingError> {
        let parse = |files: &[crate::files::File]| match files {
            [file] => Self::parse(&file.content).map(Arc::new).map_err(|cause| file.error(cause)),
            _ => Err(ServingError::Tls("a bundle of certificates is one file".to_owned())),
        };
        Watched::open(vec![(what, path)], parse, clock)
    }

    /// Whether one of the authorities has signed the first certificate of `chain`, with the help of the others, for
    /// a client, and at `now`.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(super) fn verify(&self, chain: &[CertificateDer<'static>], now: Timestamp) -> Result<(), String> {
        let Some((certificate, others)) = chain.split_first() else {
            return Err("no certificate".to_owned());
        };
        let since_epoch = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
        let verified =
            self.0.verify_client_cert(certificate, others, UnixTime::since_unix_epoch(since_epoch));
        verified.map(drop).map_err(|error| error.to_string())
    }
}
