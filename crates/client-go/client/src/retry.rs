//! Rules for retries.
//!
//! Upstream counterpart: `client-go/rest`, `withRetry`.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};

use crate::request::Idempotency;

/// Maximum number of retries.
pub(crate) const MAX_RETRIES: u32 = 10;

/// Time to wait after a broken connection.
const BROKEN_CONNECTION_WAIT: Duration = Duration::from_secs(1);

/// Time after the first attempt during which an idempotent write is repeated after a broken connection.
///
/// A longer time would hold up the sync that waits for it. Callers send the same write again in their next sync.
const REPEAT_WRITES_FOR: Duration = Duration::from_secs(10);

/// Maximum time to wait for a retry.
///
/// DEVIATION: upstream waits as long as the `Retry-After` header requests. A worker is blocked during that time.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Failure of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// Error response.
    Refused {
        /// Status code.
        code: StatusCode,
        /// Value of the header `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The request was not sent.
    NotConnected,
    /// The connection broke after the request, or a part of it, was sent.
    Broken,
    /// There was no response in time.
    TimedOut,
}

/// Returns the time to wait before a request is retried that was sent `sent` times, `elapsed` after the first
/// attempt. `None` if it is not retried.
///
/// As upstream, a request is retried at most ten times: after 429 or 5xx with a `Retry-After` header, or, for a read,
/// after a broken connection.
///
/// DEVIATION: a create with a name, a delete with a precondition and a server-side apply are retried after a broken
/// connection, because they are idempotent. A request that is not idempotent is retried after 429 only, which is
/// returned before the request is processed; upstream also retries it after 5xx with `Retry-After` (kube-rs/kube#2082
/// shows the consequences).
pub(crate) fn wait_before_retry(
    idempotency: Idempotency,
    sent: u32,
    elapsed: Duration,
    kind: FailureKind,
) -> Option<Duration> {
    if sent > MAX_RETRIES {
        return None;
    }
    match (kind, idempotency) {
        (FailureKind::Refused { code, retry_after }, _) => {
            let again = code == StatusCode::TOO_MANY_REQUESTS
                || (code.is_server_error() && idempotency != Idempotency::NotIdempotent);
            retry_after.filter(|_| again).map(|wait| wait.min(MAX_WAIT))
        }
        (FailureKind::Broken, Idempotency::Read) => Some(BROKEN_CONNECTION_WAIT),
        (FailureKind::Broken, Idempotency::NamedCreate | Idempotency::Idempotent)
            if elapsed < REPEAT_WRITES_FOR =>
        {
            Some(BROKEN_CONNECTION_WAIT)
        }
        (FailureKind::Broken | FailureKind::NotConnected | FailureKind::TimedOut, _) => None,
    }
}

/// Parses the header `Retry-After` in seconds. As upstream, dates are ignored.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn refused(code: u16, seconds: Option<u64>) -> FailureKind {
        FailureKind::Refused {
            code: StatusCode::from_u16(code).unwrap(),
            retry_after: seconds.map(Duration::from_secs),
        }
    }

    fn wait(idempotency: Idempotency, kind: FailureKind) -> Option<Duration> {
        wait_before_retry(idempotency, 1, Duration::ZERO, kind)
    }

    const ALL: [Idempotency; 5] = [
        Idempotency::Read,
        Idempotency::NamedCreate,
        Idempotency::Idempotent,
        Idempotency::Change,
        Idempotency::NotIdempotent,
    ];

    #[test]
    fn error_response_needs_retry_after() {
        let two_seconds = Some(Duration::from_secs(2));
        for idempotency in ALL {
            let idempotent = idempotency != Idempotency::NotIdempotent;
            assert_eq!(wait(idempotency, refused(429, Some(2))), two_seconds, "{idempotency:?}");
            for code in [500, 503, 504] {
                let expected = two_seconds.filter(|_| idempotent);
                assert_eq!(wait(idempotency, refused(code, Some(2))), expected, "{idempotency:?} {code}");
                assert_eq!(wait(idempotency, refused(code, None)), None, "{idempotency:?} {code}");
            }
            assert_eq!(wait(idempotency, refused(429, None)), None);
            assert_eq!(wait(idempotency, refused(409, Some(2))), None);
        }
    }

    #[test]
    fn broken_connection() {
        for idempotency in ALL {
            let expected = !matches!(idempotency, Idempotency::Change | Idempotency::NotIdempotent);
            assert_eq!(wait(idempotency, FailureKind::Broken).is_some(), expected, "{idempotency:?}");
            assert_eq!(wait(idempotency, FailureKind::NotConnected), None);
            assert_eq!(wait(idempotency, FailureKind::TimedOut), None);
        }
    }

    #[test]
    fn idempotent_write_is_retried_for_ten_seconds() {
        let wait = |idempotency, seconds| {
            wait_before_retry(idempotency, 1, Duration::from_secs(seconds), FailureKind::Broken)
        };
        for idempotency in [Idempotency::NamedCreate, Idempotency::Idempotent] {
            assert!(wait(idempotency, 9).is_some());
            assert_eq!(wait(idempotency, 10), None);
        }
        assert!(wait(Idempotency::Read, 10).is_some());
    }

    #[test]
    fn at_most_ten_retries() {
        let refused = refused(429, Some(1));
        let wait = |sent| wait_before_retry(Idempotency::Read, sent, Duration::ZERO, refused);
        assert!(wait(MAX_RETRIES).is_some());
        assert_eq!(wait(MAX_RETRIES + 1), None);
    }

    #[test]
    fn wait_is_limited() {
        assert_eq!(wait(Idempotency::Read, refused(429, Some(86_400))), Some(MAX_WAIT));
    }

    #[test]
    fn retry_after_date_is_ignored() {
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(&headers), None);
        headers.insert(RETRY_AFTER, HeaderValue::from_static("7"));
        assert_eq!(retry_after(&headers), Some(Duration::from_secs(7)));
        headers.insert(RETRY_AFTER, HeaderValue::from_static("Wed, 21 Oct 2026 07:28:00 GMT"));
        assert_eq!(retry_after(&headers), None);
    }
}
