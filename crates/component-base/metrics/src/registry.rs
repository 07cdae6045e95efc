//! Registry of metrics.
//!
//! The `prometheus` crate is not used: it formats bucket bounds differently from Go, it hashes label values without
//! separators (two time series can become one), and it does not support `--disabled-metrics` and
//! `--allow-metric-labels`.

mod family;
mod text;
mod value;

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::{Mutex, RwLock};

pub use self::{
    family::Family,
    text::Sample,
    value::{Counter, Gauge, Histogram, Value},
};
use crate::MetricsOptions;

/// Media type of the exposition, with the parameters that upstream sends by default.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// Function that updates metrics before a scrape. It is removed when it returns `false`.
pub type ScrapeHook = Box<dyn Fn() -> bool + Send + Sync>;

/// Stability level of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stability {
    /// May change or be removed at any time.
    Alpha,
    /// Changes are announced in advance.
    Beta,
    /// Does not change.
    Stable,
    /// No level: metrics of Prometheus clients, such as `process_*`.
    Unmarked,
}

impl Stability {
    /// Level in help texts. Empty for [`Unmarked`](Self::Unmarked).
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "STABLE",
            Self::Unmarked => "",
        }
    }
}

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetricType {
    /// See [`Counter`].
    Counter,
    /// See [`Gauge`].
    Gauge,
    /// See [`Histogram`].
    Histogram,
}

impl MetricType {
    /// Type on a `# TYPE` line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Origin of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Upstream exports the metric with the same name, type, labels and buckets.
    Upstream,
    /// Only this project exports the metric.
    Project,
}

/// Specification of a metric for [`Registry::metric`].
#[derive(Debug, Clone, Copy)]
pub struct Spec<const LABELS: usize> {
    /// Metric name.
    pub name: &'static str,
    /// Label names, sorted.
    pub labels: [&'static str; LABELS],
    /// Stability level.
    pub stability: Stability,
    /// Origin.
    pub origin: Origin,
    /// Help text: one sentence.
    pub help: &'static str,
    /// Upper bounds of a histogram's buckets, sorted, without infinity. Empty for other types.
    pub buckets: &'static [f64],
}

impl<const LABELS: usize> Spec<LABELS> {
    /// Metric that upstream exports.
    pub const fn upstream(
        name: &'static str,
        stability: Stability,
        labels: [&'static str; LABELS],
        help: &'static str,
    ) -> Self {
        Self { name, labels, stability, origin: Origin::Upstream, help, buckets: &[] }
    }

    /// Metric that upstream does not export. Its stability is [`Alpha`](Stability::Alpha).
    pub const fn own(name: &'static str, labels: [&'static str; LABELS], help: &'static str) -> Self {
        Self { name, labels, stability: Stability::Alpha, origin: Origin::Project, help, buckets: &[] }
    }

    /// Sets the bounds of the buckets.
    pub const fn buckets(self, buckets: &'static [f64]) -> Self {
        Self { buckets, ..self }
    }
}

/// Definition of a registered metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Metric name.
    pub name: &'static str,
    /// Type.
    pub kind: MetricType,
    /// Label names.
    pub labels: Vec<&'static str>,
    /// Stability level.
    pub stability: Stability,
    /// Origin.
    pub origin: Origin,
    /// Help text.
    pub help: &'static str,
    /// Upper bounds of a histogram's buckets.
    pub buckets: &'static [f64],
}

impl Definition {
    /// Row of a Markdown table: name, type, labels, stability, origin and help text.
    pub fn table_row(&self) -> String {
        let labels: Vec<_> = self.labels.iter().map(|label| format!("`{label}`")).collect();
        let origin = match self.origin {
            Origin::Upstream => "upstream",
            Origin::Project => "project",
        };
        let stability = match self.stability {
            Stability::Unmarked => "–",
            stability => stability.as_str(),
        };
        format!(
            "| `{}` | {} | {} | {stability} | {origin} | {} |",
            self.name,
            self.kind.as_str(),
            labels.join(", "),
            self.help.replace('<', "\\<")
        )
    }

