//! Metrics by name, and their text.
//!
//! Why not the `prometheus` crate: it writes bounds otherwise than Go does, hashes label values without telling where
//! one ends and the next begins (two series can become one, in silence), and knows nothing of what
//! `--disabled-metrics` and `--allow-metric-labels` ask for. What would be left of it are a few atomic numbers.

mod family;
mod text;
mod value;

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::RwLock;

pub use self::{
    family::Family,
    text::Sample,
    value::{Counter, Gauge, Histogram, Value},
};
use crate::MetricsOptions;

/// How far a metric can be relied upon, as upstream marks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stability {
    /// May change or go at any time.
    Alpha,
    /// Changes are announced.
    Beta,
    /// Stays.
    Stable,
    /// Not marked: what every Prometheus client has, such as `process_*`.
    Unmarked,
}

impl Stability {
    /// As in help texts; nothing for what is not marked.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "STABLE",
            Self::Unmarked => "",
        }
    }
}

/// The type of a metric.
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
    /// As on a `# TYPE` line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Who else has a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Upstream's manager has it too, with this name, type, labels and buckets.
    Upstream,
    /// Only this program has it.
    Ours,
}

/// What to make a metric of: see [`Registry::metric`].
#[derive(Debug, Clone, Copy)]
pub struct Spec<const LABELS: usize> {
    /// Its name.
    pub name: &'static str,
    /// Its labels' names, in order of the alphabet, as upstream shows them.
    pub labels: [&'static str; LABELS],
    /// How far it can be relied upon.
    pub stability: Stability,
    /// Who else has it.
    pub origin: Origin,
    /// What it counts, in a sentence.
    pub help: &'static str,
    /// The upper bounds of a histogram, in order, without infinity. For others, none.
    pub buckets: &'static [f64],
}

impl<const LABELS: usize> Spec<LABELS> {
    /// A metric that upstream has, too.
    pub const fn upstream(
        name: &'static str,
        stability: Stability,
        labels: [&'static str; LABELS],
        help: &'static str,
    ) -> Self {
        Self { name, labels, stability, origin: Origin::Upstream, help, buckets: &[] }
    }

    /// A metric of one's own.
    pub const fn own(name: &'static str, labels: [&'static str; LABELS], help: &'static str) -> Self {
        Self { name, labels, stability: Stability::Alpha, origin: Origin::Ours, help, buckets: &[] }
    }

    /// The same with these bounds.
    pub const fn buckets(self, buckets: &'static [f64]) -> Self {
        Self { buckets, ..self }
    }
}

/// What a metric is, for tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: MetricType,
    /// Its labels' names.
    pub labels: Vec<&'static str>,
    /// How far it can be relied upon.
    pub stability: Stability,
    /// Who else has it.
    pub origin: Origin,
    /// What it counts.
    pub help: &'static str,
    /// The upper bounds of a histogram.
    pub buckets: &'static [f64],
}

impl Definition {
    /// A row of a table in Markdown: name, type, labels, stability, whose it is, what it means.
    pub fn table_row(&self) -> String {
        let labels: Vec<_> = self.labels.iter().map(|label| format!("`{label}`")).collect();
        let whose = match self.origin {
            Origin::Upstream => "upstream",
            Origin::Ours => "ours",
        };
        let stability = match self.stability {
            Stability::Unmarked => "–",
            stability => stability.as_str(),
        };
        format!(
            "| `{}` | {} | {} | {stability} | {whose} | {} |",
            self.name,
            self.kind.as_str(),
            labels.join(", "),
            self.help.replace('<', "\\<")
        )
    }

    /// The upper bounds of a histogram, spelled as in the label `le`, with commas between them.
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

    /// The help text with its mark.
    pub(crate) fn help_line(&self) -> String {
        match self.stability {
            Stability::Unmarked => self.help.to_owned(),
            stability => format!("[{}] {}", stability.as_str(), self.help),
        }
    }
}

/// Metrics by name. Clones are handles to the same metrics.
///
/// Upstream counterpart: `metrics.KubeRegistry`.
///
/// ```
/// use kcm_metrics::{Counter, MetricsOptions, Registry, Spec};
///
/// let registry = Registry::new(&MetricsOptions::default());
/// let cakes = registry.metric::<Counter, 1>(Spec::own("bakery_cakes_total", ["sort"], "Cakes baked, by sort."));
/// // Ask for a series once, and keep it.
/// let plain = cakes.with(["plain"]);
/// plain.inc();
/// assert!(registry.text().ends_with("bakery_cakes_total{sort=\"plain\"} 1\n"));
/// ```
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    metrics: RwLock<BTreeMap<&'static str, Entry>>,
    options: MetricsOptions,
    unexpected: Arc<Counter>,
}

struct Entry {
    definition: Definition,
    family: Arc<dyn family::Write>,
}

impl Registry {
    /// No metrics yet. What `options` disable will not be shown, and labels will have only values that they allow.
    pub fn new(options: &MetricsOptions) -> Self {
        Self(Arc::new(Inner {
            metrics: RwLock::default(),
            options: options.clone(),
            unexpected: Arc::default(),
        }))
    }

    /// A new metric. It is shown as soon as it has a series; one without labels has it at once.
    ///
    /// A name that is taken stays with the metric that has it: the new one counts, and is not shown.
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

    /// What metrics there are, in order of names, with and without series.
    pub fn definitions(&self) -> Vec<Definition> {
        self.0.metrics.read().values().map(|entry| entry.definition.clone()).collect()
    }

    /// How often a label's value was replaced because it is not allowed.
    pub(crate) fn unexpected(&self) -> f64 {
        self.0.unexpected.get()
    }

    /// All series, as the exposition format 0.0.4 has it.
    pub fn text(&self) -> String {
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
