use std::{fmt::Debug, time::Duration};

use crate::item::Item;

/// Determines the delay of items that are retried.
///
/// Upstream counterpart: `workqueue.RateLimiter`.
pub trait RateLimiter<T>: Debug + Send + Sync + 'static {
    /// Records a failure of `item`. Returns the delay before it is retried.
    fn when(&self, item: &T) -> Duration;

    /// Records that `item` has to wait. Returns its delay: as [`when`](Self::when), without the limit that all items share.
    fn when_alone(&self, item: &T) -> Duration {
        self.when(item)
    }

    /// Clears the failures of `item`, because it succeeded or is not retried.
    fn forget(&self, item: &T);

    /// Returns the number of recorded failures of `item`.
    fn num_requeues(&self, item: &T) -> u32;
}

/// Combines rate limiters: the longest delay applies. Each limiter records every failure.
///
/// Upstream counterpart: `workqueue.MaxOfRateLimiter`.
#[derive(Debug)]
pub struct MaxOfRateLimiter<T> {
    limiters: Vec<Box<dyn RateLimiter<T>>>,
}

impl<T: Item> MaxOfRateLimiter<T> {
    /// Combines `limiters`. Without any, all delays are zero.
    pub fn new(limiters: Vec<Box<dyn RateLimiter<T>>>) -> Self {
        Self { limiters }
    }
}

impl<T: Item> RateLimiter<T> for MaxOfRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        self.limiters.iter().map(|limiter| limiter.when(item)).max().unwrap_or_default()
    }

    fn when_alone(&self, item: &T) -> Duration {
        self.limiters.iter().map(|limiter| limiter.when_alone(item)).max().unwrap_or_default()
    }

    fn forget(&self, item: &T) {
        for limiter in &self.limiters {
            limiter.forget(item);
        }
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.limiters.iter().map(|limiter| limiter.num_requeues(item)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Fixed {
        delay: Duration,
        failures: Mutex<u32>,
    }

    impl RateLimiter<u32> for Arc<Fixed> {
        fn when(&self, _item: &u32) -> Duration {
            *self.failures.lock() += 1;
            self.delay
        }

        fn forget(&self, _item: &u32) {
            *self.failures.lock() = 0;
        }

        fn num_requeues(&self, _item: &u32) -> u32 {
            *self.failures.lock()
        }
    }

    fn fixed(seconds: u64) -> Arc<Fixed> {
        Arc::new(Fixed { delay: Duration::from_secs(seconds), failures: Mutex::default() })
    }

    #[test]
    fn longest_delay_applies_and_each_limiter_records_the_failure() {
        let (short, long) = (fixed(0), fixed(9));
        let both = MaxOfRateLimiter::new(vec![Box::new(Arc::clone(&long)), Box::new(Arc::clone(&short))]);
        assert_eq!(both.when(&1), Duration::from_secs(9));
        assert_eq!((short.num_requeues(&1), long.num_requeues(&1)), (1, 1));
        short.when(&1);
        assert_eq!(both.num_requeues(&1), 2);
        both.forget(&1);
        assert_eq!((short.num_requeues(&1), long.num_requeues(&1)), (0, 0));
    }

    #[test]
    fn without_limiters_the_delay_is_zero() {
        let none = MaxOfRateLimiter::new(Vec::new());
        assert_eq!((none.when(&1), none.num_requeues(&1)), (Duration::ZERO, 0));
    }
}
