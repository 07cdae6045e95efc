//! Human-readable durations.

use jiff::Timestamp;
use kcm_apiserver::json::str_at;
use serde_json::Value;

/// Returns the age of `object`.
pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    Value::from(since(str_at(object, &["metadata", "creationTimestamp"]), now))
}

/// Returns the time since `time`. `<unknown>` if it is empty or invalid.
pub(super) fn since(time: &str, now: Timestamp) -> String {
    time.parse::<Timestamp>()
        .map_or_else(|_| "<unknown>".to_owned(), |time| human_duration(now.duration_since(time).as_millis()))
}

/// Formats a duration. Longer durations have lower resolution.
///
/// Upstream counterpart: `duration.HumanDuration`.
fn human_duration(milliseconds: i128) -> String {
    let seconds = milliseconds / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i128, unit: char, small: i128, small_unit: char| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{small_unit}"),
    };
    match () {
        // Small clock skew is tolerated.
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, 'd', hours % 24, 'h'),
        () if days < 2 * 365 => format!("{days}d"),
        () if days < 8 * 365 => two(days / 365, 'y', days % 365, 'd'),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_durations_have_lower_resolution() {
        const MINUTE: i128 = 60;
        const HOUR: i128 = 60 * MINUTE;
        const DAY: i128 = 24 * HOUR;
        const YEAR: i128 = 365 * DAY;
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (2 * MINUTE, "2m"),
            (2 * MINUTE + 1, "2m1s"),
            (10 * MINUTE - 1, "9m59s"),
            (10 * MINUTE + 1, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + MINUTE, "3h1m"),
            (8 * HOUR + MINUTE, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY + HOUR, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (9 * YEAR + DAY, "9y"),
        ] {
            assert_eq!(human_duration(seconds * 1000), expected, "{seconds}");
        }
    }

    #[test]
    fn unset_time_is_unknown() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(since("", now), "<unknown>");
        assert_eq!(since("1970-01-01T00:00:00.5Z", now), "0s");
    }
}
