//! Sums of quantities.

use std::{cmp::Ordering, fmt};

use kcm_api::quantity::{Format, Quantity};
use serde_json::Value;

/// Decimal places of an [`Amount`].
const PLACES: i64 = 9;
const ONE: i128 = 1_000_000_000;

/// Sum of quantities in billionths, printed in the format of the first quantity. Sums saturate.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Amount {
    billionths: i128,
    format: Option<Format>,
}

impl Amount {
    /// Parses a quantity in JSON: a string or an integer. Returns `None` if it is invalid.
    pub(super) fn parse(quantity: &Value) -> Option<Self> {
        let quantity: Quantity = match quantity {
            Value::String(text) => text.parse().ok()?,
            other => other.as_i64()?.to_string().parse().ok()?,
        };
        let number = quantity.number();
        let digits: i128 =
            if number.digits.is_empty() { 0 } else { number.digits.parse().unwrap_or(i128::MAX) };
        let places = number.exponent + PLACES;
        let billionths = match u32::try_from(places) {
            Ok(places) => 10_i128.checked_pow(places).and_then(|power| digits.checked_mul(power)),
            // Smaller parts are rounded up.
            Err(_) => u32::try_from(-places).ok().map(|cut| {
                10_i128.checked_pow(cut).map_or(i128::from(digits > 0), |power| digits.div_euclid(power) + 1)
            }),
        };
        let billionths = billionths.unwrap_or(i128::MAX);
        let billionths = if number.negative { -billionths } else { billionths };
        Some(Self { billionths, format: quantity.format() })
    }

    pub(super) fn is_zero(&self) -> bool {
        self.billionths == 0
    }

    pub(super) fn billionths(&self) -> i128 {
        self.billionths
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        // The format of a zero is replaced, as in upstream's `Quantity.Add`.
        let format = if self.is_zero() { other.format } else { self.format };
        Self { billionths: self.billionths.saturating_add(other.billionths), format }
    }
}

impl From<u64> for Amount {
    fn from(number: u64) -> Self {
        Self { billionths: i128::from(number) * ONE, format: Some(Format::DecimalSi) }
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.billionths == other.billionths
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.billionths.cmp(&other.billionths)
    }
}

impl fmt::Display for Amount {
    /// Writes the canonical form of the quantity.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        if self.format == Some(Format::BinarySi) && self.billionths % ONE == 0 {
            let (mut number, mut suffix) = (self.billionths / ONE, 0);
            while number != 0 && number % 1024 == 0 && suffix + 1 < SUFFIXES.len() {
                (number, suffix) = (number / 1024, suffix + 1);
            }
            return write!(f, "{number}{}", SUFFIXES[suffix]);
        }
        let text = format!("{}n", self.billionths);
        match text.parse::<Quantity>() {
            Ok(quantity) => quantity.fmt(f),
            Err(_) => f.write_str(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sums_are_canonical() {
        struct Case {
            summands: &'static [&'static str],
            sum: &'static str,
        }
        for Case { summands, sum } in [
            Case { summands: &[], sum: "0" },
            Case { summands: &["500m", "600m"], sum: "1100m" },
            Case { summands: &["500m", "1500m"], sum: "2" },
            Case { summands: &["252Mi", "772Mi"], sum: "1Gi" },
            Case { summands: &["1Ki", "100"], sum: "1124" },
            Case { summands: &["1k", "1"], sum: "1001" },
            Case { summands: &["1e3", "1e3"], sum: "2k" },
            Case { summands: &["0", "1Gi"], sum: "1Gi" },
        ] {
            let parse = |text: &&str| Amount::parse(&json!(text)).unwrap();
            let total = summands.iter().map(parse).fold(Amount::default(), |sum, next| sum.plus(&next));
            assert_eq!(total.to_string(), sum, "{summands:?}");
        }
        assert_eq!(Amount::parse(&json!(3)), Amount::parse(&json!("3")));
        assert_eq!(Amount::parse(&json!("many")), None);
        assert!(Amount::parse(&json!("1Gi")) > Amount::parse(&json!("1G")));
        assert!(Amount::parse(&json!("99999E")) > Amount::parse(&json!("1E")));
    }
}
