//! CA bundles that client certificates are verified with.

use std::{path::PathBuf, sync::Arc, time::Duration};

use kcm_client::{CaBundle, Validity};
use kcm_clock::{Clock, Timestamp};
use parking_lot::Mutex;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, UnixTime},
    server::WebPkiClientVerifier,
};
use webpki::EndEntityCert;

use crate::{ServingError, files::Watched, tls};

/// Maximum number of issuers in a chain that are tried. A chain without cross-signed certificates has one for each of its
/// certificates. Certificates with equal names have a factorial number of orders, and webpki tries 200,000 issuers.
const MAX_ISSUERS: usize = 16;
/// Maximum number of paths to a CA of the bundle that are tried. Each costs a signature for each CA of that name. A chain
/// has one, or two if it contains the CA; webpki tries 100 signatures.
const MAX_PATHS: usize = 4;

/// CA bundle for client certificates. Expired CAs are not trusted, as upstream.
#[derive(Debug)]
pub(super) struct Trust(CaBundle);

/// Certificates of a client, and the results of their last verification for each purpose. One for each connection.
#[derive(Debug, Default)]
pub(crate) struct ClientChain {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    pub(super) as_proxy: LastVerification,
    pub(super) as_client: LastVerification,
}

/// Last verification of a chain, and its result.
#[derive(Debug, Default)]
pub(super) struct LastVerification(Mutex<Option<Verification>>);

#[derive(Debug)]
struct Verification {
    /// Bundle. It is kept, so that no other bundle gets its address.
    trust: Arc<Trust>,
    period: Period,
    result: Result<(), String>,
}

/// Seconds since the epoch, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Period {
    first: i64,
    last: i64,
}

impl ClientChain {
    pub(crate) fn new(certificates: Vec<CertificateDer<'static>>) -> Self {
        Self { certificates, ..Self::default() }
    }
}

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
    /// The result of the same verification is taken from `last`.
    ///
    /// # Errors
    ///
    /// If it is not. The message is one line.
    pub(super) fn verify(
        self: &Arc<Self>,
        chain: &[CertificateDer<'static>],
        last: &LastVerification,
        now: Timestamp,
    ) -> Result<(), String> {
        last.get_or(self, chain, now.as_second(), |now| self.verify_now(chain, now))
    }

    fn verify_now(&self, chain: &[CertificateDer<'static>], now: i64) -> Result<(), String> {
        let Some((certificate, others)) = chain.split_first() else {
            return Err("no certificate".to_owned());
        };
        let roots = self.0.valid_at(Timestamp::from_second(now).map_err(|error| error.to_string())?);
        if roots.is_empty() {
            return Err("x509: every certificate of the CA bundle has expired or is not yet valid".to_owned());
        }
        if Paths::of(chain, &roots).exceed_limits() {
            return Err(format!(
                "the chain has more than {MAX_ISSUERS} possible issuers or {MAX_PATHS} paths"
            ));
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), tls::provider()).build();
        let verifier = verifier.map_err(|error| error.to_string())?;
        let since_epoch = Duration::from_secs(u64::try_from(now).unwrap_or(0));
        let verified =
            verifier.verify_client_cert(certificate, others, UnixTime::since_unix_epoch(since_epoch));
        verified.map(drop).map_err(|error| error.to_string())
    }
}

