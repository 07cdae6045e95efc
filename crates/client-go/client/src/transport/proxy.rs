//! Proxies: `proxy-url` of a kubeconfig, and the environment variables that Go's `net/http` reads.

use std::{fmt, net::IpAddr};

use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use super::auth_headers::basic;

/// Maximum length of a user name or password of SOCKS5, in bytes.
const MAX_SOCKS_FIELD: usize = 255;

/// Proxy settings of the process environment. The default is no proxy.
///
/// A `proxy-url` in the kubeconfig takes precedence.
///
/// Upstream counterpart: `http.ProxyFromEnvironment`, which client-go uses.
#[derive(Clone, Default)]
pub struct ProxyEnvironment {
    http: Option<Variable>,
    https: Option<Variable>,
    no_proxy: String,
}

/// An environment variable that is set.
#[derive(Clone)]
struct Variable {
    name: &'static str,
    value: String,
}

impl ProxyEnvironment {
    /// Reads `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, or their lower-case forms if those are unset or empty, with
    /// `variable`.
    ///
    /// Pass a closure on [`std::env::var`] to use the process environment.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| {
                let value = variable(name).filter(|value| !value.is_empty())?;
                Some(Variable { name, value })
            })
        };
        Self {
            http: first(["HTTP_PROXY", "http_proxy"]),
            https: first(["HTTPS_PROXY", "https_proxy"]),
            no_proxy: first(["NO_PROXY", "no_proxy"]).map(|found| found.value).unwrap_or_default(),
        }
    }

    /// Returns the proxy for requests to `server`, or `None` for a direct connection.
    ///
    /// # Errors
    ///
    /// If the variable that applies to `server` is invalid. The error does not contain its value.
    ///
    /// DEVIATION: upstream ignores an invalid variable and connects directly.
    pub(super) fn proxy_for(&self, server: &Uri) -> Result<Option<Proxy>, String> {
        let variable = if server.scheme_str() == Some("https") { &self.https } else { &self.http };
        let Some(variable) = variable else { return Ok(None) };
        let host = server.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if bypasses(&self.no_proxy, host, port(server)) {
            return Ok(None);
        }
        let text = &variable.value;
        let proxy =
            if text.contains("://") { Proxy::parse(text) } else { Proxy::parse(&format!("http://{text}")) };
        proxy.map(Some).map_err(|reason| format!("environment variable {}: {reason}", variable.name))
    }
}

/// Values can contain passwords.
impl fmt::Debug for ProxyEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyEnvironment").field("no_proxy", &self.no_proxy).finish_non_exhaustive()
    }
}

/// Port of a server, explicit or by its scheme.
pub(super) fn port(server: &Uri) -> u16 {
    server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 })
}

/// `true` if connections to `host` and `port` use no proxy, by the rules of Go for `NO_PROXY`.
///
/// Loopback addresses and `localhost` never use a proxy. Entries are `*`, CIDRs, IP addresses and domains, the latter two
/// with an optional port. A domain matches its subdomains; with a leading `.` or `*.` it matches those only.
fn bypasses(no_proxy: &str, host: &str, port: u16) -> bool {
    let ip = host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    if host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) {
        return true;
    }
    let (host, port) = (host.to_lowercase(), port.to_string());
    no_proxy.split(',').map(|entry| entry.trim().to_lowercase()).filter(|entry| !entry.is_empty()).any(
        |entry| {
            if entry == "*" {
                return true;
            }
            if let Some((network, bits)) = cidr(&entry) {
                return ip.is_some_and(|ip| contains(network, bits, ip));
            }
            let (name, its_port) = split_port(&entry);
            if name.is_empty() || !(its_port.is_empty() || its_port == port) {
                return false;
            }
            if let Ok(address) = name.parse::<IpAddr>() {
                return ip == Some(address.to_canonical());
            }
            let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
            if name.starts_with('.') {
                return host.ends_with(name);
            }
            host == name || host.strip_suffix(name).is_some_and(|subdomain| subdomain.ends_with('.'))
        },
    )
}

