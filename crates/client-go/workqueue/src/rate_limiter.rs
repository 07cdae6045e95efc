//! How long an item has to wait.

use std::{fmt::Debug, sync::Arc, time::Duration};

use kcm_clock::Clock;

use crate::{BucketRateLimiter, Item, ItemExponentialFailureRateLimiter};

/// Decides how long an item waits before it may come again.
///
/// Upstream counterpart: `workqueue.RateLimiter`.
pub trait RateLimiter<T>: Debug + Send + Sync + 'static {
    /// Counts a failure of `item` and tells how long it has to wait.
    fn when(&self, item: &T) -> Duration;

    /// Forgets the failures of `item`: it has succeeded, or nobody will try it again.
    fn forget(&self, item: &T);

    /// How many failures of `item` are remembered.
    fn num_requeues(&self, item: &T) -> u32;
}

/// What controllers use: each item backs off from 5 ms to 1000 s, doubling; and all items together come at 10
/// per second after a burst of 100 (US-2.2). The longer wait counts.
pub fn default_controller_rate_limiter<T: Item>(clock: Arc<dyn Clock>) -> Box<dyn RateLimiter<T>> {
    Box::new(MaxOfRateLimiter::new(vec![
        Box::new(ItemExponentialFailureRateLimiter::new(Duration::from_millis(5), Duration::from_secs(1000))),
        Box::new(BucketRateLimiter::new(10.0, 100, clock)),
    ]))
}

/// The longest wait of several limiters, each of which counts every failure.
///
/// Upstream counterpart: `workqueue.MaxOfRateLimiter`.
#[derive(Debug)]
pub struct MaxOfRateLimiter<T> {
    limiters: Vec<Box<dyn RateLimiter<T>>>,
}

impl<T: Item> MaxOfRateLimiter<T> {
    /// A limiter that asks each of `limiters`. Without any, nothing waits.
    pub fn new(limiters: Vec<Box<dyn RateLimiter<T>>>) -> Self {
        Self { limiters }
    }
}

impl<T: Item> RateLimiter<T> for MaxOfRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        // Each is asked: asking counts.
        self.limiters.iter().map(|limiter| limiter.when(item)).max().unwrap_or_default()
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
