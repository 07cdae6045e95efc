use std::{collections::HashMap, sync::Arc, time::Duration};

use kcm_clock::Clock;
use parking_lot::Mutex;

use crate::{
    ItemState,
    default_rate_limiter::default_controller_rate_limiter,
    delaying_queue::DelayingQueue,
    item::Item,
    metrics::{MetricsProvider, NoQueueMetrics},
    rate_limiter::RateLimiter,
    work_item::{Owner, WorkItem},
};

/// Configuration of a [`RateLimitingQueue`].
#[derive(Debug)]
pub struct QueueConfig<T> {
    /// Name in metrics.
    pub name: String,
    /// Clock for delays.
    pub clock: Arc<dyn Clock>,
    /// Rate limiter for retries.
    pub rate_limiter: Box<dyn RateLimiter<T>>,
    /// Metrics.
    pub metrics: Arc<dyn MetricsProvider>,
}

impl<T: Item> QueueConfig<T> {
    /// Creates a configuration with the [default rate limiter](default_controller_rate_limiter) and without metrics.
    pub fn new(name: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        Self {
            name: name.into(),
            rate_limiter: default_controller_rate_limiter(Arc::clone(&clock)),
            clock,
            metrics: Arc::new(NoQueueMetrics),
        }
    }
}

/// [`DelayingQueue`] whose delays for retries are determined by a [`RateLimiter`]. Clones share the same queue.
///
/// Upstream counterpart: `workqueue.RateLimitingInterface`.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use kcm_clock::{FakeClock, Timestamp};
/// use kcm_workqueue::{QueueConfig, RateLimitingQueue};
///
/// let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
/// let queue = RateLimitingQueue::new(QueueConfig::new("websites", Arc::new(clock.clone())));
/// queue.add("default/web");
/// let web = queue.try_get().unwrap();
/// // The first failure is retried after 5 ms.
/// queue.add_rate_limited(*web);
/// drop(web);
/// assert!(queue.try_get().is_none());
/// clock.step(Duration::from_millis(5));
/// let web = queue.try_get().unwrap();
/// queue.forget(&web);
/// ```
#[derive(Debug)]
pub struct RateLimitingQueue<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
pub(crate) struct Shared<T> {
    pub(crate) queue: DelayingQueue<T>,
    limiter: Box<dyn RateLimiter<T>>,
    clock: Arc<dyn Clock>,
    /// Monotonic times at which the last delays of items with failures end.
    due: Mutex<HashMap<T, Duration>>,
}

impl<T> Clone for RateLimitingQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T: Item> RateLimitingQueue<T> {
    /// Creates an empty queue.
    pub fn new(config: QueueConfig<T>) -> Self {
        let QueueConfig { name, clock, rate_limiter, metrics } = config;
        let queue = DelayingQueue::new(&name, Arc::clone(&clock), &*metrics);
        let shared = Arc::new(Shared { queue, limiter: rate_limiter, clock, due: Mutex::default() });
        let weak = Arc::downgrade(&shared);
        let refresh = move || {
            weak.upgrade().is_some_and(|shared| {
                shared.queue.refresh_metrics();
                true
            })
        };
        metrics.refresh_with(&name, Box::new(refresh));
        Self { shared }
    }

    /// Records a failure of `item`, and adds it after the delay that the rate limiter determines.
    ///
    /// The failure is counted until [`forget`](Self::forget).
    pub fn add_rate_limited(&self, item: T) {
        let delay = self.shared.limiter.when(&item);
        self.retry_after(item, delay);
    }

    /// Adds `item`, which has not failed but has to wait, after a delay that grows until [`forget`](Self::forget). As
    /// [`add_rate_limited_once`](Self::add_rate_limited_once), without the limit that all items share: items that fail are
    /// not delayed by those that wait.
    pub fn add_backed_off(&self, item: T) {
        match self.remaining(&item) {
            Some(remaining) => self.add_after(item, remaining),
            None => {
                let delay = self.shared.limiter.when_alone(&item);
                self.retry_after(item, delay);
            }
        }
    }

