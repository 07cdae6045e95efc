//! Exposition format 0.0.4, byte for byte as Go's client.
//!
//! Numbers must be formatted as in Go because bucket bounds are label values: `le="1e-08"` and `le="0.00000001"` are
//! different time series.

use std::fmt::Write as _;

use super::Definition;

/// Writes the `# HELP` and `# TYPE` lines of a metric.
pub(super) fn write_head(out: &mut String, definition: &Definition) {
    let Definition { name, kind, .. } = definition;
    out.push_str("# HELP ");
    out.push_str(name);
    out.push(' ');
    escape(out, &definition.help_line(), false);
    out.push_str("\n# TYPE ");
    out.push_str(name);
    out.push(' ');
    out.push_str(kind.as_str());
    out.push('\n');
}

/// Writer of the samples of one time series.
#[derive(Debug)]
pub struct Sample<'a> {
    out: &'a mut String,
    name: &'static str,
    labels: &'a [&'static str],
    values: &'a [Box<str>],
}

impl<'a> Sample<'a> {
    pub(super) fn new(
        out: &'a mut String,
        name: &'static str,
        labels: &'a [&'static str],
        values: &'a [Box<str>],
    ) -> Self {
        Self { out, name, labels, values }
    }

    /// Writes one sample. `suffix` is appended to the metric name, `bound` is the upper bound of a bucket.
    pub(super) fn value(&mut self, suffix: &str, bound: Option<f64>, value: f64) {
        self.out.push_str(self.name);
        self.out.push_str(suffix);
        let mut separator = '{';
        for (label, value) in self.labels.iter().zip(self.values) {
            self.out.push(separator);
            separator = ',';
            self.out.push_str(label);
            self.out.push_str("=\"");
            escape(self.out, value, true);
            self.out.push('"');
        }
        if let Some(bound) = bound {
            self.out.push(separator);
            separator = ',';
            self.out.push_str("le=\"");
            write_number(self.out, bound);
            self.out.push('"');
        }
        if separator == ',' {
            self.out.push('}');
        }
        self.out.push(' ');
        write_number(self.out, value);
        self.out.push('\n');
    }
}

fn escape(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

/// Writes a number as Go's `strconv.FormatFloat(value, 'g', -1, 64)`: the shortest digits that round-trip, with an
/// exponent below -4 or above 5.
pub(super) fn write_number(out: &mut String, value: f64) {
    if value.is_nan() {
        return out.push_str("NaN");
    }
    if value.is_infinite() {
        return out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    }
    // Rust's shortest digits equal Go's. Writing to a `String` does not fail.
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return out.push_str(&text) };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            let _ = write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs());
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: f64) -> String {
        let mut out = String::new();
        write_number(&mut out, value);
        out
    }

    #[test]
    fn formats_numbers_as_go() {
        // The values up to `+Inf` are from a scrape of upstream's manager.
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.25, "0.25"),
            (0.001, "0.001"),
            (1e-8, "1e-08"),
            (9.999_999_999_999_999e-6, "9.999999999999999e-06"),
            (262_144.0, "262144"),
            (1_048_576.0, "1.048576e+06"),
            (1_795_248_365.84, "1.79524836584e+09"),
            (18_446_744_073_709_551_615.0, "1.8446744073709552e+19"),
            (f64::INFINITY, "+Inf"),
            (0.000_1, "0.0001"),
            (0.000_01, "1e-05"),
            (100_000.0, "100000"),
            (1_000_000.0, "1e+06"),
            (-2.5, "-2.5"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn escapes_quotes_in_label_values_only() {
        let mut out = String::new();
        Sample::new(&mut out, "a", &["b"], &["x\"y\\z\n".into()]).value("_sum", None, 1.0);
        assert_eq!(out, "a_sum{b=\"x\\\"y\\\\z\\n\"} 1\n");
        out.clear();
        escape(&mut out, "say \"no\"\n", false);
        assert_eq!(out, "say \"no\"\\n");
    }
}
