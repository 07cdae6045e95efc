//! Addresses of API servers.

use http::Uri;

/// Parses `host`, `host:port` or a URL.
///
/// As upstream, the default scheme is `https` if there are TLS credentials, and `http` otherwise.
pub(super) fn parse(text: &str, has_tls: bool) -> Result<Uri, String> {
    let scheme = if has_tls { "https" } else { "http" };
    let whole = if text.contains("://") { text.to_owned() } else { format!("{scheme}://{text}") };
    let uri: Uri = whole.parse().map_err(|error| format!("address {text:?}: {error}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(uri),
        (Some("http" | "https"), _) => Err(format!("address {text:?}: no host")),
        _ => Err(format!("address {text:?}: the scheme must be http or https")),
    }
}

/// Returns an address without a trailing slash.
pub(super) fn show(uri: &Uri) -> String {
    uri.to_string().trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_scheme() {
        assert_eq!(show(&parse("10.0.0.1:8080", false).unwrap()), "http://10.0.0.1:8080");
        assert_eq!(show(&parse("api.example:6443", true).unwrap()), "https://api.example:6443");
        assert_eq!(show(&parse("https://[::1]:6443/base/", false).unwrap()), "https://[::1]:6443/base");
    }

    #[test]
    fn invalid_address() {
        for text in ["", "ftp://x", "http://", "http://a b", ":::"] {
            let error = parse(text, false).unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
