use std::{sync::Arc, time::Duration};

use kcm_clock::Clock;

use crate::{
    bucket::BucketRateLimiter,
    item::Item,
    item_exponential::ItemExponentialFailureRateLimiter,
    rate_limiter::{MaxOfRateLimiter, RateLimiter},
};

/// Creates the rate limiter that controllers use (US-2.2): the longer of two delays.
///
/// * Per item: 5 ms, doubled with each failure, up to 1000 s.
/// * All items together: 10 per second, after a burst of 100.
///
/// Example: if 130 items fail for the first time at once, 100 of them are added after 5 ms, and the others follow every
/// 100 ms.
pub fn default_controller_rate_limiter<T: Item>(clock: Arc<dyn Clock>) -> Box<dyn RateLimiter<T>> {
    let (base, max) = (Duration::from_millis(5), Duration::from_secs(1000));
    Box::new(MaxOfRateLimiter::new(vec![
        Box::new(ItemExponentialFailureRateLimiter::new(base, max)),
        Box::new(BucketRateLimiter::new(10.0, 100, clock)),
    ]))
}
