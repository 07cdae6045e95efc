//! The second layer: items that come later.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{
    Item, MetricsProvider, Queue,
    queue::Next,
    sync::{AtomicU64, Mutex, Notify},
};
use kcm_clock::Clock;

/// A [`Queue`] to which items can be added for later.
///
/// Upstream counterpart: `workqueue.DelayingInterface`.
///
/// # Who moves an item when its time has come
///
/// No task, so a queue needs no runtime to add to and leaves nothing running behind:
///
/// * Every call first moves what is due. So items stand in the queue in the order in which they were added or
///   fell due, whatever the workers were doing at the time, and the length is exact.
/// * While workers are parked in [`get`](Self::get), the one that has been parked longest sleeps until the
///   next item is due. When it leaves, however it leaves, the next one takes over.
///
/// While all workers are busy nobody looks, and nobody needs to: the first to come back moves what is due.
/// What lags in that time is the depth told to [`QueueMetrics`](crate::QueueMetrics), until
/// [`refresh_metrics`](Self::refresh_metrics).
#[derive(Debug)]
pub struct DelayingQueue<T> {
    queue: Queue<T>,
    waiting: Mutex<Waiting<T>>,
    /// The earliest deadline in `waiting` in nanoseconds, [`NEVER`] without any. Written with `waiting` locked,
    /// read without, so that a queue nobody delays anything in pays nothing.
    earliest: AtomicU64,
    /// Told when `earliest` has moved nearer.
    nearer: Notify,
    /// Held by the parked worker that keeps the time. The lock is fair: it goes to the one parked longest.
    timekeeper: tokio::sync::Mutex<()>,
    clock: Arc<dyn Clock>,
}

const NEVER: u64 = u64::MAX;

#[derive(Debug)]
struct Waiting<T> {
    /// Items by when they are due; the number keeps those of one deadline apart, in the order of their adding.
    by_deadline: BTreeMap<(Duration, u64), T>,
    /// Where each item is in `by_deadline`: both hold the same items, each once.
    deadlines: HashMap<T, (Duration, u64)>,
    next: u64,
}

impl<T: Item> DelayingQueue<T> {
    /// An empty queue.
    pub fn new(name: &str, clock: Arc<dyn Clock>, metrics: &dyn MetricsProvider) -> Self {
        Self {
            queue: Queue::new(name, Arc::clone(&clock), metrics),
            waiting: Mutex::new(Waiting { by_deadline: BTreeMap::new(), deadlines: HashMap::new(), next: 0 }),
            earliest: AtomicU64::new(NEVER),
            nearer: Notify::new(),
            timekeeper: tokio::sync::Mutex::new(()),
            clock,
        }
    }

    /// Adds `item` once `delay` has passed, at once when it is zero.
    ///
    /// An item that is due already at some time is due at the earlier of the two. Adding it at once does not
    /// take that back: it will come again when it is due. Nothing happens once shutdown has begun.
    pub fn add_after(&self, item: T, delay: Duration) {
        if self.is_shutting_down() {
            return;
        }
        self.queue.count_retry();
        if delay.is_zero() {
            return self.add(item);
        }
        // An item that is due and still waits here must not pass for the one that is added now.
        self.move_due();
        let deadline = self.clock.monotonic().saturating_add(delay);
        let nearer = {
            let mut waiting = self.waiting.lock();
            waiting.insert(item, deadline);
            self.publish_earliest(&waiting)
        };
        if nearer {
            self.nearer.notify_one();
        }
    }

    /// As [`Queue::add`].
    pub fn add(&self, item: T) {
        self.move_due();
        self.queue.add(item);
    }

    /// As [`Queue::get`].
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::get`].
    pub async fn get(&self) -> Option<T> {
        // For the reason given in Queue::get, which is not reached while there is work.
        tokio::task::consume_budget().await;
        self.move_due();
        match self.queue.try_get() {
            Next::Item(item) => return Some(item),
            Next::ShutDown => return None,
            Next::Empty => {}
        }
        tokio::select! {
            biased;
            item = self.queue.get() => item,
            never = self.keep_time() => match never {},
        }
    }

    /// Moves items as they fall due, for as long as it is polled, if no other worker does.
    async fn keep_time(&self) -> Infallible {
        let _duty = self.timekeeper.lock().await;
        loop {
            match self.move_due() {
                None => self.nearer.notified().await,
                Some(wait) => tokio::select! {
                    biased;
                    () = self.clock.sleep(wait) => {}
                    () = self.nearer.notified() => {}
                },
            }
        }
    }

    /// Moves what is due into the queue, earliest first. Returns how long it is until the next is due.
    fn move_due(&self) -> Option<Duration> {
        let earliest = self.earliest.load(Ordering::Acquire);
        if earliest == NEVER {
            return None;
        }
        let now = self.clock.monotonic();
        let wait = Duration::from_nanos(earliest).saturating_sub(now);
        if !wait.is_zero() {
            return Some(wait);
        }
        let mut waiting = self.waiting.lock();
        // Still locked while adding: two callers that move at the same time keep the order.
        while let Some(item) = waiting.pop_due(now) {
            self.queue.add(item);
        }
        self.publish_earliest(&waiting);
        waiting.earliest().map(|deadline| deadline.saturating_sub(now))
    }

    /// Returns whether the earliest deadline has moved nearer.
    fn publish_earliest(&self, waiting: &Waiting<T>) -> bool {
        let earliest = waiting.earliest().map_or(NEVER, |deadline| {
            // Five centuries from now will do for what is later still.
            u64::try_from(deadline.as_nanos()).unwrap_or(NEVER - 1)
        });
        earliest < self.earliest.swap(earliest, Ordering::AcqRel)
    }

    /// As [`Queue::done`].
    pub fn done(&self, item: &T) {
        self.move_due();
        self.queue.done(item);
    }

    /// As [`Queue::len`]: what is not due yet does not count.
    pub fn len(&self) -> usize {
        self.move_due();
        self.queue.len()
    }

    /// Whether [`len`](Self::len) is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As [`Queue::shut_down`]. What is not due yet is forgotten.
    pub fn shut_down(&self) {
        self.move_due();
        self.queue.shut_down();
        self.forget_waiting();
    }

    /// As [`Queue::shut_down_with_drain`]. What is not due yet is forgotten.
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::shut_down_with_drain`].
    pub async fn shut_down_with_drain(&self) {
        self.move_due();
        self.queue.begin_shut_down(true);
        self.forget_waiting();
        self.queue.drained().await;
    }

    fn forget_waiting(&self) {
        let mut waiting = self.waiting.lock();
        waiting.by_deadline.clear();
        waiting.deadlines.clear();
        self.publish_earliest(&waiting);
    }

    /// As [`Queue::is_shutting_down`].
    pub fn is_shutting_down(&self) -> bool {
        self.queue.is_shutting_down()
    }

    /// As [`Queue::refresh_metrics`].
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
        let place = (deadline, self.next);
        self.next += 1;
        self.deadlines.insert(item.clone(), place);
        self.by_deadline.insert(place, item);
    }

    fn earliest(&self) -> Option<Duration> {
        self.by_deadline.first_key_value().map(|(place, _)| place.0)
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
