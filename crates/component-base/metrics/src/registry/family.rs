//! Time series of one metric.

use std::{fmt, sync::Arc};

use parking_lot::RwLock;

use super::{Counter, Sample, Spec, Value};

/// Replacement of label values that are not allowed.
const UNEXPECTED: &str = "unexpected";

/// Metric with a time series for each combination of label values. Clones share the time series.
///
/// Looking up an existing time series takes a lock and a binary search and does not allocate. Frequent users keep it.
pub struct Family<V, const LABELS: usize>(Arc<Inner<V, LABELS>>);

struct Inner<V, const LABELS: usize> {
    spec: Spec<LABELS>,
    /// Allowed values by label. `None` allows all.
    allowed: [Option<Vec<String>>; LABELS],
    unexpected: Arc<Counter>,
    /// Sorted by label values.
    series: RwLock<Vec<Series<V, LABELS>>>,
}

struct Series<V, const LABELS: usize> {
    values: [Box<str>; LABELS],
    value: Arc<V>,
}

impl<V: Value, const LABELS: usize> Family<V, LABELS> {
    pub(super) fn new(
        spec: Spec<LABELS>,
        allowed: [Option<Vec<String>>; LABELS],
        unexpected: Arc<Counter>,
    ) -> Self {
        let this = Self(Arc::new(Inner { spec, allowed, unexpected, series: RwLock::default() }));
        if LABELS == 0 {
            this.with([""; LABELS]);
        }
        this
    }

    pub(super) fn writer(&self) -> Arc<dyn Write> {
        Arc::clone(&self.0) as _
    }

    /// Returns the time series with these label values, in the order of the labels. Creates it if necessary.
    pub fn with(&self, mut values: [&str; LABELS]) -> Arc<V> {
        for (value, allowed) in values.iter_mut().zip(&self.0.allowed) {
            if let Some(allowed) = allowed
                && !allowed.iter().any(|allowed| allowed == value)
            {
                *value = UNEXPECTED;
                self.0.unexpected.inc();
            }
        }
        let find = |series: &[Series<V, LABELS>]| {
            series.binary_search_by(|series| series.values.iter().map(|value| &**value).cmp(values))
        };
        {
            let series = self.0.series.read();
            if let Some(found) = find(&series).ok().and_then(|index| series.get(index)) {
                return Arc::clone(&found.value);
            }
        }
        let mut series = self.0.series.write();
        match find(&series) {
            // Created by another thread in between.
            Ok(index) if index < series.len() => Arc::clone(&series[index].value),
            Ok(index) | Err(index) => {
                let value = Arc::new(V::with_buckets(self.0.spec.buckets));
                series.insert(index, Series { values: values.map(Box::from), value: Arc::clone(&value) });
                value
            }
        }
    }
}

impl<V: Value> Family<V, 0> {
    /// Returns the time series of a metric without labels.
    pub fn only(&self) -> Arc<V> {
        self.with([])
    }
}

/// Metric of any type.
pub(super) trait Write: Send + Sync {
    fn is_empty(&self) -> bool;
    fn write(&self, out: &mut String);
}

impl<V: Value, const LABELS: usize> Write for Inner<V, LABELS> {
    fn is_empty(&self) -> bool {
        self.series.read().is_empty()
    }

    fn write(&self, out: &mut String) {
        for Series { values, value } in &*self.series.read() {
            value.write(&mut Sample::new(out, self.spec.name, &self.spec.labels, values));
        }
    }
}

impl<V, const LABELS: usize> Clone for Family<V, LABELS> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V, const LABELS: usize> fmt::Debug for Family<V, LABELS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("spec", &self.0.spec).finish_non_exhaustive()
    }
}
