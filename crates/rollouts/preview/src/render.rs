//! Presentation of a [`Preview`](crate::Preview): text for a terminal, and a picture as SVG.

mod picture;
mod svg;
mod text;

pub use svg::svg;
pub use text::text;

/// Duration in Go's form, rounded to seconds: `1m20s`. Less than ten seconds have one decimal.
pub(crate) fn seconds(seconds: f64) -> String {
    if seconds < 9.95 {
        let text = format!("{seconds:.1}");
        return format!("{}s", text.strip_suffix(".0").unwrap_or(&text));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let whole = seconds.round() as u64;
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
    let parts = [(hours, 'h'), (minutes, 'm'), (rest, 's')];
    parts.iter().filter(|(number, _)| *number > 0).map(|(number, unit)| format!("{number}{unit}")).collect()
}

/// Amount of a resource of a quota or node: memory in binary units, other amounts as numbers.
pub(crate) fn amount(resource: &str, amount: f64) -> String {
    let is_bytes = resource.ends_with("memory") || resource.ends_with("storage");
    if is_bytes {
        for (factor, unit) in
            [(f64::from(1 << 30), "Gi"), (f64::from(1 << 20), "Mi"), (f64::from(1 << 10), "Ki")]
        {
            if amount >= factor {
                return format!("{}{unit}", decimal(amount / factor));
            }
        }
    }
    decimal(amount)
}

fn decimal(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Part of a ReplicaSet's name that differs between the ReplicaSets of a Deployment.
pub(crate) fn short_name<'a>(deployment: &str, replica_set: &'a str) -> &'a str {
    let suffix = replica_set.strip_prefix(deployment).and_then(|rest| rest.strip_prefix('-'));
    suffix.filter(|suffix| !suffix.is_empty()).unwrap_or(replica_set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_as_in_go() {
        for (value, expected) in
            [(0.0, "0s"), (0.24, "0.2s"), (9.5, "9.5s"), (9.97, "10s"), (80.2, "1m20s"), (3600.0, "1h")]
        {
            assert_eq!(seconds(value), expected);
        }
    }

    #[test]
    fn amounts_of_resources() {
        assert_eq!(amount("requests.memory", 1.5 * f64::from(1 << 30)), "1.5Gi");
        assert_eq!(amount("cpu", 0.25), "0.25");
        assert_eq!(amount("pods", 12.0), "12");
    }
}
