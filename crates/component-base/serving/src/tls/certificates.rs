//! Serving certificates, and their selection by server name.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};

use kcm_clock::Clock;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::{Name, SelfSigned, pem, provider::provider};
use crate::{
    ServingError, ServingOptions,
    files::{File, Watched},
};

/// Host name in a generated certificate, as upstream.
const HOST: &str = "localhost";

/// Certificates of a server: a default, and those for server names. Files are reloaded when they change.
#[derive(Debug)]
pub(super) struct Certificates {
    default: Source,
    named: Vec<Named>,
}

#[derive(Debug)]
enum Source {
    Generated(Arc<CertifiedKey>),
    Files(Watched<Pair>),
}

#[derive(Debug)]
struct Named {
    pair: Watched<Pair>,
    /// Server names. Empty selects the names in the certificate.
    names: Vec<String>,
}

/// Certificate and private key, and the host names in the certificate.
#[derive(Debug)]
struct Pair {
    key: Arc<CertifiedKey>,
    names: Vec<String>,
}

impl Certificates {
    /// Loads or generates the certificates of `options`.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or written, or has invalid contents.
    pub(super) fn new(
        options: &ServingOptions,
        component: &str,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ServingError> {
        let default = match (&options.tls_cert_file, &options.tls_private_key_file) {
            (Some(certificate), Some(key)) => Source::Files(open(certificate, key, clock)?),
            (None, None) => generated(options, component, clock)?,
            (Some(path), None) | (None, Some(path)) => {
                let cause = "certificate and private key must be set together".to_owned();
                return Err(ServingError::File { what: "file for TLS", path: path.clone(), cause });
            }
        };
        let named = options.tls_sni_cert_keys.iter().map(|files| {
            let pair = open(&files.cert_file, &files.key_file, clock)?;
            Ok(Named { pair, names: files.names.iter().map(|name| name.to_ascii_lowercase()).collect() })
        });
        Ok(Self { default, named: named.collect::<Result<_, ServingError>>()? })
    }

    /// Selects the certificate for a server name. Configured names precede names in certificates, exact names precede
    /// wildcards, and earlier pairs precede later ones.
    fn choose(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        self.named_for(name).unwrap_or_else(|| match &self.default {
            Source::Generated(key) => Arc::clone(key),
            Source::Files(pair) => Arc::clone(&pair.current().key),
        })
    }

    fn named_for(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let name = name.filter(|_| !self.named.is_empty())?.trim_end_matches('.').to_ascii_lowercase();
        let any = name.split_once('.').map(|(_, domain)| format!("*.{domain}"));
        [Some(name), any].into_iter().flatten().find_map(|name| {
            let given = self.named.iter().find(|named| named.names.contains(&name));
            let given = given.map(|named| named.pair.current());
            let in_certificate = || {
                let unnamed = self.named.iter().filter(|named| named.names.is_empty());
                unnamed.map(|named| named.pair.current()).find(|pair| pair.names.contains(&name))
            };
            given.or_else(in_certificate).map(|pair| Arc::clone(&pair.key))
        })
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.choose(hello.server_name()))
    }
}

fn open(certificate: &Path, key: &Path, clock: &Arc<dyn Clock>) -> Result<Watched<Pair>, ServingError> {
    let files = vec![("certificate file", certificate.to_owned()), ("private key file", key.to_owned())];
    Watched::open(files, parse_files, Arc::clone(clock))
}

fn parse_files(files: &[File]) -> Result<Pair, ServingError> {
    let [certificate, key] = files else {
        return Err(ServingError::Tls("a certificate and a private key must be two files".to_owned()));
    };
    let chain = pem::chain(&certificate.content).map_err(|cause| certificate.error(cause))?;
    let private = pem::private_key(&key.content).map_err(|cause| key.error(cause))?;
    let name = chain.first().map(Name::of).transpose().map_err(|cause| certificate.error(cause))?;
    // An error here concerns the key, or the pair.
    let pair = CertifiedKey::from_der(chain, private, &provider())
        .map_err(|error| key.error(format_args!("cannot be used with {:?}: {error}", certificate.path)))?;
    Ok(Pair { key: Arc::new(pair), names: name.map(host_names).unwrap_or_default() })
}

/// Host names in a certificate, in lower case, including the common name if it is a host name.
fn host_names(name: Name) -> Vec<String> {
    let mut names = name.dns_names;
    let common = name.common_name;
    let is_host = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if common.parse::<IpAddr>().is_err() && common.trim_start_matches("*.").split('.').all(is_host) {
        names.push(common);
    }
    names.iter().map(|name| name.to_ascii_lowercase()).collect()
}

/// Generated self-signed certificate. It is stored in `cert_dir`, if set, and used again after a restart.
fn generated(
    options: &ServingOptions,
    component: &str,
    clock: &Arc<dyn Clock>,
) -> Result<Source, ServingError> {
    let Some(directory) = options.cert_dir.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
        let generated = generate(options, clock)?;
        tracing::info!("Generated self-signed cert in-memory");
        return Ok(Source::Generated(Arc::new(generated.certified_key()?)));
    };
    let certificate = directory.join(format!("{component}.crt"));
    let key = directory.join(format!("{component}.key"));
    match (certificate.exists(), key.exists()) {
        (true, true) => {}
        (false, false) => {
            write(&generate(options, clock)?, &certificate, &key)?;
            tracing::info!(?certificate, ?key, "Generated self-signed cert");
        }
        (_, has_key) => {
            let path = if has_key { certificate } else { key };
            let cause = "is missing, certificate and key must be supplied as a pair".to_owned();
            return Err(ServingError::File { what: "file for TLS", path, cause });
        }
    }
    open(&certificate, &key, clock).map(Source::Files)
}

fn generate(options: &ServingOptions, clock: &Arc<dyn Clock>) -> Result<SelfSigned, ServingError> {
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let bound = options.bind_address;
    if !bound.is_unspecified() && !addresses.contains(&bound) {
        addresses.push(bound);
    }
    SelfSigned::new(HOST, &[HOST], &addresses, clock.now())
}

/// Writes certificate and key. The file of the key is created with mode 0600.
fn write(generated: &SelfSigned, certificate: &Path, key: &Path) -> Result<(), ServingError> {
    let failed = |what: &'static str, path: &Path, error: &io::Error| ServingError::File {
        what,
        path: path.to_owned(),
        cause: format!("cannot be written: {error}"),
    };
    if let Some(directory) = certificate.parent() {
        fs::create_dir_all(directory).map_err(|error| failed("certificate directory", directory, &error))?;
    }
    let write = |path: &Path, mode: u32, content: &str| {
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
        io::Write::write_all(&mut file, content.as_bytes())
    };
    write(key, 0o600, &generated.key_pem).map_err(|error| failed("private key file", key, &error))?;
    write(certificate, 0o644, &generated.certificate_pem)
        .map_err(|error| failed("certificate file", certificate, &error))
}

#[cfg(test)]
mod tests;
