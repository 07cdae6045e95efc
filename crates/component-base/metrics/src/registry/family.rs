//! The series of one metric.

use std::{fmt, sync::Arc};

use parking_lot::RwLock;

use super::{Counter, Sample, Spec, Value};

/// What takes the place of a label's value that is not allowed.
const UNEXPECTED: &str = "unexpected";

/// One metric: a series for each combination of label values that was asked for. Clones are the same metric.
///
/// Ask for a series once and keep it where it is used often; asking again for one that exists costs a lock and a few
/// comparisons, and allocates nothing.
pub struct Family<V, const LABELS: usize>(Arc<Inner<V, LABELS>>);

struct Inner<V, const LABELS: usize> {
    spec: Spec<LABELS>,
    /// By label, the values that are shown; all of them, if none.
    allowed: [Option<Vec<String>>; LABELS],
    unexpected: Arc<Counter>,
    /// In order of values.
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

    /// The series with these label values, which come in the order of the labels.
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
            if let Some(found) = find(&series).ok().and_then(|place| series.get(place)) {
                return Arc::clone(&found.value);
            }
        }
        let mut series = self.0.series.write();
        match find(&series) {
            // Somebody else was quicker.
            Ok(place) if place < series.len() => Arc::clone(&series[place].value),
            Ok(place) | Err(place) => {
                let value = Arc::new(V::with_buckets(self.0.spec.buckets));
                series.insert(place, Series { values: values.map(Box::from), value: Arc::clone(&value) });
                value
            }
        }
    }
}

impl<V: Value> Family<V, 0> {
    /// The only series of a metric without labels.
    pub fn only(&self) -> Arc<V> {
        self.with([])
    }
}

/// A metric of any type.
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
