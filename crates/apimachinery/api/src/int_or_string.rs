//! Integers or percentages.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Number, or percentage of a number.
///
/// Upstream counterpart: `intstr.IntOrString`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// Number.
    Int(i32),
    /// Percentage, such as `25%`.
    String(String),
}

/// Error: the string is not a percentage.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid value for IntOrString: invalid type: {0:?} is neither an integer nor a percentage")]
pub struct ScaleError(String);

/// Rounding of a percentage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// To the next larger integer.
    Up,
    /// To the next smaller integer.
    Down,
}

impl IntOrString {
    /// Returns the number, or the percentage of `total`.
    ///
    /// Example: `25%` of 10 is 2.5, which is 3 with [`Round::Up`] and 2 with [`Round::Down`].
    ///
    /// Upstream counterpart: `intstr.GetScaledValueFromIntOrPercent`. As upstream, it uses floating point, so that
    /// rounding is the same (US-4.15).
    ///
    /// # Errors
    ///
    /// If the string is not an integer followed by `%`.
    pub fn scaled(&self, total: i32, round: Round) -> Result<i32, ScaleError> {
        match self {
            Self::Int(count) => Ok(*count),
            Self::String(text) => {
                let percent = text
                    .strip_suffix('%')
                    .and_then(|digits| digits.parse::<i64>().ok())
                    .ok_or_else(|| ScaleError(text.clone()))?;
                let share = percent as f64 * f64::from(total) / 100.0;
                let whole = match round {
                    Round::Up => share.ceil(),
                    Round::Down => share.floor(),
                };
                #[expect(clippy::cast_possible_truncation, reason = "through i64, as Go's int to int32")]
                Ok(whole as i64 as i32)
            }
        }
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(count) => count.fmt(f),
            Self::String(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(text: &str) -> IntOrString {
        IntOrString::String(text.to_owned())
    }

    #[test]
    fn percentage_is_rounded() {
        assert_eq!(percent("39%").scaled(10, Round::Up), Ok(4));
        assert_eq!(percent("39%").scaled(10, Round::Down), Ok(3));
        assert_eq!(percent("0%").scaled(10, Round::Up), Ok(0));
        assert_eq!(IntOrString::Int(7).scaled(10, Round::Down), Ok(7));
    }

    #[test]
    fn invalid_percentage_is_an_error() {
        for text in ["10", "%", "a%", "1.5%", ""] {
            assert!(percent(text).scaled(10, Round::Up).is_err(), "{text}");
        }
    }
}
