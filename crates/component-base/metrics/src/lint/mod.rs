//! Whether an exposition text is as it should be.

mod parse;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
};

use self::parse::{Labels, Line, Sample, parse};

/// What is wrong with an exposition text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1; 0 for what is about a metric as a whole.
    pub line: usize,
    /// The metric, if it could be told.
    pub metric: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, metric, what } = self;
        if *line > 0 {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{metric}: {what}")
    }
}

/// Checks an exposition text of format 0.0.4: what a server would refuse, and what `promtool check metrics` advises
/// against.
///
/// * Lines can be read; names and escapes are valid; the last line ends.
/// * `# HELP` and `# TYPE` come once each, before the samples; the samples of a metric come together.
/// * No series comes twice; all series of a metric have the same labels.
/// * Counters end in `_total`, are neither negative nor `NaN`; others do not end in it.
/// * Histograms have buckets that rise, the last without a bound and equal to the count, and a sum.
/// * Names are in base units, without their type, in snake case.
///
/// ```
/// let text = "# HELP up Whether it is.\n# TYPE up gauge\nup 1\n";
/// assert_eq!(kcm_metrics::lint(text), []);
/// let problems = kcm_metrics::lint("# TYPE up counter\nup -1\n");
/// assert_eq!(problems.len(), 3);
/// ```
pub fn lint(text: &str) -> Vec<Problem> {
    let mut reading = Reading::default();
    if !text.is_empty() && !text.ends_with('\n') {
        reading.problem(0, "", "the last line does not end");
    }
    for (place, line) in text.lines().enumerate() {
        reading.line(place + 1, line);
    }
    for (name, metric) in &reading.metrics {
        for what in metric.problems(name) {
            reading.problems.push(Problem { line: 0, metric: name.clone(), what });
        }
    }
    reading.problems
}

#[derive(Default)]
struct Reading {
    metrics: BTreeMap<String, Metric>,
    /// The metric of the line before.
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
    fn problem(&mut self, line: usize, metric: &str, what: impl Into<String>) {
        self.problems.push(Problem { line, metric: metric.to_owned(), what: what.into() });
    }

    fn line(&mut self, number: usize, line: &str) {
        match parse(line) {
            Err(what) => self.problem(number, "", what),
            Ok(Line::Other) => {}
            Ok(Line::Help { metric, text }) => {
                self.enter(number, &metric);
                let entry = self.metrics.entry(metric.clone()).or_default();
                let (again, late) = (entry.help.is_some(), !entry.samples.is_empty());
                entry.help = Some(text);
                self.head(number, &metric, "HELP", again, late);
            }
            Ok(Line::Type { metric, kind }) => {
                self.enter(number, &metric);
                let entry = self.metrics.entry(metric.clone()).or_default();
                let (again, late) = (entry.kind.is_some(), !entry.samples.is_empty());
                entry.kind = Some(kind);
                self.head(number, &metric, "TYPE", again, late);
            }
            Ok(Line::Sample(sample)) => self.sample(number, sample),
        }
    }

    fn head(&mut self, number: usize, metric: &str, which: &str, again: bool, late: bool) {
        if again {
            self.problem(number, metric, format!("{which} twice"));
        }
        if late {
            self.problem(number, metric, format!("{which} after samples"));
        }
    }

    /// Notes that the lines of `metric` begin or go on.
    fn enter(&mut self, number: usize, metric: &str) {
        if self.current != metric {
            if self.metrics.contains_key(metric) {
                self.problem(number, metric, "its lines are not together");
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
            self.problem(number, &metric, format!("a series of {} twice", sample.name));
        }
        self.metrics.entry(metric).or_default().samples.push(sample);
    }

    /// The metric that a sample called `name` belongs to.
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
        let mut problem = |what: &str| problems.push(what.to_owned());
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
            problem("the name has the type in it");
        }
        match kind {
            "counter" => {
                if !name.ends_with("_total") {
                    problem("a counter whose name does not end in _total");
                }
                if self.samples.iter().any(|sample| sample.value.is_nan() || sample.value < 0.0) {
                    problem("a counter that is negative or no number");
                }
            }
            _ if name.ends_with("_total") => problem("no counter, and its name ends in _total"),
            _ => {}
        }
        if kind != "histogram" && self.has_label("le") {
            problem("no histogram, and has the label le");
        }
        if kind != "summary" && self.has_label("quantile") {
            problem("no summary, and has the label quantile");
        }
        if !matches!(kind, "histogram" | "summary") {
            if ["_bucket", "_sum", "_count"].iter().any(|suffix| name.ends_with(suffix)) {
                problem("a name that ends as those of a histogram's samples do");
            }
            if self.samples.iter().map(label_names).collect::<BTreeSet<_>>().len() > 1 {
                problem("series with different labels");
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

/// What one histogram of a metric says.
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
        let bound = labels.iter().position(|(label, _)| label == "le").map(|place| labels.remove(place).1);
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
                Err(_) => _ = problems.insert(format!("{bound:?} is no bound")),
            },
            _ => _ = problems.insert(format!("{} is no sample of a histogram", sample.name)),
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
        problems.insert("series with different bounds".to_owned());
    }
    if names.len() > 1 {
        problems.insert("series with different labels".to_owned());
    }
    problems
}

impl Histogram {
    fn problems(&self) -> Vec<&'static str> {
        let mut problems = Vec::new();
        let pairs = || self.buckets.iter().zip(self.buckets.iter().skip(1));
        if pairs().any(|((lower, _), (upper, _))| lower >= upper) {
            problems.push("buckets out of order");
        }
        if pairs().any(|((_, fewer), (_, more))| fewer > more) {
            problems.push("buckets that do not add up: a higher one has less");
        }
        match (self.buckets.last(), self.count) {
            (_, None) => problems.push("a histogram without _count"),
            (Some((bound, last)), Some(count)) if bound.is_infinite() => {
                if *last != count {
                    problems.push("the bucket +Inf is not the count");
                }
            }
            _ => problems.push("a histogram without a bucket +Inf"),
        }
        match self.sum {
            None => problems.push("a histogram without _sum"),
            Some(sum) if sum.is_nan() => problems.push("a histogram whose sum is no number"),
            Some(_) => {}
        }
        problems
    }
}

fn name_problems(name: &str) -> Vec<String> {
    /// Units, and the base unit to use instead.
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
            problems.push(format!("the unit {unit}, not {base}"));
        }
    }
    if name.chars().any(|c| c.is_ascii_uppercase()) {
        problems.push("capitals in the name".to_owned());
    }
    if name.contains(':') {
        problems.push("a colon in the name, which is for recording rules".to_owned());
    }
    problems
}

#[cfg(test)]
mod tests;
