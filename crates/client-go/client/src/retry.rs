//! Which requests are sent again.
//!
//! Upstream counterpart: `client-go/rest`, `withRetry`.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};

use crate::request::Repetition;

/// How often a request is sent again at most.
pub(crate) const MAX_RETRIES: u32 = 10;

/// What to wait when the connection broke and nobody says how long.
const AFTER_BROKEN_CONNECTION: Duration = Duration::from_secs(1);

/// Time after the first attempt during which a create with a name is repeated after a broken connection.
///
/// A longer time would hold up the sync that waits for it. Callers send the same create again in their next sync.
const REPEAT_CREATES_FOR: Duration = Duration::from_secs(10);

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

/// Returns the time to wait before a request is sent again that was sent `sent` times, `elapsed` after the first
/// attempt. `None` if it is not sent again.
///
/// As upstream, a request is sent again at most ten times: if the server refuses it with 429 or a 5xx and a
/// `Retry-After` header, or if it is a read and the connection broke.
///
/// DEVIATION: a create with a name is repeated after a broken connection, too: the name makes it idempotent. A request
/// that is not idempotent is repeated after 429 only, which is decided before the server does anything; upstream also
/// repeats it after a 5xx with `Retry-After` (kube-rs/kube#2082 shows the consequences).
pub(crate) fn wait_before_retry(
    repetition: Repetition,
    sent: u32,
    elapsed: Duration,
    ending: Ending,
) -> Option<Duration> {
    if sent > MAX_RETRIES {
        return None;
    }
    match (ending, repetition) {
        (Ending::Refused { code, retry_after }, _) => {
            let again = code == StatusCode::TOO_MANY_REQUESTS
                || (code.is_server_error() && repetition != Repetition::NotIdempotent);
            retry_after.filter(|_| again).map(|wait| wait.min(LONGEST_WAIT))
        }
        (Ending::Broken, Repetition::Read) => Some(AFTER_BROKEN_CONNECTION),
        (Ending::Broken, Repetition::NamedCreate) if elapsed < REPEAT_CREATES_FOR => {
            Some(AFTER_BROKEN_CONNECTION)
        }
        (Ending::Broken | Ending::NotConnected | Ending::TimedOut, _) => None,
    }
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

    fn wait(repetition: Repetition, ending: Ending) -> Option<Duration> {
        wait_before_retry(repetition, 1, Duration::ZERO, ending)
    }

    const ALL: [Repetition; 4] =
        [Repetition::Read, Repetition::NamedCreate, Repetition::Change, Repetition::NotIdempotent];

    #[test]
    fn refusal_is_repeated_only_when_the_server_says_when() {
        let two_seconds = Some(Duration::from_secs(2));
        for repetition in ALL {
            let idempotent = repetition != Repetition::NotIdempotent;
            assert_eq!(wait(repetition, refused(429, Some(2))), two_seconds, "{repetition:?}");
            for code in [500, 503, 504] {
                let expected = two_seconds.filter(|_| idempotent);
                assert_eq!(wait(repetition, refused(code, Some(2))), expected, "{repetition:?} {code}");
                assert_eq!(wait(repetition, refused(code, None)), None, "{repetition:?} {code}");
            }
            assert_eq!(wait(repetition, refused(429, None)), None);
            assert_eq!(wait(repetition, refused(409, Some(2))), None);
        }
    }

    #[test]
    fn broken_connection_is_repeated_for_reads_and_creates_with_a_name() {
        for repetition in ALL {
            let expected = matches!(repetition, Repetition::Read | Repetition::NamedCreate);
            assert_eq!(wait(repetition, Ending::Broken).is_some(), expected, "{repetition:?}");
            assert_eq!(wait(repetition, Ending::NotConnected), None);
            assert_eq!(wait(repetition, Ending::TimedOut), None);
        }
    }

    #[test]
    fn create_is_repeated_for_ten_seconds() {
        let wait = |repetition, seconds| {
            wait_before_retry(repetition, 1, Duration::from_secs(seconds), Ending::Broken)
        };
        assert!(wait(Repetition::NamedCreate, 9).is_some());
        assert_eq!(wait(Repetition::NamedCreate, 10), None);
        assert!(wait(Repetition::Read, 10).is_some());
    }

    #[test]
    fn request_sent_eleven_times_is_given_up() {
        let refused = refused(429, Some(1));
        let wait = |sent| wait_before_retry(Repetition::Read, sent, Duration::ZERO, refused);
        assert!(wait(MAX_RETRIES).is_some());
        assert_eq!(wait(MAX_RETRIES + 1), None);
    }

    #[test]
    fn very_long_wait_is_cut() {
        assert_eq!(wait(Repetition::Read, refused(429, Some(86_400))), Some(LONGEST_WAIT));
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
