//! Strings with a format: times, quantities, bytes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use kcm_api::quantity::Quantity;

/// Upstream's message about an invalid quantity.
const QUANTITY_FORM: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Returns the canonical form of a quantity.
pub(super) fn quantity(text: &str) -> Result<String, String> {
    text.parse::<Quantity>().map(|quantity| quantity.to_string()).map_err(|_| QUANTITY_FORM.to_owned())
}

/// Returns a time in whole seconds.
pub(super) fn time(text: &str) -> Result<String, String> {
    let time = parse_time(text, "2006-01-02T15:04:05Z07:00")?;
    if is_canonical(text, "0000-00-00T00:00:00Z") {
        return Ok(text.to_owned());
    }
    let second = time.round(TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor));
    second.map(|second| second.to_string()).map_err(|error| error.to_string())
}

/// Returns a time with six fractional digits.
pub(super) fn micro_time(text: &str) -> Result<String, String> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    let time = parse_time(text, LAYOUT)?;
    if is_canonical(text, "0000-00-00T00:00:00.000000Z") {
        return Ok(text.to_owned());
    }
    // As upstream, times without six fractional digits are invalid.
    let rest = text.get(19..).unwrap_or_default();
    let digits =
        rest.strip_prefix('.').map_or(0, |digits| digits.bytes().take_while(u8::is_ascii_digit).count());
    if digits != 6 {
        let (rest, part) =
            if digits < 6 { (rest, ".000000") } else { (rest.get(7..).unwrap_or(rest), "Z07:00") };
        return Err(format!("parsing time {text:?} as {LAYOUT:?}: cannot parse {rest:?} as {part:?}"));
    }
    Ok(format!("{time:.6}"))
}

/// `true` if a valid time is already written like `form`, the common case.
fn is_canonical(text: &str, form: &str) -> bool {
    // A leap second is parsed as the preceding second.
    let has_form = text.len() == form.len()
        && text.bytes().zip(form.bytes()).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            form => byte == form,
        });
    has_form && text.get(17..19) != Some("60")
}

fn parse_time(text: &str, layout: &str) -> Result<Timestamp, String> {
    // Go reports the part of the layout that does not match. The first part is a sufficient approximation.
    text.parse()
        .map_err(|_| format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\""))
}

/// Returns the canonical form of Base64.
pub(super) fn bytes(text: &str) -> Result<String, String> {
    let unbroken;
    let text = if text.contains(['\r', '\n']) {
        unbroken = text.replace(['\r', '\n'], "");
        &unbroken
    } else {
        text
    };
    match STANDARD.decode(text) {
        Ok(bytes) => Ok(STANDARD.encode(bytes)),
        Err(
            base64::DecodeError::InvalidByte(offset, _) | base64::DecodeError::InvalidLastSymbol(offset, _),
        ) => Err(format!("illegal base64 data at input byte {offset}")),
        Err(_) => Err(format!("illegal base64 data at input byte {}", text.len())),
    }
}
