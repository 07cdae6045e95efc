//! Times with a resolution of one microsecond.

use std::{fmt, str::FromStr};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Time with a resolution of one microsecond. Fractions are cut off. It is always written with six decimals.
///
/// Upstream counterpart: `metav1.MicroTime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroTime(Timestamp);

impl MicroTime {
    /// Returns the microsecond of `timestamp`.
    pub fn new(timestamp: Timestamp) -> Self {
        // Rounded towards the past, also before 1970.
        let surplus = timestamp.as_nanosecond().rem_euclid(1000);
        let surplus = SignedDuration::from_nanos(i64::try_from(surplus).unwrap_or(0));
        Self(timestamp.checked_sub(surplus).unwrap_or(timestamp))
    }

    /// Returns the time as a timestamp.
    pub fn timestamp(self) -> Timestamp {
        self.0
    }
}

impl From<Timestamp> for MicroTime {
    fn from(timestamp: Timestamp) -> Self {
        Self::new(timestamp)
    }
}

impl fmt::Display for MicroTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.0)
    }
}

impl FromStr for MicroTime {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Timestamp>().map(Self::new)
    }
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MicroTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = MicroTime;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 time")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<MicroTime, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        text.parse::<MicroTime>().unwrap().to_string()
    }

    #[test]
    fn writes_six_decimals() {
        assert_eq!(written("2026-01-02T03:04:05Z"), "2026-01-02T03:04:05.000000Z");
        assert_eq!(written("2026-01-02T03:04:05.12Z"), "2026-01-02T03:04:05.120000Z");
        assert_eq!(written("2026-01-02T03:04:05.123456789Z"), "2026-01-02T03:04:05.123456Z");
        assert_eq!(written("2026-01-02T05:04:05.5+02:00"), "2026-01-02T03:04:05.500000Z");
    }

    #[test]
    fn rounds_towards_the_past() {
        assert_eq!(written("1969-12-31T23:59:59.9999999Z"), "1969-12-31T23:59:59.999999Z");
        assert_eq!(MicroTime::new(Timestamp::MIN).timestamp(), Timestamp::MIN);
        assert_eq!(MicroTime::new(Timestamp::MAX).to_string(), "9999-12-30T22:00:00.999999Z");
    }

    #[test]
    fn round_trip() {
        let time: MicroTime = "2026-01-02T03:04:05.000007Z".parse().unwrap();
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(text, r#""2026-01-02T03:04:05.000007Z""#);
        assert_eq!(serde_json::from_str::<MicroTime>(&text).unwrap(), time);
        assert!(serde_json::from_str::<MicroTime>("7").unwrap_err().to_string().contains("RFC 3339"));
    }
}
