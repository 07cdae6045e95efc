//! Numbers that many tasks change at once.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::{MetricType, text::Sample};

/// What a series holds.
pub trait Value: Send + Sync + 'static {
    /// The type on the `# TYPE` line.
    const KIND: MetricType;

    /// A new one; `buckets` are the upper bounds of a histogram, in order, without infinity.
    fn with_buckets(buckets: &'static [f64]) -> Self;

    /// Writes its samples.
    fn write(&self, sample: &mut Sample<'_>);
}

/// A number that only grows.
#[derive(Default)]
pub struct Counter {
    /// What was counted one by one: an addition that never has to be repeated.
    whole: AtomicU64,
    /// The rest, as the bits of a float.
    rest: AtomicU64,
}

impl Counter {
    /// One more.
    pub fn inc(&self) {
        self.whole.fetch_add(1, Ordering::Relaxed);
    }

    /// So many more.
    pub fn inc_by(&self, n: u64) {
        self.whole.fetch_add(n, Ordering::Relaxed);
    }

    /// Mirrors a count that somebody else keeps, such as the kernel. Not to be mixed with the other methods.
    pub fn set_total(&self, total: f64) {
        self.rest.store(total.to_bits(), Ordering::Relaxed);
    }

    /// How much was counted.
    pub fn get(&self) -> f64 {
        self.whole.load(Ordering::Relaxed) as f64 + f64::from_bits(self.rest.load(Ordering::Relaxed))
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

/// A number that comes and goes.
#[derive(Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Makes it `value`.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Makes it as many seconds as `duration` has.
    pub fn set_seconds(&self, duration: Duration) {
        self.set(duration.as_secs_f64());
    }

    /// Adds `delta`, which may be negative.
    pub fn add(&self, delta: f64) {
        add(&self.0, delta);
    }

    /// What it is.
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

/// How often values fell between bounds.
pub struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for what is above all of them. Each value is counted once, so that what a scrape
    /// adds up is consistent, whatever is observed meanwhile.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Counts `value`. What is no number is not counted: it would spoil the sum for good.
    pub fn observe(&self, value: f64) {
        if value.is_nan() {
            return;
        }
        let place = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
            add(&self.sum, value);
        }
    }

    /// Counts as many seconds as `duration` has.
    pub fn observe_seconds(&self, duration: Duration) {
        self.observe(duration.as_secs_f64());
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// All values added up.
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
        let mut so_far = 0;
        for (place, count) in self.counts.iter().enumerate() {
            so_far += count.load(Ordering::Relaxed);
            let bound = self.bounds.get(place).copied().unwrap_or(f64::INFINITY);
            sample.value("_bucket", Some(bound), so_far as f64);
        }
        sample.value("_sum", None, self.sum());
        sample.value("_count", None, so_far as f64);
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
    fn counter_counts_whole_numbers_and_mirrors_others() {
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
    fn gauge_of_many_threads_loses_nothing() {
        let gauge = Gauge::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| gauge.add(0.5)));
            }
        });
        assert_eq!(gauge.get(), 2000.0);
    }

    #[test]
    fn histogram_puts_a_value_on_a_bound_below_it_and_ignores_what_is_no_number() {
        let histogram = Histogram::with_buckets(&[1.0, 2.0]);
        for value in [1.0, 1.5, 3.0, f64::NAN] {
            histogram.observe(value);
        }
        assert_eq!((histogram.count(), histogram.sum()), (3, 5.5));
        let counts: Vec<_> = histogram.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert_eq!(counts, [1, 1, 1]);
    }
}
