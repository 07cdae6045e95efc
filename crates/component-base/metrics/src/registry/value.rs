//! Values that are updated concurrently.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::{MetricType, text::Sample};

/// Value of a time series.
pub trait Value: Send + Sync + 'static {
    /// Type of the metric.
    const KIND: MetricType;

    /// Creates a value. `buckets` are the sorted upper bounds of a histogram, without infinity.
    fn with_buckets(buckets: &'static [f64]) -> Self;

    /// Writes the samples.
    fn write(&self, sample: &mut Sample<'_>);
}

/// Monotonically increasing number.
#[derive(Default)]
pub struct Counter {
    /// Sum of the increments. An integer, so that an increment is a single atomic addition.
    whole: AtomicU64,
    /// Total set by [`set_total`](Self::set_total), as the bits of a float.
    total: AtomicU64,
}

impl Counter {
    /// Adds 1.
    pub fn inc(&self) {
        self.whole.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds `n`.
    pub fn inc_by(&self, n: u64) {
        self.whole.fetch_add(n, Ordering::Relaxed);
    }

    /// Sets the total that another component counts, such as the kernel. Must not be combined with increments.
    pub fn set_total(&self, total: f64) {
        self.total.store(total.to_bits(), Ordering::Relaxed);
    }

    /// Current value.
    pub fn get(&self) -> f64 {
        self.whole.load(Ordering::Relaxed) as f64 + f64::from_bits(self.total.load(Ordering::Relaxed))
    }
}

impl Value for Counter {
    const KIND: MetricType = MetricType::Counter;

    fn with_buckets(_: &'static [f64]) -> Self {
        Self::default()
    }

    fn write(&self, sample: &mut Sample<'_>) {
        sample.value("", None, self.get());
    }
}

/// Number that can increase and decrease.
#[derive(Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Sets the value to `duration` in seconds.
    pub fn set_seconds(&self, duration: Duration) {
        self.set(duration.as_secs_f64());
    }

    /// Adds `delta`, which may be negative.
    pub fn add(&self, delta: f64) {
        add(&self.0, delta);
    }

    /// Current value.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Value for Gauge {
    const KIND: MetricType = MetricType::Gauge;

    fn with_buckets(_: &'static [f64]) -> Self {
        Self::default()
    }

    fn write(&self, sample: &mut Sample<'_>) {
        sample.value("", None, self.get());
    }
}

/// Distribution of observed values.
pub struct Histogram {
    bounds: &'static [f64],
    /// Number of values per bucket, not cumulative. The last bucket has no bound. A scrape adds up the buckets, so that
    /// `_count` equals the last cumulative bucket during concurrent observations.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Records `value`. NaN is ignored: it would make the sum NaN.
    pub fn observe(&self, value: f64) {
        if value.is_nan() {
            return;
        }
        let index = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        if let Some(count) = self.counts.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
            add(&self.sum, value);
        }
    }

    /// Records `duration` in seconds.
    pub fn observe_seconds(&self, duration: Duration) {
        self.observe(duration.as_secs_f64());
    }

    /// Number of recorded values.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Sum of recorded values.
    pub fn sum(&self) -> f64 {
        f64::from_bits(self.sum.load(Ordering::Relaxed))
    }
}

impl Value for Histogram {
    const KIND: MetricType = MetricType::Histogram;

    fn with_buckets(bounds: &'static [f64]) -> Self {
        let counts = std::iter::repeat_with(AtomicU64::default).take(bounds.len() + 1).collect();
        Self { bounds, counts, sum: AtomicU64::default() }
    }

    fn write(&self, sample: &mut Sample<'_>) {
        let mut cumulative = 0;
        for (index, count) in self.counts.iter().enumerate() {
            cumulative += count.load(Ordering::Relaxed);
            let bound = self.bounds.get(index).copied().unwrap_or(f64::INFINITY);
            sample.value("_bucket", Some(bound), cumulative as f64);
        }
        sample.value("_sum", None, self.sum());
        sample.value("_count", None, cumulative as f64);
    }
}

fn add(bits: &AtomicU64, delta: f64) {
    let mut current = bits.load(Ordering::Relaxed);
    loop {
        let new = (f64::from_bits(current) + delta).to_bits();
        match bits.compare_exchange_weak(current, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(actual) => current = actual,
        }
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counter({})", self.get())
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gauge({})", self.get())
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram").field("count", &self.count()).field("sum", &self.sum()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_adds_or_mirrors() {
        let counter = Counter::default();
        counter.inc();
        counter.inc_by(2);
        assert_eq!(counter.get(), 3.0);
        let mirror = Counter::default();
        mirror.set_total(0.25);
        mirror.set_total(1.5);
        assert_eq!(mirror.get(), 1.5);
    }

    #[test]
    fn gauge_is_updated_atomically() {
        let gauge = Gauge::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| gauge.add(0.5)));
            }
        });
        assert_eq!(gauge.get(), 2000.0);
    }

    #[test]
    fn histogram_bounds_are_inclusive_and_nan_is_ignored() {
        let histogram = Histogram::with_buckets(&[1.0, 2.0]);
        for value in [1.0, 1.5, 3.0, f64::NAN] {
            histogram.observe(value);
        }
        assert_eq!((histogram.count(), histogram.sum()), (3, 5.5));
        let counts: Vec<_> = histogram.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert_eq!(counts, [1, 1, 1]);
    }
}
