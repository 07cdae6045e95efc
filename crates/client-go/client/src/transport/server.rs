//! Addresses of API servers as people write them.

use http::Uri;

/// The address that `text` means: `host`, `host:port` or a URL, with or without a path.
///
/// Without a scheme it is `https` where there are TLS credentials, otherwise `http`, as upstream.
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

/// What to call an address: without a slash at the end.
pub(super) fn show(uri: &Uri) -> String {
    uri.to_string().trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_without_a_scheme_gets_the_one_that_the_credentials_call_for() {
        assert_eq!(show(&parse("10.0.0.1:8080", false).unwrap()), "http://10.0.0.1:8080");
        assert_eq!(show(&parse("api.example:6443", true).unwrap()), "https://api.example:6443");
        assert_eq!(show(&parse("https://[::1]:6443/base/", false).unwrap()), "https://[::1]:6443/base");
    }

    #[test]
    fn address_that_is_none_is_refused_with_its_text() {
        for text in ["", "ftp://x", "http://", "http://a b", ":::"] {
            let error = parse(text, false).unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
