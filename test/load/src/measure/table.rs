//! Tables of measurements.

/// Measurement.
#[derive(Debug)]
pub(crate) struct Measure {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
}

impl Measure {
    pub(crate) fn new(what: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self { what: what.into(), unit, value }
    }
}

/// Formats a Markdown table. The ratio is `ours / theirs`.
pub(crate) fn table(columns: [&str; 2], ours: &[Measure], theirs: Option<&[Measure]>) -> String {
    let [our_name, their_name] = columns;
    let mut text = format!("| What | Unit | {our_name} | {their_name} | Ratio |\n|---|---|---|---|---|\n");
    for (at, measure) in ours.iter().enumerate() {
        let Measure { what, unit, value } = measure;
        let (other, ratio) = match theirs.and_then(|theirs| theirs.get(at)) {
            Some(other) if other.value == 0.0 => (number(0.0), "–".to_owned()),
            Some(other) => (number(other.value), format!("{:.3}", value / other.value)),
            None => ("–".to_owned(), "–".to_owned()),
        };
        text.push_str(&format!("| {what} | {unit} | {} | {other} | {ratio} |\n", number(*value)));
    }
    text
}

/// Formats a number with about three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 1.0 => format!("{value:.3}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_with_both_columns_has_ratios() {
        let measure = |value| vec![Measure::new("create", "pods/s", value)];
        let text = table(["Ours", "Theirs"], &measure(100.0), Some(&measure(10.0)));
        assert!(text.ends_with("| create | pods/s | 100 | 10.0 | 10.000 |\n"), "{text}");
        let alone = table(["Ours", "Theirs"], &measure(0.5), None);
        assert!(alone.ends_with("| create | pods/s | 0.500 | – | – |\n"), "{alone}");
    }
}