    /// Adds `item`, which has failed for a reason that does not concern it, such as an API server that is not available or
    /// a cache that is late. As [`add_rate_limited`](Self::add_rate_limited), but a failure before the end of the last delay is
    /// not counted: `item` keeps the time of its retry.
    ///
    /// An item that events add while it backs off fails as often as there are events. With
    /// [`add_rate_limited`](Self::add_rate_limited), ten seconds without an API server can cause a delay of minutes. With this
    /// method for all failures, the delay is at most as long as they have lasted, or as the limit that all items share requires.
    pub fn add_rate_limited_once(&self, item: T) {
        match self.remaining(&item) {
            Some(remaining) => self.add_after(item, remaining),
            None => self.add_rate_limited(item),
        }
    }

    fn retry_after(&self, item: T, delay: Duration) {
        let due = self.shared.clock.monotonic().saturating_add(delay);
        self.shared.due.lock().insert(item.clone(), due);
        self.add_after(item, delay);
    }

    /// Returns the time until the last delay of `item` ends. `None` if it has ended.
    fn remaining(&self, item: &T) -> Option<Duration> {
        let due = *self.shared.due.lock().get(item)?;
        Some(due.saturating_sub(self.shared.clock.monotonic())).filter(|remaining| !remaining.is_zero())
    }

    /// Clears the failures of `item`, because it succeeded or is not retried. Does not remove it from the queue.
    pub fn forget(&self, item: &T) {
        self.shared.limiter.forget(item);
        self.shared.due.lock().remove(item);
    }

    /// Returns the number of recorded failures of `item`.
    pub fn num_requeues(&self, item: &T) -> u32 {
        self.shared.limiter.num_requeues(item)
    }

    /// Returns the state of `item`, for debugging. The state may change before the caller uses it.
    pub fn state_of(&self, item: &T) -> ItemState {
        let (phase, delay) = self.shared.queue.state_of(item);
        ItemState { phase, delay, requeues: self.num_requeues(item) }
    }

    /// Adds `item`. See [`Queue::add`](crate::Queue::add).
    pub fn add(&self, item: T) {
        self.shared.queue.add(item);
    }

    /// Adds `item` before those that are not urgent. See [`Queue::add_urgent`](crate::Queue::add_urgent).
    pub fn add_urgent(&self, item: T) {
        self.shared.queue.add_urgent(item);
    }

    /// Adds `item` after `delay`. See [`DelayingQueue::add_after`].
    pub fn add_after(&self, item: T, delay: Duration) {
        self.shared.queue.add_after(item, delay);
    }

    /// Waits for an item and takes it. Returns `None` once the queue is shut down and empty. See
    /// [`Queue::get`](crate::Queue::get).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not lose an item. A future that is not dropped must be polled.
    pub async fn get(&self) -> Option<WorkItem<'static, T>> {
        self.shared.queue.next().await.map(|item| self.work_item(item))
    }

    /// Takes an item without waiting. Returns `None` if no item is queued and due.
    pub fn try_get(&self) -> Option<WorkItem<'static, T>> {
        self.shared.queue.try_next().map(|item| self.work_item(item))
    }

    fn work_item(&self, item: T) -> WorkItem<'static, T> {
        WorkItem::new(item, Owner::RateLimiting(Arc::clone(&self.shared)))
    }

    /// Returns the number of queued items. Items that are not due are not counted.
    pub fn len(&self) -> usize {
        self.shared.queue.len()
    }

    /// Returns `true` if no item is queued.
    pub fn is_empty(&self) -> bool {
        self.shared.queue.is_empty()
    }

    /// Shuts the queue down. See [`Queue::shut_down`](crate::Queue::shut_down).
    pub fn shut_down(&self) {
        self.shared.queue.shut_down();
    }

    /// Shuts the queue down and waits until all items are done. See
    /// [`Queue::shut_down_with_drain`](crate::Queue::shut_down_with_drain).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait; the queue remains shut down.
    pub async fn shut_down_with_drain(&self) {
        self.shared.queue.shut_down_with_drain().await;
    }

    /// Returns `true` if the queue is shut down.
    pub fn is_shutting_down(&self) -> bool {
        self.shared.queue.is_shutting_down()
    }
}

#[cfg(test)]
mod tests;
