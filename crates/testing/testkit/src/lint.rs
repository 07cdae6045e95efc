//! Checks of an exposition.

mod parse;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
};

use self::parse::{Labels, Line, Sample, parse};

/// Problem in an exposition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line number, from 1. 0 if the problem concerns the whole metric.
    pub line: usize,
    /// Metric name. Empty if unknown.
    pub metric: String,
    /// Description.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, metric, message } = self;
        if *line > 0 {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{metric}: {message}")
    }
}

/// Checks an exposition in the text format 0.0.4: syntax that Prometheus rejects, and the advice of
/// `promtool check metrics`.
///
/// * Lines, names and escapes are valid, and the last line ends with a newline.
/// * A metric has one `# HELP` and one `# TYPE` line before its samples, and its lines are adjacent.
/// * Time series are unique, and all time series of a metric have the same labels.
/// * Names of counters end in `_total`, names of other types do not. Counters are neither negative nor NaN.
/// * Histograms have ascending cumulative buckets, a bucket `+Inf` equal to the count, and a sum.
/// * Names have base units, are in snake case, and do not contain the type.
///
/// ```
/// let text = "# HELP up Target is up.\n# TYPE up gauge\nup 1\n";
/// assert_eq!(kcm_testkit::lint(text), []);
/// let problems = kcm_testkit::lint("# TYPE up counter\nup -1\n");
/// assert_eq!(problems.len(), 3);
/// ```
pub fn lint(text: &str) -> Vec<Problem> {
    let mut reading = Reading::default();
    if !text.is_empty() && !text.ends_with('\n') {
        reading.problem(0, "", "no newline at the end");
    }
    for (index, line) in text.lines().enumerate() {
        reading.line(index + 1, line);
    }
    for (name, metric) in &reading.metrics {
        for message in metric.problems(name) {
            reading.problems.push(Problem { line: 0, metric: name.clone(), message });
        }
    }
    reading.problems
}

#[derive(Default)]
struct Reading {
    metrics: BTreeMap<String, Metric>,
    /// Metric of the previous line.
    current: String,
    seen: BTreeSet<(String, Labels)>,
    problems: Vec<Problem>,
}

#[derive(Default)]
struct Metric {
    help: Option<String>,
    kind: Option<String>,
    samples: Vec<Sample>,
}

impl Reading {
    fn problem(&mut self, line: usize, metric: &str, message: impl Into<String>) {
        self.problems.push(Problem { line, metric: metric.to_owned(), message: message.into() });
    }

    fn line(&mut self, number: usize, line: &str) {
        match parse(line) {
            Err(message) => self.problem(number, "", message),
            Ok(Line::Other) => {}
            Ok(Line::Help { metric, text }) => {
                self.enter(number, &metric);
                let entry = self.metrics.entry(metric.clone()).or_default();
                let (is_repeated, is_late) = (entry.help.is_some(), !entry.samples.is_empty());
                entry.help = Some(text);
                self.head(number, &metric, "HELP", is_repeated, is_late);
            }
            Ok(Line::Type { metric, kind }) => {
                self.enter(number, &metric);
                let entry = self.metrics.entry(metric.clone()).or_default();
                let (is_repeated, is_late) = (entry.kind.is_some(), !entry.samples.is_empty());
                entry.kind = Some(kind);
                self.head(number, &metric, "TYPE", is_repeated, is_late);
            }
            Ok(Line::Sample(sample)) => self.sample(number, sample),
        }
    }

    fn head(&mut self, number: usize, metric: &str, keyword: &str, is_repeated: bool, is_late: bool) {
        if is_repeated {
            self.problem(number, metric, format!("duplicate {keyword}"));
        }
        if is_late {
            self.problem(number, metric, format!("{keyword} after samples"));
        }
    }

    /// Sets the current metric. Reports lines of a metric that are not adjacent.
    fn enter(&mut self, number: usize, metric: &str) {
        if self.current != metric {
            if self.metrics.contains_key(metric) {
                self.problem(number, metric, "lines are not adjacent");
            }
            metric.clone_into(&mut self.current);
        }
    }

    fn sample(&mut self, number: usize, sample: Sample) {
        let metric = self.metric_of(&sample.name);
        self.enter(number, &metric);
        let mut labels = sample.labels.clone();
        labels.sort_unstable();
        if !self.seen.insert((sample.name.clone(), labels)) {
            self.problem(number, &metric, format!("duplicate time series {}", sample.name));
        }
        self.metrics.entry(metric).or_default().samples.push(sample);
    }

    /// Name of the metric that a sample belongs to.
    fn metric_of(&self, name: &str) -> String {
        for (suffix, kinds) in [
            ("_bucket", &["histogram"][..]),
            ("_sum", &["histogram", "summary"]),
            ("_count", &["histogram", "summary"]),
        ] {
            let kind = |base: &str| self.metrics.get(base).and_then(|metric| metric.kind.clone());
            if let Some(base) = name.strip_suffix(suffix)
                && kind(base).is_some_and(|kind| kinds.contains(&kind.as_str()))
            {
                return base.to_owned();
            }
        }
        name.to_owned()
    }
}

