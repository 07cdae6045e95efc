use std::path::PathBuf;

use kcm_clock::FakeClock;

use super::*;

#[path = "../../../../../../fuzz/mutate.rs"]
mod mutate;

fn options() -> ServingOptions {
    ServingOptions::default()
}

fn open(options: &ServingOptions) -> Result<Certificates, String> {
    let clock: Arc<dyn Clock> = Arc::new(FakeClock::new("2026-11-21T08:00:00Z".parse().unwrap()));
    Certificates::new(options, "kube-controller-manager", &clock).map_err(|error| error.to_string())
}

fn shown(certificates: &Certificates) -> Name {
    Name::of(&certificates.choose(None).cert[0]).unwrap()
}

#[test]
fn generated_certificate_has_upstreams_names() {
    let certificates = open(&options()).unwrap();
    let name = shown(&certificates);
    assert_eq!(name.common_name, "localhost@1795248000");
    assert_eq!(name.dns_names, ["localhost"]);
    let authority = Name::of(&certificates.choose(None).cert[1]).unwrap();
    assert_eq!(authority.common_name, "localhost-ca@1795248000");
}

#[test]
fn generated_certificate_is_valid_for_its_authority() {
    use rustls::{
        RootCertStore,
        client::WebPkiServerVerifier,
        client::danger::ServerCertVerifier,
        pki_types::{ServerName, UnixTime},
    };
    let now: kcm_clock::Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
    let made = SelfSigned::new("localhost", &["localhost"], &["10.0.0.1".parse().unwrap()], now).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(pem::chain(made.authority_pem.as_bytes()).unwrap().remove(0)).unwrap();
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    let chain = pem::chain(made.certificate_pem.as_bytes()).unwrap();
    let verify = |name: &str, hours: i64| {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let at = u64::try_from(now.as_second() + hours * 3600).unwrap();
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at));
        verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], at).is_ok()
    };
    assert!(verify("localhost", 0) && verify("10.0.0.1", 0) && verify("localhost", 364 * 24));
    assert!(!verify("example.org", 0) && !verify("localhost", 366 * 24) && !verify("localhost", -2));
}

#[test]
fn generated_certificate_is_stored_and_reused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("certs");
    let options = ServingOptions { cert_dir: Some(directory.clone()), ..options() };
    let first = open(&options).unwrap().choose(None).cert.clone();
    let key = directory.join("kube-controller-manager.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(open(&options).unwrap().choose(None).cert, first);
    fs::remove_file(&key).unwrap();
    let expected =
        format!("file for TLS {key:?}: is missing, certificate and key must be supplied as a pair");
    assert_eq!(open(&options).unwrap_err(), expected);
}

#[test]
fn errors_name_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let now = "2026-11-21T08:00:00Z".parse().unwrap();
    let [one, other] = [(); 2].map(|()| SelfSigned::new("a", &["a"], &[], now).unwrap());
    let (certificate, key) = (file("a.crt", &one.certificate_pem), file("a.key", &one.key_pem));
    let other_key = file("b.key", &other.key_pem);
    let garbage = file("garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let nothing = file("nothing", "");
    let missing = directory.path().join("missing");
    let fails = |certificate: Option<&PathBuf>, key: Option<&PathBuf>| {
        let options = ServingOptions {
            tls_cert_file: certificate.cloned(),
            tls_private_key_file: key.cloned(),
            ..options()
        };
        let error = open(&options).unwrap_err();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    assert!(
        open(&ServingOptions {
            tls_cert_file: Some(certificate.clone()),
            tls_private_key_file: Some(key.clone()),
            ..options()
        })
        .is_ok()
    );
    for (error, begins) in [
        (fails(Some(&missing), Some(&key)), format!("certificate file {missing:?}: No such file")),
        (fails(Some(&nothing), Some(&key)), format!("certificate file {nothing:?}: no certificate found")),
        (fails(Some(&garbage), Some(&key)), format!("certificate file {garbage:?}: ")),
        (fails(Some(&certificate), Some(&missing)), format!("private key file {missing:?}: No such file")),
        (
            fails(Some(&certificate), Some(&nothing)),
            format!("private key file {nothing:?}: no private key found"),
        ),
        (
            fails(Some(&certificate), Some(&certificate)),
            format!("private key file {certificate:?}: no private key"),
        ),
        (
            fails(Some(&certificate), Some(&other_key)),
            format!("private key file {other_key:?}: cannot be used with "),
        ),
        (
            fails(Some(&certificate), None),
            format!("file for TLS {certificate:?}: certificate and private key must be set together"),
        ),
    ] {
        assert!(error.starts_with(&begins), "{error}");
    }
}

mod mutated {
    use rustls::pki_types::CertificateDer;

    use super::*;

    /// Parses a file with a certificate and a key.
    fn pem(data: &[u8]) {
        let file = |what| File { what, path: PathBuf::from("pem"), content: data.to_vec() };
        drop(parse_files(&[file("certificate file"), file("private key file")]));
    }

    /// Parses a certificate.
    fn der(data: &[u8]) {
        drop(Name::of(&CertificateDer::from(data)).map(host_names));
    }

    #[test]
    fn reads_mutated_certificates() {
        mutate::check("pem", 300, pem);
        mutate::check("der", 2000, der);
    }
}
