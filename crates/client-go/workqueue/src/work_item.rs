use std::{fmt, ops::Deref, sync::Arc};

use crate::{delaying_queue::DelayingQueue, item::Item, queue::Queue, rate_limiting_queue::Shared};

/// Item that a worker processes. Dropping it marks the item as processed.
///
/// If the item was added while the worker processed it, it is queued again when this is dropped. This includes a worker
/// that panics or is cancelled, so no worker can withhold an item.
///
/// ```
/// # use std::sync::Arc;
/// # use kcm_clock::RealClock;
/// use kcm_workqueue::{QueueConfig, RateLimitingQueue};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let queue = RateLimitingQueue::new(QueueConfig::new("example", Arc::new(RealClock::new())));
/// queue.add("a");
/// let item = queue.get().await.unwrap();
/// assert_eq!(*item, "a");
/// // Added while it is processed, and queued when the worker is done.
/// queue.add("a");
/// assert!(queue.try_get().is_none());
/// drop(item);
/// assert!(queue.try_get().is_some());
/// # }
/// ```
///
/// Dereferences to the item. Work items of a [`RateLimitingQueue`](crate::RateLimitingQueue) have the lifetime
/// `'static` and can be moved to another task.
///
/// Upstream counterpart: `Get` together with `defer Done`.
#[must_use = "dropping it marks the item as processed"]
pub struct WorkItem<'q, T: Item> {
    item: T,
    queue: Owner<'q, T>,
}

/// Queue of a work item.
pub(crate) enum Owner<'q, T> {
    Queue(&'q Queue<T>),
    Delaying(&'q DelayingQueue<T>),
    RateLimiting(Arc<Shared<T>>),
}

impl<'q, T: Item> WorkItem<'q, T> {
    pub(crate) fn new(item: T, queue: Owner<'q, T>) -> Self {
        Self { item, queue }
    }
}

impl<T: Item> Drop for WorkItem<'_, T> {
    fn drop(&mut self) {
        match &self.queue {
            Owner::Queue(queue) => queue.done(&self.item),
            Owner::Delaying(queue) => queue.done(&self.item),
            Owner::RateLimiting(shared) => shared.queue.done(&self.item),
        }
    }
}

impl<T: Item> Deref for WorkItem<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Item> fmt::Debug for WorkItem<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkItem").field(&self.item).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcm_clock::{FakeClock, Timestamp};

    use super::*;
    use crate::{NoQueueMetrics, QueueConfig, RateLimitingQueue};

    fn queue() -> RateLimitingQueue<&'static str> {
        RateLimitingQueue::new(QueueConfig::new("test", Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH))))
    }

    #[test]
    fn item_is_processed_when_it_is_dropped() {
        let queue = queue();
        queue.add("a");
        let item = queue.try_get().unwrap();
        assert_eq!((*item, format!("{item:?}").as_str()), ("a", "WorkItem(\"a\")"));
        queue.add("a");
        assert!(queue.try_get().is_none());
        drop(item);
        assert_eq!(queue.try_get().as_deref(), Some(&"a"));
        assert!(queue.try_get().is_none());
    }

    #[test]
    fn delayed_item_is_taken_when_it_is_due() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let queue = RateLimitingQueue::new(QueueConfig::new("test", Arc::new(clock.clone())));
        queue.add_after("a", Duration::from_secs(1));
        assert!(queue.try_get().is_none());
        clock.step(Duration::from_secs(1));
        assert_eq!(queue.try_get().as_deref(), Some(&"a"));
    }

    #[tokio::test]
    async fn lower_layers_return_work_items() {
        let clock: Arc<FakeClock> = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
        let queue = Queue::new("test", clock.clone(), &NoQueueMetrics);
        let delaying = DelayingQueue::new("test", clock, &NoQueueMetrics);
        queue.add("a");
        delaying.add("b");
        let (a, b) = (queue.get().await.unwrap(), delaying.get().await.unwrap());
        queue.add("a");
        delaying.add("b");
        assert_eq!((queue.len(), delaying.len()), (0, 0));
        drop((a, b));
        assert_eq!((queue.len(), delaying.len()), (1, 1));
    }

    /// A worker that panics or is cancelled does not withhold its item.
    #[tokio::test]
    async fn item_of_a_worker_that_ends_can_be_taken_again() {
        for cancelled in [false, true] {
            let queue = queue();
            queue.add("a");
            let item = queue.get().await.unwrap();
            let worker = tokio::spawn(async move {
                assert_eq!(*item, "a");
                if cancelled {
                    std::future::pending::<()>().await;
                }
                panic!("broken worker");
            });
            tokio::task::yield_now().await;
            // Not after the end of the first worker, when the item could be taken by another.
            if cancelled {
                queue.add("a");
                assert!(queue.try_get().is_none());
                worker.abort();
            }
            assert!(worker.await.is_err());
            queue.add("a");
            assert_eq!(queue.get().await.as_deref(), Some(&"a"));
            queue.shut_down_with_drain().await;
        }
    }
}