    /// Upper bounds of a histogram's buckets, formatted as the label `le` and separated by commas.
    pub fn bounds(&self) -> String {
        let mut out = String::new();
        for bound in self.buckets {
            if !out.is_empty() {
                out.push_str(", ");
            }
            text::write_number(&mut out, *bound);
        }
        out
    }

    /// Help text with the stability level.
    pub(crate) fn help_line(&self) -> String {
        match self.stability {
            Stability::Unmarked => self.help.to_owned(),
            stability => format!("[{}] {}", stability.as_str(), self.help),
        }
    }
}

/// Metrics by name. Clones share the metrics.
///
/// Upstream counterpart: `metrics.KubeRegistry`.
///
/// ```
/// use kcm_metrics::{Counter, MetricsOptions, Registry, Spec};
///
/// let registry = Registry::new(&MetricsOptions::default());
/// let requests = registry.metric::<Counter, 1>(Spec::own("operator_requests_total", ["verb"], "Requests by verb."));
/// // Look up a time series once, and keep it.
/// let get = requests.with(["get"]);
/// get.inc();
/// assert!(registry.text().ends_with("operator_requests_total{verb=\"get\"} 1\n"));
/// ```
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    metrics: RwLock<BTreeMap<&'static str, Entry>>,
    options: MetricsOptions,
    unexpected: Arc<Counter>,
    hooks: Mutex<Vec<ScrapeHook>>,
}

struct Entry {
    definition: Definition,
    family: Arc<dyn family::Write>,
}

impl Registry {
    /// Creates an empty registry. Disabled metrics are not exported, and labels have allowed values only.
    pub fn new(options: &MetricsOptions) -> Self {
        Self(Arc::new(Inner {
            metrics: RwLock::default(),
            options: options.clone(),
            unexpected: Arc::default(),
            hooks: Mutex::default(),
        }))
    }

    /// Registers a metric. It is exported once it has a time series. A metric without labels always has one.
    ///
    /// If the name is registered already, the new metric is not exported.
    pub fn metric<V: Value, const LABELS: usize>(&self, spec: Spec<LABELS>) -> Family<V, LABELS> {
        let allowed = spec.labels.map(|label| self.0.options.allowed(spec.name, label));
        let family = Family::new(spec, allowed, Arc::clone(&self.0.unexpected));
        if !self.0.options.disabled.iter().any(|name| name == spec.name) {
            let definition = Definition {
                name: spec.name,
                kind: V::KIND,
                labels: spec.labels.to_vec(),
                stability: spec.stability,
                origin: spec.origin,
                help: spec.help,
                buckets: spec.buckets,
            };
            let entry = Entry { definition, family: family.writer() };
            self.0.metrics.write().entry(spec.name).or_insert(entry);
        }
        family
    }

    /// Definitions of all exported metrics, sorted by name, including those without time series.
    pub fn definitions(&self) -> Vec<Definition> {
        self.0.metrics.read().values().map(|entry| entry.definition.clone()).collect()
    }

    /// Number of label values that were replaced because they are not allowed.
    pub(crate) fn replaced_label_values(&self) -> Arc<Counter> {
        Arc::clone(&self.0.unexpected)
    }

    /// Adds a hook that runs at each scrape, for values that are computed on demand.
    pub fn on_scrape(&self, hook: ScrapeHook) {
        self.0.hooks.lock().push(hook);
    }

    /// Exposition of all metrics in the text format 0.0.4. Runs the [hooks](Self::on_scrape) first.
    pub fn text(&self) -> String {
        self.0.hooks.lock().retain(|hook| hook());
        let mut out = String::with_capacity(32 << 10);
        for Entry { definition, family } in self.0.metrics.read().values() {
            if family.is_empty() {
                continue;
            }
            text::write_head(&mut out, definition);
            family.write(&mut out);
        }
        out
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.metrics.read().keys()).finish()
    }
}

#[cfg(test)]
mod tests;
