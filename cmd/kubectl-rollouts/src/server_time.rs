//! Time of the API server.

use std::{cell::Cell, time::Duration};

use http::{HeaderMap, header::DATE};
use jiff::fmt::rfc2822::DateTimeParser;
use kcm_clock::{Clock, Timestamp};

/// Resolution of the header `Date`, less the resolution of a timestamp.
const REST_OF_SECOND: Duration = Duration::from_nanos(999_999_999);

/// Time at which the API server sent its last response, from the header `Date`.
///
/// The local clock can differ from the server's, whose times objects contain.
#[derive(Debug, Default)]
pub(crate) struct ServerTime(Cell<Option<Timestamp>>);

impl ServerTime {
    /// Records the time of a response. Without a valid header, the local clock applies.
    pub(crate) fn record(&self, headers: &HeaderMap) {
        self.0.set(headers.get(DATE).and_then(|date| parse(date.as_bytes())));
    }

    /// Returns the time of the last response, or the local time.
    pub(crate) fn now(&self, clock: &dyn Clock) -> Timestamp {
        self.0.get().unwrap_or_else(|| clock.now())
    }
}

/// Returns the end of the second that a header names, so that no object that the response contains is of a later time.
fn parse(date: &[u8]) -> Option<Timestamp> {
    let second = DateTimeParser::new().parse_timestamp(date).ok()?;
    second.checked_add(REST_OF_SECOND).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use kcm_clock::FakeClock;

    use super::*;

    fn now(date: Option<&'static str>) -> Timestamp {
        let time = ServerTime::default();
        let header = date.map(|date| (DATE, HeaderValue::from_static(date)));
        time.record(&header.into_iter().collect());
        time.now(&FakeClock::new("2020-01-01T00:00:00Z".parse().unwrap()))
    }

    #[test]
    fn end_of_the_second() {
        let expected: Timestamp = "2026-10-21T07:28:00.999999999Z".parse().unwrap();
        assert_eq!(now(Some("Wed, 21 Oct 2026 07:28:00 GMT")), expected);
    }

    #[test]
    fn local_clock_without_a_valid_header() {
        let local: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
        for date in [None, Some(""), Some("2026-10-21T07:28:00Z"), Some("Wed, 99 Oct 2026 07:28:00 GMT")] {
            assert_eq!(now(date), local, "{date:?}");
        }
    }
}
