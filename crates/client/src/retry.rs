//! Which requests are sent again.
//!
//! Upstream counterpart: `client-go/rest`, `withRetry`.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header::RETRY_AFTER};

/// How often a request is sent again at most.
pub(crate) const MAX_RETRIES: u32 = 10;

/// What to wait when the connection broke and nobody says how long.
const AFTER_BROKEN_CONNECTION: Duration = Duration::from_secs(1);

/// DEVIATION: upstream waits as long as the server says. A worker that waits cannot do anything else, so one bad
/// header could hold all of them for hours.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How a request ended that did not bring what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The server said no.
    Refused {
        /// The status code.
        code: StatusCode,
        /// The header of that name.
        retry_after: Option<Duration>,
    },
    /// No connection came about: nothing was sent.
    NotConnected,
    /// The connection broke after the request, or a part of it, was sent.
    Broken,
    /// Nothing came in time.
    TimedOut,
}

/// How long to wait before sending again a request that was sent `sent` times; `None` when it shall not be.
///
/// As upstream: at most ten times, when the server refuses with 429 or a 5xx *and* says when to come back; and a
/// read whose connection broke.
///
/// DEVIATION: a POST is sent again after 429 only, which is decided before anything is done. A 5xx may come
/// from a proxy that lost patience with a server that did what it was told, and a pod must not be created
/// twice. Upstream repeats it when there is a `Retry-After` (kube-rs/kube#2082 shows what comes of it).
pub(crate) fn wait_before_retry(method: &Method, sent: u32, ending: Ending) -> Option<Duration> {
    if sent > MAX_RETRIES {
        return None;
    }
    match ending {
        Ending::Refused { code, retry_after } => {
            let again =
                code == StatusCode::TOO_MANY_REQUESTS || (code.is_server_error() && is_repeatable(method));
            retry_after.filter(|_| again).map(|wait| wait.min(LONGEST_WAIT))
        }
        Ending::Broken if *method == Method::GET => Some(AFTER_BROKEN_CONNECTION),
        Ending::NotConnected | Ending::Broken | Ending::TimedOut => None,
    }
}

/// Doing it twice is doing it once: all but POST. An update carries a resource version, a patch of ours a UID.
fn is_repeatable(method: &Method) -> bool {
    *method != Method::POST
}

/// The header `Retry-After` in seconds. Its other form, a date, is not understood, as upstream.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn refused(code: u16, seconds: Option<u64>) -> Ending {
        Ending::Refused {
            code: StatusCode::from_u16(code).unwrap(),
            retry_after: seconds.map(Duration::from_secs),
        }
    }

    #[test]
    fn refusal_is_repeated_only_when_the_server_says_when() {
        let wait = |method, ending| wait_before_retry(&method, 1, ending);
        let two_seconds = Some(Duration::from_secs(2));
        assert_eq!(wait(Method::GET, refused(503, Some(2))), two_seconds);
        assert_eq!(wait(Method::PUT, refused(500, Some(2))), two_seconds);
        assert_eq!(wait(Method::POST, refused(429, Some(2))), two_seconds);
        assert_eq!(wait(Method::GET, refused(503, None)), None);
        assert_eq!(wait(Method::GET, refused(429, None)), None);
        assert_eq!(wait(Method::GET, refused(409, Some(2))), None);
    }

    #[test]
    fn post_is_not_repeated_after_anything_but_429() {
        let endings = [
            refused(500, Some(1)),
            refused(504, Some(1)),
            Ending::Broken,
            Ending::NotConnected,
            Ending::TimedOut,
        ];
        for ending in endings {
            assert_eq!(wait_before_retry(&Method::POST, 1, ending), None, "{ending:?}");
        }
    }

    #[test]
    fn broken_connection_is_repeated_for_reads_alone() {
        assert!(wait_before_retry(&Method::GET, 1, Ending::Broken).is_some());
        assert_eq!(wait_before_retry(&Method::GET, 1, Ending::NotConnected), None);
        for method in [Method::PUT, Method::PATCH, Method::DELETE] {
            assert_eq!(wait_before_retry(&method, 1, Ending::Broken), None);
        }
    }

    #[test]
    fn request_sent_eleven_times_is_given_up() {
        assert!(wait_before_retry(&Method::GET, MAX_RETRIES, refused(429, Some(1))).is_some());
        assert_eq!(wait_before_retry(&Method::GET, MAX_RETRIES + 1, refused(429, Some(1))), None);
    }

    #[test]
    fn very_long_wait_is_cut() {
        assert_eq!(wait_before_retry(&Method::GET, 1, refused(429, Some(86_400))), Some(LONGEST_WAIT));
    }

    #[test]
    fn retry_after_that_is_a_date_is_not_understood() {
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(&headers), None);
        headers.insert(RETRY_AFTER, HeaderValue::from_static("7"));
        assert_eq!(retry_after(&headers), Some(Duration::from_secs(7)));
        headers.insert(RETRY_AFTER, HeaderValue::from_static("Wed, 21 Oct 2026 07:28:00 GMT"));
        assert_eq!(retry_after(&headers), None);
    }
}
