//! Durations in Go's syntax.
//!
//! Upstream counterpart: `metav1.Duration`, which uses `time.ParseDuration` and `time.Duration.String`.

use std::{fmt, time::Duration};

use thiserror::Error;

/// Go's `time.Duration`: a signed number of nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(i64);

/// Invalid duration. The messages are Go's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GoDurationError {
    /// The text is not a sequence of numbers with units, or the duration is too long.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number is not followed by a unit.
    #[error("time: missing unit in duration {0:?}")]
    NoUnit(String),
    /// A unit is unknown.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unknown unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

impl GoDuration {
    /// Parses decimal numbers with units, such as `1h15m30.918s`.
    ///
    /// # Errors
    ///
    /// If `text` is not a duration, or longer than 292 years.
    pub fn parse(text: &str) -> Result<Self, GoDurationError> {
        let invalid = || GoDurationError::Invalid(text.to_owned());
        let (is_negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        // The only number that is valid without a unit.
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut nanos: i128 = 0;
        while !rest.is_empty() {
            let (whole, tail) = split_at_first(rest, |c| !c.is_ascii_digit());
            let (fraction, tail) = match tail.strip_prefix('.') {
                Some(tail) => split_at_first(tail, |c| !c.is_ascii_digit()),
                None => ("", tail),
            };
            let (unit, tail) = split_at_first(tail, |c| c.is_ascii_digit() || c == '.');
            if whole.is_empty() && fraction.is_empty() {
                return Err(invalid());
            }
            if unit.is_empty() {
                return Err(GoDurationError::NoUnit(text.to_owned()));
            }
            let scale = nanos_in(unit).ok_or_else(|| GoDurationError::UnknownUnit {
                unit: unit.to_owned(),
                text: text.to_owned(),
            })?;
            let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
            nanos += i128::from(whole) * i128::from(scale) + fraction_of(fraction, scale);
            if nanos > i128::from(i64::MAX) {
                return Err(invalid());
            }
            rest = tail;
        }
        let nanos = i64::try_from(nanos).map_err(|_| invalid())?;
        Ok(Self(if is_negative { -nanos } else { nanos }))
    }

    /// Duration in nanoseconds.
    pub fn nanos(self) -> i64 {
        self.0
    }

    /// Converts to a standard duration. `None` if negative.
    pub fn to_std(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }
}

/// Nanoseconds of `0.digits` units, rounded down.
fn fraction_of(digits: &str, scale: i64) -> i128 {
    let (mut nanos, mut unit) = (0, i128::from(scale) * 1_000_000_000);
    for digit in digits.bytes() {
        unit /= 10;
        nanos += i128::from(digit - b'0') * unit;
    }
    nanos / 1_000_000_000
}

fn split_at_first(text: &str, is_end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_end).unwrap_or(text.len()))
}

fn nanos_in(unit: &str) -> Option<i64> {
    Some(match unit {
        "ns" => 1,
        // Micro sign and Greek letter mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

impl fmt::Display for GoDuration {
    /// Formats as Go: `12h0m0s`, `1m30.5s`, `2ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let nanos = self.0.unsigned_abs();
        let (unit, name) = match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "\u{b5}s"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => {
                let (minutes, nanos) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
                if minutes >= 60 {
                    write!(f, "{}h{}m", minutes / 60, minutes % 60)?;
                } else if minutes > 0 {
                    write!(f, "{minutes}m")?;
                }
                return write_decimal(f, nanos, 1_000_000_000, "s");
            }
        };
        write_decimal(f, nanos, unit, name)
    }
}

fn write_decimal(f: &mut fmt::Formatter<'_>, nanos: u64, unit: u64, name: &str) -> fmt::Result {
    write!(f, "{}", nanos / unit)?;
    if !nanos.is_multiple_of(unit) {
        let width = unit.ilog10() as usize;
        let digits = format!("{:0width$}", nanos % unit);
        write!(f, ".{}", digits.trim_end_matches('0'))?;
    }
    f.write_str(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_formats_as_go() {
        let cases = [
            ("0", 0, "0s"),
            ("12h", 43_200_000_000_000, "12h0m0s"),
            ("1h15m30.918s", 4_530_918_000_000, "1h15m30.918s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("+5s", 5_000_000_000, "5s"),
            ("-0s", 0, "0s"),
            ("-90s", -90_000_000_000, "-1m30s"),
            ("300ms", 300_000_000, "300ms"),
            ("2us", 2_000, "2\u{b5}s"),
            ("2.5\u{3bc}s", 2_500, "2.5\u{b5}s"),
            ("7ns", 7, "7ns"),
            (".5m", 30_000_000_000, "30s"),
            ("1.m", 60_000_000_000, "1m0s"),
            ("1s1s", 2_000_000_000, "2s"),
            ("0.3333333333333333333h", 1_199_999_999_999, "19m59.999999999s"),
            ("9223372036854775807ns", i64::MAX, "2562047h47m16.854775807s"),
        ];
        for (text, nanos, written) in cases {
            let duration = GoDuration::parse(text).unwrap();
            assert_eq!(duration.nanos(), nanos, "{text}");
            assert_eq!(duration.to_string(), written, "{text}");
            assert_eq!(GoDuration::parse(written), Ok(duration), "{text}");
        }
    }

    #[test]
    fn rejects_invalid_durations_with_gos_messages() {
        for text in ["", "s", "-", "..5s", "one", "9999999999h", "9223372036854775808ns", "-5x5", " 5s"] {
            let error = GoDuration::parse(text).unwrap_err().to_string();
            let expected = match text {
                "-5x5" => "time: unknown unit \"x\" in duration \"-5x5\"".to_owned(),
                _ => format!("time: invalid duration {text:?}"),
            };
            assert_eq!(error, expected);
        }
        let error = |text| GoDuration::parse(text).unwrap_err().to_string();
        assert_eq!(error("12"), "time: missing unit in duration \"12\"");
        assert_eq!(error("1h 5m"), "time: unknown unit \"h \" in duration \"1h 5m\"");
        assert_eq!(error("1e3s"), "time: unknown unit \"e\" in duration \"1e3s\"");
    }

    #[test]
    fn negative_duration_is_not_a_std_duration() {
        assert_eq!(GoDuration::parse("-1ns").unwrap().to_std(), None);
        assert_eq!(GoDuration::parse("1.5s").unwrap().to_std(), Some(Duration::from_millis(1500)));
    }
}
