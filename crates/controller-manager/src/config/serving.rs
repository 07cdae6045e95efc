//! Options of the secure port, of authentication and of authorization.
//!
//! Upstream counterpart: `k8s.io/apiserver/pkg/server/options`.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use kcm_serving::{
    AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions, ServingOptions, SniCertKey, TlsVersion,
};

use super::Diagnostics;
use crate::flags::Flags;

/// Names of Go's cipher suites. The server warns about those that the TLS library does not implement.
const SUITES: [&str; 27] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Numbers of Go's key exchanges.
const CURVES: [i64; 7] = [23, 24, 25, 29, 4587, 4588, 4589];

pub(crate) fn serving(flags: &Flags, diagnostics: &mut Diagnostics) -> ServingOptions {
    let port = flags.int("secure-port");
    let secure_port = u16::try_from(port).unwrap_or_else(|_| {
        diagnostics.error(match port {
            // Upstream's message, although 0 does not turn the port off there.
            ..0 => format!(
                "--secure-port {port} must be between 0 and 65535, inclusive. 0 for turning off secure port"
            ),
            _ => format!(
                "--secure-port {port} must be between 1 and 65535, inclusive. It cannot be turned off with 0"
            ),
        });
        0
    });
    let options = ServingOptions {
        bind_address: flags.address("bind-address").unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        secure_port,
        cert_dir: path(flags, "cert-dir"),
        tls_cert_file: path(flags, "tls-cert-file"),
        tls_private_key_file: path(flags, "tls-private-key-file"),
        tls_sni_cert_keys: sni_cert_keys(flags),
        tls_cipher_suites: flags.list("tls-cipher-suites").to_vec(),
        tls_min_version: None,
        http2_max_streams_per_connection: u32::try_from(
            flags.int("http2-max-streams-per-connection").clamp(0, u32::MAX.into()),
        )
        .unwrap_or_default(),
        disable_http2: flags.bool("disable-http2-serving"),
        permit_address_sharing: flags.bool("permit-address-sharing"),
        permit_port_sharing: flags.bool("permit-port-sharing"),
    };
    // If the port is off, its other options are not validated, as upstream.
    if secure_port == 0 {
        return options;
    }
    if options.tls_cert_file.is_some() != options.tls_private_key_file.is_some() {
        diagnostics.error("missing filename for serving cert");
    }
    check_suites(&options.tls_cipher_suites, diagnostics);
    check_curves(flags.ints("tls-curve-preferences"), diagnostics);
    ServingOptions { tls_min_version: min_version(flags.text("tls-min-version"), diagnostics), ..options }
}

fn sni_cert_keys(flags: &Flags) -> Vec<SniCertKey> {
    let pairs = flags.cert_keys("tls-sni-cert-key").iter().map(|pair| SniCertKey {
        cert_file: (&pair.cert_file).into(),
        key_file: (&pair.key_file).into(),
        names: pair.names.clone(),
    });
    pairs.collect()
}

fn check_suites(suites: &[String], diagnostics: &mut Diagnostics) {
    if let Some(unknown) = suites.iter().find(|suite| !SUITES.contains(&suite.as_str())) {
        diagnostics.error(format!("Cipher suite {unknown} not supported or doesn't exist"));
    }
}

fn check_curves(curves: &[i64], diagnostics: &mut Diagnostics) {
    for (index, curve) in curves.iter().enumerate() {
        if !(1..=i64::from(u16::MAX)).contains(curve) {
            diagnostics.error(format!("curve preference {curve} is out of range (must be 1-{})", u16::MAX));
        } else if curves[..index].contains(curve) {
            diagnostics.error(format!("duplicate curve preference {curve}"));
        } else if !CURVES.contains(curve) {
            diagnostics.error(format!("curve preference {curve} is not supported by the current Go version"));
        }
    }
    if !curves.is_empty() {
        diagnostics.warning("--tls-curve-preferences has no effect: the TLS library chooses");
    }
}

fn min_version(name: &str, diagnostics: &mut Diagnostics) -> Option<TlsVersion> {
    match name {
        "" => None,
        "VersionTLS10" | "VersionTLS11" => {
            diagnostics.warning(format!("--tls-min-version={name} is not supported, using VersionTLS12"));
            Some(TlsVersion::Tls12)
        }
        "VersionTLS12" => Some(TlsVersion::Tls12),
        "VersionTLS13" => Some(TlsVersion::Tls13),
        _ => {
            diagnostics.error(format!("unknown tls version {name:?}"));
            None
        }
    }
}

pub(crate) fn authentication(flags: &Flags, diagnostics: &mut Diagnostics) -> AuthenticationOptions {
    for (name, standard) in [
        ("requestheader-username-headers", Some("X-Remote-User")),
        ("requestheader-group-headers", Some("X-Remote-Group")),
        ("requestheader-extra-headers-prefix", Some("X-Remote-Extra-")),
        ("requestheader-allowed-names", None),
    ] {
        let values = flags.list(name);
        if values.iter().any(|value| value.trim().is_empty()) {
            diagnostics.error(format!("empty value in {name:?}"));
        }
        if let Some(standard) = standard
            && !values.is_empty()
            && !values.iter().any(|value| value.eq_ignore_ascii_case(standard))
        {
            diagnostics
                .warning(format!("--{name} does not contain {standard}, which API aggregation requires"));
        }
    }
    AuthenticationOptions {
        kubeconfig: path(flags, "authentication-kubeconfig"),
        skip_lookup: flags.bool("authentication-skip-lookup"),
        tolerate_lookup_failure: flags.bool("authentication-tolerate-lookup-failure"),
        token_cache_ttl: diagnostics.duration(flags, "authentication-token-webhook-cache-ttl"),
        client_ca_file: path(flags, "client-ca-file"),
        request_header: RequestHeaderOptions {
            client_ca_file: path(flags, "requestheader-client-ca-file"),
            allowed_names: flags.list("requestheader-allowed-names").to_vec(),
            username_headers: flags.list("requestheader-username-headers").to_vec(),
            uid_headers: flags.list("requestheader-uid-headers").to_vec(),
            group_headers: flags.list("requestheader-group-headers").to_vec(),
            extra_header_prefixes: flags.list("requestheader-extra-headers-prefix").to_vec(),
        },
    }
}

pub(crate) fn authorization(flags: &Flags, diagnostics: &mut Diagnostics) -> AuthorizationOptions {
    let always_allow_paths = flags.list("authorization-always-allow-paths");
    if flags.int("secure-port") != 0 {
        for path in always_allow_paths {
            let path = path.strip_prefix('/').unwrap_or(path);
            if path.strip_suffix('*').unwrap_or(path).contains('*') {
                diagnostics.error(format!("only trailing * allowed in {path:?}"));
            }
        }
    }
    AuthorizationOptions {
        kubeconfig: path(flags, "authorization-kubeconfig"),
        always_allow_paths: always_allow_paths.to_vec(),
        authorized_ttl: diagnostics.duration(flags, "authorization-webhook-cache-authorized-ttl"),
        unauthorized_ttl: diagnostics.duration(flags, "authorization-webhook-cache-unauthorized-ttl"),
    }
}

fn path(flags: &Flags, name: &str) -> Option<PathBuf> {
    Some(flags.text(name)).filter(|path| !path.is_empty()).map(PathBuf::from)
}