impl LastVerification {
    /// Result for `chain` at the second `now`: the last one, if it was for the same bundle, and no certificate of the
    /// chain or the bundle became valid or expired between then and `now`; else that of `verify`.
    fn get_or(
        &self,
        trust: &Arc<Trust>,
        chain: &[CertificateDer<'static>],
        now: i64,
        verify: impl FnOnce(i64) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut last = self.0.lock();
        if let Some(last) = &*last
            && Arc::ptr_eq(&last.trust, trust)
            && last.period.contains(now)
        {
            return last.result.clone();
        }
        let result = verify(now);
        let validities: Option<Vec<_>> = chain.iter().map(Validity::of).collect();
        let period = match validities {
            Some(chain) => Period::around(now, trust.0.validities().chain(&chain)),
            None => Period { first: now, last: now },
        };
        *last = Some(Verification { trust: Arc::clone(trust), period, result: result.clone() });
        result
    }
}

impl Period {
    /// Longest period around `now` in which none of the `validities` starts or ends.
    fn around<'a>(now: i64, validities: impl IntoIterator<Item = &'a Validity>) -> Self {
        let mut period = Self { first: i64::MIN, last: i64::MAX };
        for validity in validities {
            let (start, end) = (validity.not_before.as_second(), validity.not_after.as_second());
            for after in [start, end.saturating_add(1)] {
                if now < after {
                    period.last = period.last.min(after - 1);
                } else {
                    period.first = period.first.max(after);
                }
            }
        }
        period
    }

    fn contains(self, second: i64) -> bool {
        self.first <= second && second <= self.last
    }
}

/// Paths that webpki tries, by names only.
#[derive(Debug, Default)]
struct Paths {
    /// Number of issuers in the chain, counted once for each path to them.
    issuers: usize,
    /// Number of paths that end with the name of a CA.
    to_root: usize,
}

