//! Times with a resolution of one second.

use std::{fmt, str::FromStr};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Time with a resolution of one second. Fractions are cut off.
///
/// Upstream counterpart: `metav1.Time`. That type keeps nanoseconds in memory and writes seconds, so a value differs
/// after it was written and read. This one does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// 0001-01-01T00:00:00Z: Go's zero time, which some clients write for a time that is not set.
    pub const GO_ZERO: Self = Self(-62_135_596_800);

    /// Returns the second of `timestamp`.
    pub fn new(timestamp: Timestamp) -> Self {
        // Rounded towards the past, also before 1970.
        let second = timestamp.as_second();
        Self(if timestamp.subsec_nanosecond() < 0 { second - 1 } else { second })
    }

    /// Returns the time of `seconds` since 1970.
    pub fn from_unix(seconds: i64) -> Self {
        let limited = seconds.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
        Self(limited)
    }

    /// Returns the seconds since 1970.
    pub const fn unix(self) -> i64 {
        self.0
    }

    /// Returns the time as a timestamp.
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_second(self.0).unwrap_or(Timestamp::MAX)
    }

    /// Returns the time from `self` to `now`. Negative if `self` is in the future.
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
    fn rounds_towards_the_past() {
        let after: Time = "2026-01-02T03:04:05.999Z".parse().unwrap();
        assert_eq!(after.to_string(), "2026-01-02T03:04:05Z");
        let before: Time = "1969-12-31T23:59:58.5Z".parse().unwrap();
        assert_eq!(before.unix(), -2);
    }

    #[test]
    fn round_trip() {
        let time = Time::from_unix(1_700_000_000);
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(serde_json::from_str::<Time>(&text).unwrap(), time);
    }
}
