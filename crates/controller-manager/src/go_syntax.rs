//! Numbers, booleans and lists in Go's syntax.
//!
//! Upstream counterpart: `strconv`, and `encoding/csv` as pflag uses it.

use std::fmt::Write as _;

/// `strconv.ParseBool`.
pub(crate) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(invalid("ParseBool", text)),
    }
}

/// `strconv.ParseInt` with base 0: the prefix selects the base (`0x`, `0o`, `0b` or `0`).
pub(crate) fn parse_int(text: &str, bits: u32) -> Result<i64, String> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let magnitude = magnitude(digits).ok_or_else(|| invalid("ParseInt", text))?;
    let value = if is_negative { -magnitude } else { magnitude };
    let limit = 1i128 << (bits - 1);
    match i64::try_from(value) {
        Ok(value) if (-limit..limit).contains(&i128::from(value)) => Ok(value),
        _ => Err(out_of_range("ParseInt", text)),
    }
}

/// `strconv.ParseUint` with base 10.
pub(crate) fn parse_uint(text: &str, bits: u32) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid("ParseUint", text));
    }
    text.parse()
        .ok()
        .filter(|value: &u64| bits >= 64 || *value < 1 << bits)
        .ok_or_else(|| out_of_range("ParseUint", text))
}

/// Absolute value. Values above `u64::MAX` are returned as `u64::MAX`, which is out of range for every caller.
fn magnitude(text: &str) -> Option<i128> {
    let lower = text.to_ascii_lowercase();
    let (base, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some(_) if lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, &lower[..]),
    };
    // An underscore may separate digits, or the prefix and the digits.
    let mut value: i128 = 0;
    let mut last = if base == 10 { '_' } else { '0' };
    for digit in digits.chars() {
        if digit != '_' {
            value = value.saturating_mul(base.into()).saturating_add(digit.to_digit(base)?.into());
        } else if last == '_' {
            return None;
        }
        last = digit;
    }
    (!digits.is_empty() && last != '_').then_some(value.min(i128::from(u64::MAX)))
}

/// `strconv.ParseFloat` with 32 or 64 bits, without hexadecimal numbers.
pub(crate) fn parse_float(text: &str, bits: u32) -> Result<f64, String> {
    let value = if bits == 32 { text.parse::<f32>().map(f64_of) } else { text.parse::<f64>() };
    let value = value.map_err(|_| invalid("ParseFloat", text))?;
    if value.is_infinite() && !text.to_ascii_lowercase().contains("inf") {
        return Err(out_of_range("ParseFloat", text));
    }
    Ok(value)
}

/// Converts to the `f64` with the same decimal digits: 0.1, not 0.10000000149011612.
fn f64_of(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

fn invalid(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {text:?}: invalid syntax")
}

fn out_of_range(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {text:?}: value out of range")
}

/// `strconv.FormatFloat` with format `g` and the minimum number of digits.
pub(crate) fn format_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    match exponent {
        -4..6 => value.to_string(),
        _ => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

/// Parses one line of CSV. A quoted value may contain commas, and quotes that are doubled.
pub(crate) fn parse_csv(line: &str) -> Result<Vec<String>, String> {
    if line.is_empty() {
        return Ok(Vec::new());
    }
    let mut values = Vec::new();
    let mut rest = line;
    loop {
        let (value, tail) = match rest.strip_prefix('"') {
            Some(quoted) => parse_quoted(quoted).ok_or_else(|| invalid_quotes(line))?,
            None => {
                let (value, tail) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                if value.contains('"') {
                    return Err(invalid_quotes(line));
                }
                (value.to_owned(), tail)
            }
        };
        values.push(value);
        match tail.strip_prefix(',') {
            Some(tail) => rest = tail,
            None if tail.is_empty() => return Ok(values),
            None => return Err(invalid_quotes(line)),
        }
    }
}

fn invalid_quotes(line: &str) -> String {
    format!("invalid quotes in {line:?}")
}

/// Parses up to the closing quote. Returns the value and the rest of the line.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (head, tail) = rest.split_once('"')?;
        value.push_str(head);
        match tail.strip_prefix('"') {
            Some(tail) => {
                value.push('"');
                rest = tail;
            }
            None => return Some((value, tail)),
        }
    }
}

/// Formats one line of CSV, as the inverse of [`parse_csv`].
pub(crate) fn format_csv<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let mut line = String::new();
    for (index, value) in values.into_iter().enumerate() {
        if index > 0 {
            line.push(',');
        }
        let needs_quotes = value.contains(['"', ',', '\n', '\r']) || value.starts_with([' ', '\t']);
        // Writing to a `String` does not fail.
        let _ = if needs_quotes {
            write!(line, "\"{}\"", value.replace('"', "\"\""))
        } else {
            write!(line, "{value}")
        };
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_integers_of_each_base() {
        for (text, value) in [
            ("0", 0),
            ("-7", -7),
            ("+7", 7),
            ("0x1F", 31),
            ("010", 8),
            ("0b11", 3),
            ("0o17", 15),
            ("0x_1_f", 31),
        ] {
            assert_eq!(parse_int(text, 32), Ok(value), "{text}");
        }
        assert_eq!(parse_int("-2147483648", 32), Ok(-2_147_483_648));
        for text in ["", "-", "1.5", "_1", "1_", "1__0", "0x", "0_", "08", "x", " 1", "1e3", "0x__1"] {
            let expected = format!("strconv.ParseInt: parsing {text:?}: invalid syntax");
            assert_eq!(parse_int(text, 32), Err(expected));
        }
        for text in ["2147483648", "99999999999999999999999999999999999999999999"] {
            let expected = format!("strconv.ParseInt: parsing {text:?}: value out of range");
            assert_eq!(parse_int(text, 32), Err(expected));
        }
        assert_eq!(parse_uint("4294967295", 32), Ok(4_294_967_295));
        assert!(parse_uint("4294967296", 32).unwrap_err().ends_with("value out of range"));
        assert!(parse_uint("-1", 32).unwrap_err().ends_with("invalid syntax"));
    }

    #[test]
    fn formats_floats_as_parsed() {
        for text in [
            "0",
            "20",
            "0.1",
            "0.55",
            "-1.5",
            "100000",
            "1e+06",
            "1e-05",
            "0.0001",
            "1.234567e+06",
            "+Inf",
            "NaN",
        ] {
            assert_eq!(format_float(parse_float(text, 32).unwrap()), text);
        }
        assert!(parse_float("fast", 32).unwrap_err().ends_with("\"fast\": invalid syntax"));
        assert!(parse_float("1e40", 32).unwrap_err().ends_with("value out of range"));
        assert!(parse_float("1e40", 64).is_ok());
    }

    #[test]
    fn parses_and_formats_quoted_lists() {
        let cases: [(&str, &[&str]); 5] = [
            ("", &[]),
            ("a,-b,", &["a", "-b", ""]),
            ("\"a,b\",c", &["a,b", "c"]),
            ("\"say \"\"x\"\"\"", &["say \"x\""]),
            ("\" a\"", &[" a"]),
        ];
        for (line, values) in cases {
            assert_eq!(parse_csv(line).unwrap(), values, "{line}");
            assert_eq!(format_csv(values.iter().copied()), line);
        }
        for line in ["a\"b", "\"a", "\"a\"b"] {
            assert!(parse_csv(line).is_err(), "{line}");
        }
    }
}
