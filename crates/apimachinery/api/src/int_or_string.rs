//! A number, or a text such as a percentage.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A count, or a share in percent.
///
/// Upstream counterpart: `intstr.IntOrString`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// A count.
    Int(i32),
    /// A text; meant to be a percentage.
    String(String),
}

/// What cannot be scaled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid value for IntOrString: invalid type: {0:?} is neither an integer nor a percentage")]
pub struct ScaleError(String);

/// Which way a share of a count is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// To the next larger count.
    Up,
    /// To the next smaller count.
    Down,
}

impl IntOrString {
    /// The count that this stands for, out of `total`.
    ///
    /// Upstream counterpart: `intstr.GetScaledValueFromIntOrPercent`. The product is taken in floating point
    /// as upstream does, so that rounding agrees to the last count (US-4.15).
    ///
    /// # Errors
    ///
    /// When it is a text that is not an integer followed by `%`.
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
    fn percentage_is_rounded_the_way_asked_for() {
        assert_eq!(percent("39%").scaled(10, Round::Up), Ok(4));
        assert_eq!(percent("39%").scaled(10, Round::Down), Ok(3));
        assert_eq!(percent("0%").scaled(10, Round::Up), Ok(0));
        assert_eq!(IntOrString::Int(7).scaled(10, Round::Down), Ok(7));
    }

    #[test]
    fn text_without_percent_sign_or_number_is_an_error() {
        for text in ["10", "%", "a%", "1.5%", ""] {
            assert!(percent(text).scaled(10, Round::Up).is_err(), "{text}");
        }
    }
}
