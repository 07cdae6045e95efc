//! Quantities.

use kcm_api::quantity::{Format, Quantity};
use serde_json::Value;

use super::Fields;

/// Rounds quantities up (away from zero) to thousandths.
pub(super) fn round_up(quantities: &mut Fields) {
    for quantity in quantities.values_mut() {
        if let Some(rounded) = quantity.as_str().and_then(in_thousandths) {
            *quantity = Value::String(rounded);
        }
    }
}

/// Returns the quantity in thousandths. `None` if it has no smaller part.
fn in_thousandths(text: &str) -> Option<String> {
    let quantity: Quantity = text.parse().ok()?;
    let number = quantity.number();
    if number.exponent >= -3 {
        return None;
    }
    let cut = usize::try_from(-3 - number.exponent).ok()?;
    let whole = number.digits.len().checked_sub(cut).and_then(|end| number.digits.get(..end)).unwrap_or("");
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let sign = if number.negative { "-" } else { "" };
    let suffix = if quantity.format() == Some(Format::DecimalExponent) { "e-3" } else { "m" };
    let rounded: Quantity = format!("{sign}{}{suffix}", whole + 1).parse().ok()?;
    Some(rounded.to_string())
}
