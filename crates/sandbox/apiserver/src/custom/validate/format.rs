//! Formats of strings.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;

/// Formats of strings that are checked. Others are accepted.
///
/// DEVIATION: upstream checks about twenty more formats, such as `isbn` and `creditcard`.
pub(super) fn is_known_format(format: &str) -> bool {
    matches!(format, "date-time" | "date" | "duration" | "byte" | "uuid" | "ipv4" | "ipv6" | "cidr" | "email")
}

pub(super) fn has_format(text: &str, format: &str) -> bool {
    match format {
        "date-time" => text.parse::<Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
        "duration" => is_go_duration(text),
        "byte" => BASE64_STANDARD.decode(text).is_ok(),
        "uuid" => uuid::Uuid::try_parse(text).is_ok() && text.len() != 32 + 2,
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "cidr" => text.split_once('/').is_some_and(|(address, bits)| {
            address.parse::<std::net::IpAddr>().is_ok_and(|address| {
                bits.parse::<u8>().is_ok_and(|bits| bits <= if address.is_ipv4() { 32 } else { 128 })
            })
        }),
        "email" => text.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && !host.is_empty() && !text.contains(char::is_whitespace) && !host.contains('@')
        }),
        _ => true,
    }
}

/// `true` for a duration such as `1h30m` or `-1.5s`.
fn is_go_duration(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    if text == "0" {
        return true;
    }
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, unit) = rest.split_at(digits);
        if number.parse::<f64>().is_err() {
            return false;
        }
        let units = ["ns", "us", "µs", "ms", "s", "m", "h", "d", "w"];
        let Some(found) = units.iter().find(|known| unit.starts_with(**known)) else { return false };
        rest = &unit[found.len()..];
    }
    !text.is_empty()
}
