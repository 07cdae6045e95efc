//! Times as the API has them: whole seconds.

use std::{fmt, str::FromStr};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A point in time, cut to whole seconds when it is made.
///
/// Upstream counterpart: `metav1.Time`, which keeps nanoseconds in memory and writes seconds; comparing one
/// that has been to the server with one that has not is then never equal. Cutting at once rules that out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// The second that `timestamp` lies in.
    pub fn new(timestamp: Timestamp) -> Self {
        // Towards the past, also before 1970: the second that has begun.
        let second = timestamp.as_second();
        Self(if timestamp.subsec_nanosecond() < 0 { second - 1 } else { second })
    }

    /// Seconds since 1970.
    pub fn from_unix(seconds: i64) -> Self {
        let limited = seconds.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
        Self(limited)
    }

    /// Seconds since 1970.
    pub fn unix(self) -> i64 {
        self.0
    }

    /// The same point as a timestamp.
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_second(self.0).unwrap_or(Timestamp::MAX)
    }

    /// How long before `now` this was; negative when it is still to come.
    pub fn age(self, now: Timestamp) -> SignedDuration {
        now.duration_since(self.timestamp())
    }
}

impl From<Timestamp> for Time {
    fn from(timestamp: Timestamp) -> Self {
        Self::new(timestamp)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.timestamp().fmt(f)
    }
}

impl FromStr for Time {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Timestamp>().map(Self::new)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 time")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Time, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Visitor).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_with_fractions_is_cut_towards_the_past() {
        let after: Time = "2026-01-02T03:04:05.999Z".parse().unwrap();
        assert_eq!(after.to_string(), "2026-01-02T03:04:05Z");
        let before: Time = "1969-12-31T23:59:58.5Z".parse().unwrap();
        assert_eq!(before.unix(), -2);
    }

    #[test]
    fn time_written_and_read_is_the_same() {
        let time = Time::from_unix(1_700_000_000);
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(serde_json::from_str::<Time>(&text).unwrap(), time);
    }
}
