//! The page for people who would rather look.
//!
//! It is a client like any other: everything it shows comes through the ordinary API, by lists and watches of the
//! browser's. So the server only hands it out, with headers that let it do just that: run its own script and
//! style, known by their digests, and talk to this server. Even if something in an object got past the escaping,
//! the browser would not run it, and there is nowhere to send what was read.

use std::sync::LazyLock;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use sha2::{Digest, Sha256};

use super::answer::{self, Answer};

/// The page: markup, style and script in one file.
const PAGE: &str = include_str!("ui/index.html");

/// Where it is served.
const PATH: HeaderValue = HeaderValue::from_static("/ui");

/// The page.
pub(super) fn page() -> Answer {
    static POLICY: LazyLock<Option<HeaderValue>> = LazyLock::new(|| policy(PAGE));

    let mut answer = answer::text(PAGE);
    let headers = answer.headers_mut();
    let mut set = |name: HeaderName, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, "text/html; charset=utf-8");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "no-referrer");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    // Without digests nothing may run: a blank page, and a failing test, instead of an open one.
    let nothing = HeaderValue::from_static("default-src 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone().unwrap_or(nothing));
    answer
}

/// Whether who asks for `/` is a browser, which wants the page rather than a list of paths.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    // kubectl and client-go ask for JSON, curl for anything.
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accept.flat_map(|value| value.split(',')).any(|range| {
        let media = range.split(';').next().unwrap_or_default();
        media.trim().eq_ignore_ascii_case("text/html")
    })
}

/// Sends a browser to the page.
pub(super) fn redirect() -> Answer {
    let mut answer = Response::new(Empty::new().boxed_unsync());
    *answer.status_mut() = StatusCode::FOUND;
    answer.headers_mut().insert(header::LOCATION, PATH);
    // What `/` answers depends on who asks.
    answer.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    answer
}

/// What a browser may do with `page`: nothing but run its script, apply its style and ask this server.
fn policy(page: &str) -> Option<HeaderValue> {
    let script = digest(page, "<script>", "</script>")?;
    let style = digest(page, "<style>", "</style>")?;
    let policy = format!(
        "default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).ok()
}

/// The digest, as a policy spells it, of what is between `begin` and `end`.
fn digest(page: &str, begin: &str, end: &str) -> Option<String> {
    let (content, _) = page.split_once(begin)?.1.split_once(end)?;
    Some(format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(content))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_served_with_a_policy_that_names_its_script_and_style() {
        let answer = page();
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap()).unwrap();
        assert_eq!(answer.status(), 200);
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
    fn digest_is_that_of_the_content() {
        // printf %s "alert('Hello, world.');" | openssl dgst -sha256 -binary | base64
        let page = "<p><script>alert('Hello, world.');</script></p>";
        let digest = digest(page, "<script>", "</script>");
        assert_eq!(digest.as_deref(), Some("sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng="));
        assert_eq!(policy("<style></style>"), None);
    }

    #[test]
    fn page_refers_to_nothing_outside() {
        for outside in ["http:", "https:", "//cdn", "src=", "@import", "url(", "import(", "ws:", "sendBeacon"]
        {
            assert!(!PAGE.contains(outside), "{outside}");
        }
        // One script and one style, of which the policy has the digests, and nothing that it would forbid.
        assert_eq!((PAGE.matches("<script").count(), PAGE.matches("<style").count()), (1, 1));
        assert!(!PAGE.contains("style=\"") && !PAGE.contains("onclick="));
    }

    #[test]
    fn page_makes_no_markup_of_data() {
        for way in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "srcdoc"]
        {
            assert!(!PAGE.contains(way), "{way}");
        }
    }

    #[test]
    fn browser_is_told_from_other_clients() {
        let wanted = |accept: &'static str| {
            is_wanted(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]))
        };
        assert!(wanted("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
        assert!(wanted("application/xml, text/html;q=0.9"));
        assert!(!wanted("*/*"));
        assert!(!wanted("application/json, */*"));
        assert!(!is_wanted(&HeaderMap::new()));
    }
}
