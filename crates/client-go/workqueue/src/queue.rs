use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use kcm_clock::Clock;

use crate::{
    ItemPhase,
    item::Item,
    metrics::{MetricsProvider, QueueMetrics},
    sync::{Mutex, Notify},
    work_item::{Owner, WorkItem},
};

/// First-in, first-out queue that gives each item to one worker at a time. Urgent items are taken before others.
///
/// Upstream counterpart: `workqueue.Interface`.
///
/// ```
/// use std::sync::Arc;
///
/// use kcm_clock::RealClock;
/// use kcm_workqueue::{NoQueueMetrics, Queue};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let queue = Queue::new("websites", Arc::new(RealClock::new()), &NoQueueMetrics);
/// queue.add("default/web");
/// let web = queue.get().await.unwrap();
/// // Queued again when `web` is dropped.
/// queue.add("default/web");
/// assert!(queue.is_empty());
/// drop(web);
/// assert_eq!(queue.len(), 1);
/// # });
/// ```
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<State<T>>,
    /// Notified once for each item that is queued, and for all waiters at shutdown.
    available: Notify,
    /// Notified when the queue is shut down and the last item is done.
    drained: Notify,
    clock: Arc<dyn Clock>,
    metrics: Option<Arc<dyn QueueMetrics>>,
}

#[derive(Debug)]
struct State<T> {
    /// Places of queued items that are not urgent, oldest first. An item that became urgent leaves its place behind, which is
    /// skipped.
    order: VecDeque<T>,
    /// Places of urgent items, oldest first.
    urgent: VecDeque<T>,
    /// `true` if the last item was urgent.
    took_urgent: bool,
    /// Number of items with [`Phase::Queued`].
    queued: usize,
    /// All items that are queued or processed.
    ///
    /// Upstream has two sets instead: `dirty` contains the items with `Queued` and `ProcessingDirty`, `processing` those
    /// with `Processing` and `ProcessingDirty`.
    items: HashMap<T, Phase>,
    /// Number of items with [`Phase::ProcessingDirty`].
    processing_dirty: usize,
    /// If `true`, no items are added. Never reset.
    shutting_down: bool,
    /// If `true`, [`Queue::shut_down_with_drain`] waits.
    draining: bool,
}

/// Times are monotonic, or zero if the queue has no metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for a worker.
    Queued(Added),
    /// Is processed by a worker.
    Processing { started: Duration },
    /// Is processed by a worker and was added since. It is queued when the worker is done.
    ProcessingDirty { started: Duration, added: Added },
}

/// First call that added an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Added {
    at: Duration,
    is_urgent: bool,
}

/// Result of a get that does not wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TryGet<T> {
    Item(T),
    /// No item is queued.
    Empty,
    /// No item is queued, and the queue is shut down.
    ShutDown,
}

impl<T: Item> Queue<T> {
    /// Creates an empty queue. `clock` is read only if `metrics` has metrics for `name`.
    pub fn new(name: &str, clock: Arc<dyn Clock>, metrics: &dyn MetricsProvider) -> Self {
        Self {
            state: Mutex::new(State {
                order: VecDeque::new(),
                urgent: VecDeque::new(),
                took_urgent: false,
                queued: 0,
                items: HashMap::new(),
                processing_dirty: 0,
                shutting_down: false,
                draining: false,
            }),
            available: Notify::new(),
            drained: Notify::new(),
            clock,
            metrics: metrics.queue(name),
        }
    }

    /// Marks `item` as needing processing. No effect if the item is queued, or if the queue is shut down.
    pub fn add(&self, item: T) {
        self.add_with(item, false);
    }

    /// Adds `item` as [`add`](Self::add), before all items that are not urgent. While there are such items, every second one that
    /// workers take is one of them.
    ///
    /// DEVIATION: upstream's queue has no order but that of the calls.
    pub fn add_urgent(&self, item: T) {
        self.add_with(item, true);
    }