impl Metric {
    fn problems(&self, name: &str) -> Vec<String> {
        let mut problems = name_problems(name);
        let mut problem = |message: &str| problems.push(message.to_owned());
        if self.help.as_deref().is_none_or(|help| help.trim().is_empty()) {
            problem("no help text");
        }
        let Some(kind) = self.kind.as_deref() else {
            problem("no type");
            return problems;
        };
        if self.samples.is_empty() {
            problem("no samples");
        }
        if name.ends_with(&format!("_{kind}")) {
            problem("name contains the type");
        }
        match kind {
            "counter" => {
                if !name.ends_with("_total") {
                    problem("counter name does not end in _total");
                }
                if self.samples.iter().any(|sample| sample.value.is_nan() || sample.value < 0.0) {
                    problem("counter is negative or NaN");
                }
            }
            _ if name.ends_with("_total") => problem("name ends in _total, type is not counter"),
            _ => {}
        }
        if kind != "histogram" && self.has_label("le") {
            problem("label le, type is not histogram");
        }
        if kind != "summary" && self.has_label("quantile") {
            problem("label quantile, type is not summary");
        }
        if !matches!(kind, "histogram" | "summary") {
            if ["_bucket", "_sum", "_count"].iter().any(|suffix| name.ends_with(suffix)) {
                problem("name ends in a suffix of histograms");
            }
            if self.samples.iter().map(label_names).collect::<BTreeSet<_>>().len() > 1 {
                problem("time series with different labels");
            }
        }
        if kind == "histogram" {
            problems.extend(histogram_problems(name, &self.samples));
        }
        problems
    }

    fn has_label(&self, name: &str) -> bool {
        self.samples.iter().any(|sample| sample.labels.iter().any(|(label, _)| label == name))
    }
}

fn label_names(sample: &Sample) -> BTreeSet<&str> {
    sample.labels.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "le").collect()
}

/// Samples of one histogram.
#[derive(Default)]
struct Histogram {
    buckets: Vec<(f64, f64)>,
    sum: Option<f64>,
    count: Option<f64>,
}

fn histogram_problems(name: &str, samples: &[Sample]) -> BTreeSet<String> {
    let mut problems = BTreeSet::new();
    let mut histograms: BTreeMap<Labels, Histogram> = BTreeMap::new();
    for sample in samples {
        let mut labels = sample.labels.clone();
        let bound = labels.iter().position(|(label, _)| label == "le").map(|index| labels.remove(index).1);
        labels.sort_unstable();
        let histogram = match histograms.entry(labels) {
            Entry::Vacant(entry) => entry.insert(Histogram::default()),
            Entry::Occupied(entry) => entry.into_mut(),
        };
        match (sample.name.strip_prefix(name), bound) {
            (Some("_sum"), None) => histogram.sum = Some(sample.value),
            (Some("_count"), None) => histogram.count = Some(sample.value),
            (Some("_bucket"), Some(bound)) => match bound.replace("+Inf", "inf").parse() {
                Ok(bound) => histogram.buckets.push((bound, sample.value)),
                Err(_) => _ = problems.insert(format!("invalid bound {bound:?}")),
            },
            _ => _ = problems.insert(format!("{} is not a sample of a histogram", sample.name)),
        }
    }
    let mut bounds = BTreeSet::new();
    let mut names = BTreeSet::new();
    for (labels, histogram) in &histograms {
        problems.extend(histogram.problems().into_iter().map(str::to_owned));
        let texts: Vec<String> = histogram.buckets.iter().map(|(bound, _)| bound.to_string()).collect();
        bounds.insert(texts);
        names.insert(labels.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>());
    }
    if bounds.len() > 1 {
        problems.insert("time series with different bounds".to_owned());
    }
    if names.len() > 1 {
        problems.insert("time series with different labels".to_owned());
    }
    problems
}

impl Histogram {
    fn problems(&self) -> Vec<&'static str> {
        let mut problems = Vec::new();
        let pairs = || self.buckets.iter().zip(self.buckets.iter().skip(1));
        if pairs().any(|((lower, _), (upper, _))| lower >= upper) {
            problems.push("bounds are not ascending");
        }
        if pairs().any(|((_, fewer), (_, more))| fewer > more) {
            problems.push("bucket counts are not cumulative");
        }
        match (self.buckets.last(), self.count) {
            (_, None) => problems.push("histogram without _count"),
            (Some((bound, last)), Some(count)) if bound.is_infinite() => {
                if *last != count {
                    problems.push("bucket +Inf does not equal _count");
                }
            }
            _ => problems.push("histogram without a bucket +Inf"),
        }
        match self.sum {
            None => problems.push("histogram without _sum"),
            Some(sum) if sum.is_nan() => problems.push("histogram sum is NaN"),
            Some(_) => {}
        }
        problems
    }
}

fn name_problems(name: &str) -> Vec<String> {
    /// Units and their base units.
    const UNITS: &[(&str, &str)] = &[
        ("milliseconds", "seconds"),
        ("microseconds", "seconds"),
        ("nanoseconds", "seconds"),
        ("ms", "seconds"),
        ("us", "seconds"),
        ("ns", "seconds"),
        ("minutes", "seconds"),
        ("hours", "seconds"),
        ("days", "seconds"),
        ("kilobytes", "bytes"),
        ("megabytes", "bytes"),
        ("gigabytes", "bytes"),
        ("kb", "bytes"),
        ("mb", "bytes"),
        ("bits", "bytes"),
        ("percent", "a ratio"),
    ];
    let mut problems = Vec::new();
    for word in name.split('_') {
        if let Some((unit, base)) = UNITS.iter().find(|(unit, _)| *unit == word) {
            problems.push(format!("unit {unit} instead of {base}"));
        }
    }
    if name.chars().any(|c| c.is_ascii_uppercase()) {
        problems.push("name contains upper-case letters".to_owned());
    }
    if name.contains(':') {
        problems.push("name contains a colon, which is reserved for recording rules".to_owned());
    }
    problems
}

#[cfg(test)]
mod tests;
