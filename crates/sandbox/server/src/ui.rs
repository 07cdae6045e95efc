//! Web UI at `/ui`.
//!
//! The page uses the ordinary API from the browser. The server only serves the page, with a content security policy
//! that permits its script and style by digest and connections to this server. Injected script would neither run nor
//! be able to send data elsewhere.

use std::sync::LazyLock;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use kcm_apiserver::http::response::{self, ApiResponse};
use sha2::{Digest, Sha256};

/// The page: markup, style and script.
const PAGE: &str = include_str!("ui/index.html");

/// Path of the page.
const PATH: HeaderValue = HeaderValue::from_static("/ui");

/// Response with the page.
pub(crate) fn page() -> ApiResponse {
    static POLICY: LazyLock<Option<HeaderValue>> = LazyLock::new(|| policy(PAGE));

    let mut response = response::text(PAGE);
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, "text/html; charset=utf-8");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "no-referrer");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    // Without digests the browser runs nothing.
    let nothing = HeaderValue::from_static("default-src 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone().unwrap_or(nothing));
    response
}

/// `true` if the client of `/` is a browser, which is redirected to the page.
pub(crate) fn accepts_html(headers: &HeaderMap) -> bool {
    // kubectl and client-go accept JSON, curl accepts anything.
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accept.flat_map(|value| value.split(',')).any(|range| {
        let media = range.split(';').next().unwrap_or_default();
        media.trim().eq_ignore_ascii_case("text/html")
    })
}

/// Redirects a browser to the page.
pub(crate) fn redirect() -> ApiResponse {
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(header::LOCATION, PATH);
    // The response depends on `Accept`.
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// Builds the content security policy of `page`.
fn policy(page: &str) -> Option<HeaderValue> {
    let script = digest(page, "<script>", "</script>")?;
    let style = digest(page, "<style>", "</style>")?;
    let policy = format!(
        "default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).ok()
}

/// Returns the digest of the text between `begin` and `end` in CSP syntax.
fn digest(page: &str, begin: &str, end: &str) -> Option<String> {
    let (content, _) = page.split_once(begin)?.1.split_once(end)?;
    Some(format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(content))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_contains_digests() {
        let response = page();
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap()).unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(header("content-type"), "text/html; charset=utf-8");
        assert_eq!(header("x-content-type-options"), "nosniff");
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
        for directive in
            ["style-src 'sha256-", "connect-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"]
        {
            assert!(policy.contains(directive), "{directive} in {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
    }

    #[test]
    fn digest_covers_the_content() {
        // printf %s "alert('Hello, world.');" | openssl dgst -sha256 -binary | base64
        let page = "<p><script>alert('Hello, world.');</script></p>";
        let digest = digest(page, "<script>", "</script>");
        assert_eq!(digest.as_deref(), Some("sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng="));
        assert_eq!(policy("<style></style>"), None);
    }

    #[test]
    fn page_has_no_external_references() {
        for outside in ["http:", "https:", "//cdn", "src=", "@import", "url(", "import(", "ws:", "sendBeacon"]
        {
            assert!(!PAGE.contains(outside), "{outside}");
        }
        // The policy covers one script and one style, and forbids inline attributes.
        assert_eq!((PAGE.matches("<script").count(), PAGE.matches("<style").count()), (1, 1));
        assert!(!PAGE.contains("style=\"") && !PAGE.contains("onclick="));
    }

    #[test]
    fn page_does_not_parse_data_as_markup() {
        for way in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "srcdoc"]
        {
            assert!(!PAGE.contains(way), "{way}");
        }
    }

    #[test]
    fn browsers_are_recognized() {
        let wanted = |accept: &'static str| {
            accepts_html(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]))
        };
        assert!(wanted("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
        assert!(wanted("application/xml, text/html;q=0.9"));
        assert!(!wanted("*/*"));
        assert!(!wanted("application/json, */*"));
        assert!(!accepts_html(&HeaderMap::new()));
    }
}