    fn add_with(&self, item: T, is_urgent: bool) {
        let added = Added { at: self.timestamp(), is_urgent };
        {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            if state.shutting_down {
                return;
            }
            let queued = match state.items.entry(item) {
                Entry::Vacant(entry) => {
                    let item = entry.key().clone();
                    entry.insert(Phase::Queued(added));
                    state.enqueue(item, is_urgent);
                    true
                }
                Entry::Occupied(mut entry) => match entry.get_mut() {
                    Phase::Processing { started } => {
                        let started = *started;
                        entry.insert(Phase::ProcessingDirty { started, added });
                        state.processing_dirty += 1;
                        false
                    }
                    Phase::Queued(earlier) => {
                        if is_urgent && !earlier.is_urgent {
                            earlier.is_urgent = true;
                            state.urgent.push_back(entry.key().clone());
                        }
                        return;
                    }
                    Phase::ProcessingDirty { added: earlier, .. } => {
                        earlier.is_urgent |= is_urgent;
                        return;
                    }
                },
            };
            if let Some(metrics) = &self.metrics {
                metrics.added();
                metrics.depth(state.depth());
            }
            if !queued {
                return;
            }
        }
        self.wake_worker();
    }

    /// Waits for an item and takes it. Returns `None` once the queue is shut down and empty.
    ///
    /// No other worker gets the item before the returned [`WorkItem`] is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not lose an item or a wake-up. A future that is neither dropped nor polled may block the
    /// wake-up of another worker.
    pub async fn get(&self) -> Option<WorkItem<'_, T>> {
        self.next().await.map(|item| WorkItem::new(item, Owner::Queue(self)))
    }

    /// Waits for an item and takes it. The caller marks it as [`done`](Self::done).
    pub(crate) async fn next(&self) -> Option<T> {
        // Yields to other tasks if the worker never waits otherwise.
        tokio::task::consume_budget().await;
        loop {
            let mut available = pin!(self.available.notified());
            {
                let mut state = self.state.lock();
                match self.take(&mut state) {
                    TryGet::Item(item) => return Some(item),
                    TryGet::ShutDown => return None,
                    // Registers for the wake-up while the queue is locked, so that no later add is missed.
                    TryGet::Empty => _ = available.as_mut().enable(),
                }
            }
            available.await;
        }
    }

    /// Takes an item without waiting.
    pub(crate) fn try_get(&self) -> TryGet<T> {
        self.take(&mut self.state.lock())
    }

    fn take(&self, state: &mut State<T>) -> TryGet<T> {
        let now = self.timestamp();
        let Some((item, added)) = state.take(now) else {
            return if state.shutting_down { TryGet::ShutDown } else { TryGet::Empty };
        };
        if let Some(metrics) = &self.metrics {
            metrics.depth(state.depth());
            metrics.queue_duration(now.saturating_sub(added));
        }
        TryGet::Item(item)
    }

    /// Marks `item` as processed. If it was added since the worker got it, it is queued again.
    ///
    /// DEVIATION: no effect if no worker processes the item. Upstream queues an item a second time if it is queued.
    pub(crate) fn done(&self, item: &T) {
        let now = self.timestamp();
        let (requeued, drained) = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let Some(phase) = state.items.get_mut(item) else { return };
            let (started, requeued) = match *phase {
                Phase::Queued(_) => return,
                Phase::Processing { started } => {
                    state.items.remove(item);
                    (started, false)
                }
                Phase::ProcessingDirty { started, added } => {
                    *phase = Phase::Queued(added);
                    state.processing_dirty -= 1;
                    state.enqueue(item.clone(), added.is_urgent);
                    (started, true)
                }
            };
            if let Some(metrics) = &self.metrics {
                metrics.work_duration(now.saturating_sub(started));
            }
            (requeued, state.shutting_down && state.items.is_empty())
        };
        if requeued {
            self.wake_worker();
        }
        if drained {
            self.drained.notify_waiters();
        }
    }

    /// Returns the number of queued items.
    pub fn len(&self) -> usize {
        self.state.lock().queued
    }

    /// Returns `true` if no item is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shuts the queue down: no items are added, and workers get `None` once the queued items are taken.
    ///
    /// Ends a [`shut_down_with_drain`](Self::shut_down_with_drain) that waits.
    pub fn shut_down(&self) {
        self.begin_shut_down(false);
        self.drained.notify_waiters();
    }

    /// Shuts the queue down and waits until all items are done. Workers must be running.
    ///
    /// DEVIATION: upstream's counterpart may return while items are queued and no worker processes one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait; the queue remains shut down.
    pub async fn shut_down_with_drain(&self) {
        self.begin_shut_down(true);
        self.drained().await;
    }

    pub(crate) fn begin_shut_down(&self, draining: bool) {
        {
            let mut state = self.state.lock();
            state.shutting_down = true;
            state.draining = draining;
        }
        self.available.notify_waiters();
    }

    pub(crate) async fn drained(&self) {
        loop {
            let mut drained = pin!(self.drained.notified());
            {
                let state = self.state.lock();
                if state.items.is_empty() || !state.draining {
                    return;
                }
                drained.as_mut().enable();
            }
            drained.await;
        }
    }

    /// Returns `true` if the queue is shut down.
    pub fn is_shutting_down(&self) -> bool {
        self.state.lock().shutting_down
    }

    /// Updates the time-dependent metrics. Upstream does so every 500 ms.
    pub fn refresh_metrics(&self) {
        let Some(metrics) = &self.metrics else { return };
        let now = self.clock.monotonic();
        let state = self.state.lock();
        let (mut total, mut longest) = (Duration::ZERO, Duration::ZERO);
        for phase in state.items.values() {
            if let Phase::Processing { started } | Phase::ProcessingDirty { started, .. } = *phase {
                let age = now.saturating_sub(started);
                total = total.saturating_add(age);
                longest = longest.max(age);
            }
        }
        metrics.unfinished_work(total);
        metrics.longest_running_processor(longest);
        metrics.depth(state.depth());
    }

    /// Returns the place of `item`.
    pub(crate) fn phase_of(&self, item: &T) -> ItemPhase {
        match self.state.lock().items.get(item) {
            None => ItemPhase::Absent,
            Some(Phase::Queued(_)) => ItemPhase::Queued,
            Some(Phase::Processing { .. }) => ItemPhase::Processing,
            Some(Phase::ProcessingDirty { .. }) => ItemPhase::ProcessingDirty,
        }
    }

    pub(crate) fn count_retry(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.retried();
        }
    }

    /// Returns the current time, or zero without metrics.
    fn timestamp(&self) -> Duration {
        if self.metrics.is_some() { self.clock.monotonic() } else { Duration::ZERO }
    }

    /// Wakes the worker that has waited for the shortest time. The one that has waited longest moves delayed items (see
    /// [`DelayingQueue`](crate::DelayingQueue)) and would have to pass that task on.
    fn wake_worker(&self) {
        self.available.notify_last();
    }
}

impl<T: Item> State<T> {
    fn enqueue(&mut self, item: T, is_urgent: bool) {
        let order = if is_urgent { &mut self.urgent } else { &mut self.order };
        order.push_back(item);
        self.queued += 1;
    }

    /// Takes the next item for processing. Returns also the time at which it was added.
    fn take(&mut self, now: Duration) -> Option<(T, Duration)> {
        loop {
            let is_urgent = self.order.is_empty() || !self.took_urgent && !self.urgent.is_empty();
            let order = if is_urgent { &mut self.urgent } else { &mut self.order };
            let item = order.pop_front()?;
            // Otherwise the item has left this place.
            if let Some(phase) = self.items.get_mut(&item)
                && let Phase::Queued(added) = *phase
                && added.is_urgent == is_urgent
            {
                *phase = Phase::Processing { started: now };
                self.took_urgent = is_urgent;
                self.queued -= 1;
                return Some((item, added.at));
            }
        }
    }

    /// Size of upstream's set `dirty`.
    fn depth(&self) -> usize {
        self.queued + self.processing_dirty
    }
}

#[cfg(test)]
mod tests;