fn cidr(entry: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = entry.split_once('/')?;
    let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse().ok()?);
    let width = if address.is_ipv4() { 32 } else { 128 };
    (bits <= width).then_some((address, bits))
}

fn contains(network: IpAddr, bits: u32, ip: IpAddr) -> bool {
    match (network, ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            network.to_bits() & mask == ip.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(ip)) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            network.to_bits() & mask == ip.to_bits() & mask
        }
        _ => false,
    }
}

/// Splits `host:port` or `[IPv6]:port`. The port is empty if there is none.
fn split_port(entry: &str) -> (&str, &str) {
    if let Some((host, port)) = entry.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        return (host, port);
    }
    match entry.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, port),
        _ => (entry, ""),
    }
}

/// Protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Https,
    Socks5,
}

/// Address of a proxy, with its credentials.
#[derive(Clone)]
pub(super) struct Proxy {
    pub(super) protocol: Protocol,
    /// Scheme, host and port, without credentials.
    pub(super) uri: Uri,
    /// User name and password.
    pub(super) credentials: Option<(String, String)>,
}

impl Proxy {
    /// Parses the URL of a proxy.
    ///
    /// # Errors
    ///
    /// A reason without the URL, which can contain a password.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("invalid proxy URL: no scheme")?;
        let (protocol, default_port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (Protocol::Http, 80),
            "https" => (Protocol::Https, 443),
            "socks5" | "socks5h" => (Protocol::Socks5, 1080),
            _ => return Err("unsupported scheme of the proxy URL, must be http, https, or socks5"),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, authority),
        };
        let invalid = |_| "invalid proxy URL: invalid host or port";
        let parsed: Uri = format!("http://{address}/").parse().map_err(invalid)?;
        let host = parsed.host().filter(|host| !host.is_empty()).ok_or("invalid proxy URL: no host")?;
        if parsed.port().is_none() && address.trim_start_matches(host).len() > 1 {
            return Err("invalid proxy URL: invalid host or port");
        }
        let port = parsed.port_u16().unwrap_or(default_port);
        let scheme = scheme.to_ascii_lowercase();
        let uri = format!("{scheme}://{host}:{port}/").parse().map_err(invalid)?;
        let credentials = user.map(credentials).transpose()?;
        if protocol == Protocol::Socks5
            && credentials.as_ref().is_some_and(|(user, password)| {
                user.len() > MAX_SOCKS_FIELD || password.len() > MAX_SOCKS_FIELD
            })
        {
            return Err("invalid proxy URL: user name or password too long for SOCKS5");
        }
        Ok(Self { protocol, uri, credentials })
    }

    /// Value of the header `Proxy-Authorization`.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        let (user, password) = self.credentials.as_ref()?;
        basic(user, password).ok()
    }
}

/// Without the credentials.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.uri.to_string().trim_end_matches('/'))
    }
}

