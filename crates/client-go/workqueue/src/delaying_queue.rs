use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use kcm_clock::Clock;

use crate::{
    ItemPhase,
    item::Item,
    metrics::MetricsProvider,
    queue::{Queue, TryGet},
    sync::{AtomicU64, Mutex, Notify},
    work_item::{Owner, WorkItem},
};

/// [`Queue`] to which items can be added after a delay.
///
/// Upstream counterpart: `workqueue.DelayingInterface`.
///
/// # How delayed items are queued
///
/// There is no background task, so the queue needs no runtime to add items and leaves nothing running:
///
/// * Every method first queues the items that are due. Items are therefore ordered by the time at which they were added or
///   became due, and the length is exact.
/// * Of the workers that wait in [`get`](Self::get), the one that has waited longest sleeps until the next item is due.
///   When it gets an item or is cancelled, the next one takes over.
///
/// While all workers are busy, items that become due are queued by the first worker that calls a method. Until then the
/// [depth metric](crate::QueueMetrics::depth) is too low; [`refresh_metrics`](Self::refresh_metrics) updates it.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use kcm_clock::{FakeClock, Timestamp};
/// use kcm_workqueue::{DelayingQueue, NoQueueMetrics};
///
/// let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
/// let queue = DelayingQueue::new("websites", Arc::new(clock.clone()), &NoQueueMetrics);
/// queue.add_after("default/web", Duration::from_secs(30));
/// assert!(queue.is_empty());
/// clock.step(Duration::from_secs(30));
/// assert_eq!(queue.len(), 1);
/// ```
#[derive(Debug)]
pub struct DelayingQueue<T> {
    queue: Queue<T>,
    waiting: Mutex<Waiting<T>>,
    /// Earliest deadline in `waiting` in nanoseconds, [`NEVER`] if there is none. Written only while `waiting` is locked.
    /// Read without the lock, so that a queue without delayed items does not lock it.
    earliest: AtomicU64,
    /// Notified when `earliest` decreases.
    earlier: Notify,
    /// Locked by the waiting worker that sleeps until `earliest`. The lock is fair: it passes to the worker that has
    /// waited longest.
    timekeeper: tokio::sync::Mutex<()>,
    clock: Arc<dyn Clock>,
}

const NEVER: u64 = u64::MAX;

#[derive(Debug)]
struct Waiting<T> {
    /// Items by deadline. The number orders items with the same deadline by the time at which they were added.
    by_deadline: BTreeMap<(Duration, u64), T>,
    /// Key in `by_deadline` of each item.
    deadlines: HashMap<T, (Duration, u64)>,
    next: u64,
}

impl<T: Item> DelayingQueue<T> {
    /// Creates an empty queue.
    pub fn new(name: &str, clock: Arc<dyn Clock>, metrics: &dyn MetricsProvider) -> Self {
        Self {
            queue: Queue::new(name, Arc::clone(&clock), metrics),
            waiting: Mutex::new(Waiting { by_deadline: BTreeMap::new(), deadlines: HashMap::new(), next: 0 }),
            earliest: AtomicU64::new(NEVER),
            earlier: Notify::new(),
            timekeeper: tokio::sync::Mutex::new(()),
            clock,
        }
    }

    /// Adds `item` after `delay`; immediately if it is zero.
    ///
    /// If the item is delayed already, the earlier of both times applies. Adding it immediately does not remove a delayed
    /// add of the same item. No effect if the queue is shut down.
    pub fn add_after(&self, item: T, delay: Duration) {
        if self.is_shutting_down() {
            return;
        }
        self.queue.count_retry();
        if delay.is_zero() {
            return self.add(item);
        }
        // Otherwise an earlier delay of the item that has passed would replace this one.
        self.move_due();
        let deadline = self.clock.monotonic().saturating_add(delay);
        let is_earlier = {
            let mut waiting = self.waiting.lock();
            waiting.insert(item, deadline);
            self.publish_earliest(&waiting)
        };
        if is_earlier {
            self.earlier.notify_one();
        }
    }

    /// See [`Queue::add`].
    pub fn add(&self, item: T) {
        self.move_due();
        self.queue.add(item);
    }

    /// See [`Queue::add_urgent`].
    pub fn add_urgent(&self, item: T) {
        self.move_due();
        self.queue.add_urgent(item);
    }

