//! Durations in text.

use jiff::SignedDuration;

/// Writes a duration with its two largest units, such as `4m10s`. Negative durations are `0s`.
pub(crate) fn short(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let parts =
        [(seconds / 86_400, 'd'), (seconds / 3600 % 24, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let first = parts.iter().position(|(number, _)| *number > 0).unwrap_or(3);
    let shown = parts.iter().skip(first).take(2).filter(|(number, _)| *number > 0);
    let text: String = shown.map(|(number, unit)| format!("{number}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_units() {
        let text = |seconds| short(SignedDuration::from_secs(seconds));
        assert_eq!([text(-5), text(0), text(59), text(60), text(250)], ["0s", "0s", "59s", "1m", "4m10s"]);
        assert_eq!([text(3600), text(3601), text(90_000), text(172_800)], ["1h", "1h", "1d1h", "2d"]);
    }
}