fn credentials(text: &str) -> Result<(String, String), &'static str> {
    let decode = |text| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(String::from).map_err(|_| "invalid proxy URL: invalid user name or password")
    };
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    Ok((decode(user)?, decode(password)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_follows_the_rules_of_go() {
        struct Case {
            no_proxy: &'static str,
            host: &'static str,
            bypasses: bool,
        }
        let case = |no_proxy, host, bypasses| Case { no_proxy, host, bypasses };
        let cases = [
            case("", "api.example", false),
            case("", "localhost", true),
            case("", "LOCALHOST", false),
            case("", "127.8.0.1", true),
            case("", "::1", true),
            case("", "::ffff:127.0.0.1", true),
            case("*", "api.example", true),
            case("x, *", "10.0.0.1", true),
            case("*.*", "api.example", false),
            case("10.0.0.1", "10.0.0.1", true),
            case("10.0.0.1", "10.0.0.12", false),
            case("10.0.0.1:6443", "10.0.0.1", true),
            case("10.0.0.1:443", "10.0.0.1", false),
            case("[fd00::1]:6443", "fd00::1", true),
            case("[fd00::1]:443", "fd00::1", false),
            case("fd00:0::1", "fd00::1", true),
            case("10.96.0.0/12", "10.97.0.1", true),
            case("10.96.0.0/12", "10.112.0.1", false),
            case("10.96.0.1/12", "10.97.0.1", true),
            case("0.0.0.0/0", "1.2.3.4", true),
            case("0.0.0.0/0", "fd00::1", false),
            case("10.0.0.0/33", "10.0.0.1", false),
            case("fd00::/8", "fdff::1", true),
            case("::/0", "fdff::1", true),
            case("10.0.0.0/8", "api.example", false),
            case("example", "example", true),
            case("example", "API.Example", true),
            case("Example", "api.example", true),
            case("example", "notexample", false),
            case(".example", "api.example", true),
            case(".example", "example", false),
            case("*.example", "api.example", true),
            case("*.example", "example", false),
            case("example:6443", "api.example", true),
            case("example:443", "api.example", false),
            case(" , :6443, example", "api.example", true),
            case(" , :6443,", "api.example", false),
        ];
        for Case { no_proxy, host, bypasses: expected } in cases {
            assert_eq!(bypasses(no_proxy, host, 6443), expected, "{no_proxy:?} {host}");
        }
    }

    fn environment(variables: &[(&str, &str)]) -> ProxyEnvironment {
        ProxyEnvironment::read(|name| {
            variables.iter().find(|(its, _)| *its == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn proxy(variables: &[(&str, &str)], server: &'static str) -> String {
        match environment(variables).proxy_for(&Uri::from_static(server)) {
            Ok(proxy) => proxy.map_or_else(|| "direct".to_owned(), |proxy| proxy.to_string()),
            Err(error) => error,
        }
    }

    #[test]
    fn variable_of_the_scheme_applies() {
        let all = [("HTTPS_PROXY", "http://a"), ("https_proxy", "http://b"), ("http_proxy", "c:3128")];
        assert_eq!(proxy(&all, "https://api.example"), "http://a:80");
        assert_eq!(proxy(&all, "http://api.example"), "http://c:3128");
        assert_eq!(proxy(&all, "https://127.0.0.1"), "direct");
        assert_eq!(
            proxy(&[("HTTPS_PROXY", ""), ("https_proxy", "socks5://b")], "https://x"),
            "socks5://b:1080"
        );
        assert_eq!(proxy(&[("HTTP_PROXY", "http://a")], "https://x"), "direct");
        assert_eq!(proxy(&[("ALL_PROXY", "http://a")], "https://x"), "direct");
        assert_eq!(proxy(&[all[0], ("no_proxy", "[fd00::1]:443")], "https://[fd00::1]"), "direct");
    }

    #[test]
    fn invalid_variable_is_named_without_its_value() {
        for value in ["ftp://u:s3cr3t@p", "http://u:s3cr3t@", "http://u:s3cr3t@p:port", "http://u:s3cr3t@a b"]
        {
            let error = proxy(&[("https_proxy", value)], "https://api.example");
            assert!(error.starts_with("environment variable https_proxy: "), "{value}: {error}");
            assert!(!error.contains("s3cr3t"), "{error}");
        }
        // No proxy is used for localhost.
        assert_eq!(proxy(&[("https_proxy", "ftp://p")], "https://localhost"), "direct");
    }

    #[test]
    fn debug_shows_no_password() {
        let environment = environment(&[("HTTPS_PROXY", "http://u:s3cr3t@p"), ("NO_PROXY", "x")]);
        assert_eq!(format!("{environment:?}"), "ProxyEnvironment { no_proxy: \"x\", .. }");
    }

    #[test]
    fn credentials_are_decoded_and_not_shown() {
        let proxy = Proxy::parse("https://us%65r:p%40ss@proxy.example:8443/path").unwrap();
        assert_eq!(proxy.to_string(), "https://proxy.example:8443");
        assert_eq!(proxy.credentials, Some(("user".to_owned(), "p@ss".to_owned())));
        assert_eq!(proxy.authorization().unwrap(), "Basic dXNlcjpwQHNz");
        let proxy = Proxy::parse("SOCKS5://user@[::1]").unwrap();
        assert_eq!(proxy.to_string(), "socks5://[::1]:1080");
        assert_eq!(proxy.credentials, Some(("user".to_owned(), String::new())));
    }
}