    /// See [`Queue::get`].
    ///
    /// # Cancel safety
    ///
    /// See [`Queue::get`].
    pub async fn get(&self) -> Option<WorkItem<'_, T>> {
        self.next().await.map(|item| WorkItem::new(item, Owner::Delaying(self)))
    }

    /// Waits for an item and takes it. The caller marks it as [`done`](Self::done).
    pub(crate) async fn next(&self) -> Option<T> {
        // Yields to other tasks if the worker never waits otherwise. `Queue::next` is not called while items are queued.
        tokio::task::consume_budget().await;
        self.move_due();
        match self.queue.try_get() {
            TryGet::Item(item) => return Some(item),
            TryGet::ShutDown => return None,
            TryGet::Empty => {}
        }
        tokio::select! {
            biased;
            item = self.queue.next() => item,
            never = self.keep_time() => match never {},
        }
    }

    /// Takes an item without waiting. Returns `None` if no item is queued and due.
    pub(crate) fn try_next(&self) -> Option<T> {
        self.move_due();
        match self.queue.try_get() {
            TryGet::Item(item) => Some(item),
            TryGet::Empty | TryGet::ShutDown => None,
        }
    }

    /// Queues items as they become due, until the future is dropped. Waits while another worker does.
    async fn keep_time(&self) -> Infallible {
        let _guard = self.timekeeper.lock().await;
        loop {
            match self.move_due() {
                None => self.earlier.notified().await,
                Some(delay) => tokio::select! {
                    biased;
                    () = self.clock.timer("delayed key", delay) => {}
                    () = self.earlier.notified() => {}
                },
            }
        }
    }

    /// Queues the items that are due, earliest first. Returns the time until the next one is due.
    fn move_due(&self) -> Option<Duration> {
        let earliest = self.earliest.load(Ordering::Acquire);
        if earliest == NEVER {
            return None;
        }
        let now = self.clock.monotonic();
        let delay = Duration::from_nanos(earliest).saturating_sub(now);
        if !delay.is_zero() {
            return Some(delay);
        }
        let mut waiting = self.waiting.lock();
        // The lock is held while items are added, so that concurrent calls keep the order.
        while let Some(item) = waiting.pop_due(now) {
            self.queue.add(item);
        }
        self.publish_earliest(&waiting);
        waiting.earliest().map(|deadline| deadline.saturating_sub(now))
    }

    /// Updates `earliest`. Returns `true` if it has decreased.
    fn publish_earliest(&self, waiting: &Waiting<T>) -> bool {
        let earliest = waiting.earliest().map_or(NEVER, |deadline| {
            // 2^64 ns are 584 years. Later deadlines are limited to that.
            u64::try_from(deadline.as_nanos()).unwrap_or(NEVER - 1)
        });
        earliest < self.earliest.swap(earliest, Ordering::AcqRel)
    }

    /// See [`Queue::done`].
    pub(crate) fn done(&self, item: &T) {
        self.move_due();
        self.queue.done(item);
    }

    /// See [`Queue::len`]. Items that are not due are not counted.
    pub fn len(&self) -> usize {
        self.move_due();
        self.queue.len()
    }

    /// Returns `true` if [`len`](Self::len) is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the place of `item`, and the time until it is added. Does not change the queue: an item that is due is reported as
    /// if it had been added.
    pub(crate) fn state_of(&self, item: &T) -> (ItemPhase, Option<Duration>) {
        let deadline = self.waiting.lock().deadlines.get(item).map(|(deadline, _)| *deadline);
        let phase = self.queue.phase_of(item);
        let Some(deadline) = deadline else { return (phase, None) };
        match deadline.checked_sub(self.clock.monotonic()).filter(|delay| !delay.is_zero()) {
            Some(delay) => (phase, Some(delay)),
            None => (phase.added(), None),
        }
    }

    /// See [`Queue::shut_down`]. Items that are not due are dropped.
    pub fn shut_down(&self) {
        self.move_due();
        self.queue.shut_down();
        self.drop_waiting();
    }

    /// See [`Queue::shut_down_with_drain`]. Items that are not due are dropped.
    ///
    /// # Cancel safety
    ///
    /// See [`Queue::shut_down_with_drain`].
    pub async fn shut_down_with_drain(&self) {
        self.move_due();
        self.queue.begin_shut_down(true);
        self.drop_waiting();
        self.queue.drained().await;
    }

    fn drop_waiting(&self) {
        let mut waiting = self.waiting.lock();
        waiting.by_deadline.clear();
        waiting.deadlines.clear();
        self.publish_earliest(&waiting);
    }

    /// See [`Queue::is_shutting_down`].
    pub fn is_shutting_down(&self) -> bool {
        self.queue.is_shutting_down()
    }

    /// See [`Queue::refresh_metrics`].
    pub fn refresh_metrics(&self) {
        self.move_due();
        self.queue.refresh_metrics();
    }
}

impl<T: Item> Waiting<T> {
    fn insert(&mut self, item: T, deadline: Duration) {
        if let Some(known) = self.deadlines.get(&item) {
            if known.0 <= deadline {
                return;
            }
            self.by_deadline.remove(known);
        }
        let key = (deadline, self.next);
        self.next += 1;
        self.deadlines.insert(item.clone(), key);
        self.by_deadline.insert(key, item);
    }

    fn earliest(&self) -> Option<Duration> {
        self.by_deadline.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    fn pop_due(&mut self, now: Duration) -> Option<T> {
        if self.earliest()? > now {
            return None;
        }
        let (_, item) = self.by_deadline.pop_first()?;
        self.deadlines.remove(&item);
        Some(item)
    }
}

#[cfg(test)]
mod tests;
