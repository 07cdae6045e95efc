//! The third layer: retries that back off, and the handle that controllers share.

use std::{sync::Arc, time::Duration};

use kcm_clock::Clock;

use crate::{
    DelayingQueue, Item, MetricsProvider, NoQueueMetrics, RateLimiter, default_controller_rate_limiter,
};

/// What a [`RateLimitingQueue`] is made of.
#[derive(Debug)]
pub struct QueueConfig<T> {
    /// What metrics call the queue.
    pub name: String,
    /// Where delays are measured.
    pub clock: Arc<dyn Clock>,
    /// How long a failed item waits.
    pub rate_limiter: Box<dyn RateLimiter<T>>,
    /// Who wants to know.
    pub metrics: Arc<dyn MetricsProvider>,
}

impl<T: Item> QueueConfig<T> {
    /// What controllers use: the [default limiter](default_controller_rate_limiter), and no metrics.
    pub fn new(name: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        Self {
            name: name.into(),
            rate_limiter: default_controller_rate_limiter(Arc::clone(&clock)),
            clock,
            metrics: Arc::new(NoQueueMetrics),
        }
    }
}

/// A [`DelayingQueue`] that knows how long a failed item should wait. Clones are handles to the same queue.
///
/// Upstream counterpart: `workqueue.RateLimitingInterface`.
#[derive(Debug)]
pub struct RateLimitingQueue<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    queue: DelayingQueue<T>,
    limiter: Box<dyn RateLimiter<T>>,
}

impl<T> Clone for RateLimitingQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T: Item> RateLimitingQueue<T> {
    /// An empty queue.
    pub fn new(config: QueueConfig<T>) -> Self {
        let QueueConfig { name, clock, rate_limiter, metrics } = config;
        let queue = DelayingQueue::new(&name, clock, &*metrics);
        let shared = Arc::new(Shared { queue, limiter: rate_limiter });
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

    /// Adds `item` once the rate limiter says it may come again, and counts a failure of it.
    ///
    /// It stays counted until [`forget`](Self::forget), whatever [`done`](Self::done) says.
    pub fn add_rate_limited(&self, item: T) {
        let delay = self.shared.limiter.when(&item);
        self.add_after(item, delay);
    }

    /// Forgets the failures of `item`: it has succeeded, or nobody will try it again. It stays in the queue.
    pub fn forget(&self, item: &T) {
        self.shared.limiter.forget(item);
    }

    /// How many failures of `item` are remembered.
    pub fn num_requeues(&self, item: &T) -> u32 {
        self.shared.limiter.num_requeues(item)
    }

    /// Adds `item` at once. See [`Queue::add`](crate::Queue::add).
    pub fn add(&self, item: T) {
        self.shared.queue.add(item);
    }

    /// Adds `item` once `delay` has passed. See [`DelayingQueue::add_after`].
    pub fn add_after(&self, item: T, delay: Duration) {
        self.shared.queue.add_after(item, delay);
    }

    /// Waits for an item and takes it; `None` once the queue is shut down and empty. See
    /// [`Queue::get`](crate::Queue::get).
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped has taken nothing. One that is kept must be polled.
    pub async fn get(&self) -> Option<T> {
        self.shared.queue.get().await
    }

    /// Gives `item` back. See [`Queue::done`](crate::Queue::done).
    pub fn done(&self, item: &T) {
        self.shared.queue.done(item);
    }

    /// How many items could be taken now.
    pub fn len(&self) -> usize {
        self.shared.queue.len()
    }

    /// Whether no item could be taken now.
    pub fn is_empty(&self) -> bool {
        self.shared.queue.is_empty()
    }

    /// Takes no more items in. See [`Queue::shut_down`](crate::Queue::shut_down).
    pub fn shut_down(&self) {
        self.shared.queue.shut_down();
    }

    /// Takes no more items in, and waits until all are done with. See
    /// [`Queue::shut_down_with_drain`](crate::Queue::shut_down_with_drain).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait; the queue stays shut down.
    pub async fn shut_down_with_drain(&self) {
        self.shared.queue.shut_down_with_drain().await;
    }

    /// Whether shutdown has begun.
    pub fn is_shutting_down(&self) -> bool {
        self.shared.queue.is_shutting_down()
    }

    /// Brings the metrics up to date that change with time alone. See
    /// [`Queue::refresh_metrics`](crate::Queue::refresh_metrics).
    pub fn refresh_metrics(&self) {
        self.shared.queue.refresh_metrics();
    }
}

#[cfg(test)]
mod tests;