impl Paths {
    /// Counts the paths from the first certificate of `chain` to `roots`, until a limit is exceeded.
    fn of(chain: &[CertificateDer<'_>], roots: &RootCertStore) -> Self {
        // webpki skips certificates that it cannot parse.
        let parsed = chain.iter().filter_map(|certificate| EndEntityCert::try_from(certificate).ok());
        let parsed: Vec<_> = parsed.collect();
        let mut paths = Self::default();
        if !parsed.is_empty() {
            paths.add(&parsed, roots, &mut vec![0]);
        }
        paths
    }

    fn exceed_limits(&self) -> bool {
        self.issuers > MAX_ISSUERS || self.to_root > MAX_PATHS
    }

    /// Adds the paths that start with `path`, which contains indices of `chain`.
    fn add(&mut self, chain: &[EndEntityCert<'_>], roots: &RootCertStore, path: &mut Vec<usize>) {
        let Some(issuer) = path.last().map(|&at| chain[at].issuer()) else { return };
        if roots.roots.iter().any(|root| &*root.subject == issuer) {
            self.to_root += 1;
        }
        for (at, candidate) in chain.iter().enumerate() {
            if candidate.subject() == issuer && !path.contains(&at) && !self.exceed_limits() {
                self.issuers += 1;
                path.push(at);
                self.add(chain, roots, path);
                path.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rcgen::{CertificateParams, CertifiedIssuer, DistinguishedName, DnType, KeyPair, date_time_ymd};

    use super::*;

    fn params(subject: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, subject);
        params
    }

    /// Certificate with these names. Its signature is of a key of this call.
    fn certificate(subject: &str, issuer: &str) -> CertificateDer<'static> {
        let issuer = CertifiedIssuer::self_signed(params(issuer), KeyPair::generate().unwrap()).unwrap();
        params(subject).signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone()
    }

    fn until(year: i32) -> rcgen::Certificate {
        let mut params = params("any");
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(year, 1, 1));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    fn second(time: &str) -> i64 {
        time.parse::<Timestamp>().unwrap().as_second()
    }

    #[test]
    fn chain_is_verified_once_for_a_bundle_until_a_certificate_expires() {
        let trust = |year| Arc::new(Trust::parse(until(year).pem().as_bytes()).unwrap());
        let chain = [until(2030).der().clone(), until(2040).der().clone()];
        let (bundle, reloaded, short) = (trust(2050), trust(2050), trust(2020));
        let last = LastVerification::default();
        let verified = Cell::new(0);
        let verify = |trust: &Arc<Trust>, time: &str| {
            let before = verified.get();
            let result = last.get_or(trust, &chain, second(time), |_| {
                verified.set(before + 1);
                Ok(())
            });
            assert_eq!(result, Ok(()));
            verified.get() - before
        };
        assert_eq!(verify(&bundle, "2010-01-01T00:00:00Z"), 1);
        for time in
            ["2010-01-01T00:00:00Z", "2029-12-31T23:59:59Z", "2000-01-01T00:00:00Z", "2030-01-01T00:00:00Z"]
        {
            assert_eq!(verify(&bundle, time), 0, "{time}");
        }
        // An end of the validity of a certificate of the chain or of the bundle, in either direction.
        assert_eq!(verify(&bundle, "2030-01-01T00:00:01Z"), 1);
        assert_eq!(verify(&bundle, "2039-12-31T00:00:00Z"), 0);
        assert_eq!(verify(&bundle, "2040-01-01T00:00:01Z"), 1);
        assert_eq!(verify(&bundle, "2050-01-01T00:00:01Z"), 1);
        assert_eq!(verify(&bundle, "2010-01-01T00:00:00Z"), 1);
        assert_eq!(verify(&bundle, "1999-12-31T23:59:59Z"), 1);
        // Another bundle, with equal contents too.
        assert_eq!(verify(&bundle, "2010-01-01T00:00:00Z"), 1);
        assert_eq!(verify(&reloaded, "2010-01-01T00:00:00Z"), 1);
        assert_eq!(verify(&reloaded, "2010-01-01T00:00:00Z"), 0);
        assert_eq!(verify(&short, "2010-01-01T00:00:00Z"), 1);
        assert_eq!(verify(&short, "2020-01-01T00:00:01Z"), 1);
    }

    #[test]
    fn failed_verification_is_kept_too() {
        let trust = Arc::new(Trust::parse(until(2050).pem().as_bytes()).unwrap());
        let (chain, last) = ([until(2030).der().clone()], LastVerification::default());
        let now = "2010-01-01T00:00:00Z".parse().unwrap();
        let error = trust.verify(&chain, &last, now).unwrap_err();
        let again = last.get_or(&trust, &chain, now.as_second(), |_| panic!("verified again"));
        assert_eq!(again, Err(error));
    }

    #[test]
    fn chains_with_many_paths_are_rejected() {
        let linear =
            [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f"), ("f", "g"), ("g", "h"), ("h", "ca")];
        let with_root = [("a", "b"), ("b", "ca"), ("ca", "ca")];
        let cross_signed =
            [("a", "b"), ("b", "new"), ("new", "ca"), ("ca", "new"), ("new", "new"), ("ca", "ca")];
        let equal = [("a", "x"), ("x", "x"), ("x", "x"), ("x", "x"), ("x", "x"), ("x", "x"), ("x", "x")];
        let equal_to_root = equal
            .map(|(subject, _)| (subject, "ca"))
            .map(|pair| if pair.0 == "x" { ("ca", "ca") } else { pair });
        let layers =
            [("a", "b"), ("b", "c"), ("b", "c"), ("b", "c"), ("c", "d"), ("c", "d"), ("c", "d"), ("d", "ca")];
        let roots =
            Trust::parse(root("ca").as_bytes()).unwrap().0.valid_at("2010-01-01T00:00:00Z".parse().unwrap());
        for (pairs, is_accepted) in [
            (&linear[..], true),
            (&with_root, true),
            (&cross_signed, true),
            (&equal[..4], true),
            (&equal[..5], false),
            (&equal, false),
            (&equal_to_root[..3], false),
            (&equal_to_root, false),
            (&layers, false),
        ] {
            let chain: Vec<_> = pairs.iter().map(|(subject, issuer)| certificate(subject, issuer)).collect();
            let paths = Paths::of(&chain, &roots);
            assert_eq!(!paths.exceed_limits(), is_accepted, "{pairs:?} {paths:?}");
        }
    }

    /// A CA, PEM.
    fn root(name: &str) -> String {
        params(name).self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }
}
