//! The first layer: order, de-duplication, shutting down.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use crate::{
    Item, MetricsProvider, QueueMetrics,
    sync::{Mutex, Notify},
};
use kcm_clock::Clock;

/// A fair queue that hands each item to one worker at a time.
///
/// Upstream counterpart: `workqueue.Interface`.
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<State<T>>,
    /// One permit for each item that was queued while workers were parked; all of them on shutdown.
    available: Notify,
    /// Told when the queue is shutting down and the last item has gone.
    drained: Notify,
    clock: Arc<dyn Clock>,
    metrics: Option<Arc<dyn QueueMetrics>>,
}

#[derive(Debug)]
struct State<T> {
    /// What to hand out next, oldest first: exactly the items that `items` has as [`Phase::Queued`], each once.
    order: VecDeque<T>,
    /// Every item that waits or is with a worker. What is not in here is unknown to the queue.
    ///
    /// Upstream keeps two sets, `dirty` and `processing`. An item is in the first when it is `Queued` or
    /// `Requested` here, in the second when it is `Processing` or `Requested`; what upstream's comments rule
    /// out (in the queue *and* with a worker) cannot be written down.
    items: HashMap<T, Phase>,
    /// How many of `items` are [`Phase::Requested`].
    requested: usize,
    /// Set once and never cleared. Nothing is added from then on.
    shutting_down: bool,
    /// Whether [`Queue::shut_down_with_drain`] waits; a plain shutdown calls that off.
    draining: bool,
}

/// Times are those of the monotonic clock, or zero in a queue that is not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for a worker.
    Queued { added: Duration },
    /// A worker has it.
    Processing { started: Duration },
    /// A worker has it, and it was added since: it is queued when that worker is done.
    Requested { started: Duration, added: Duration },
}

/// What a worker that asks for an item gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<T> {
    Item(T),
    /// Nothing yet.
    Empty,
    /// Nothing ever again.
    ShutDown,
}

impl<T: Item> Queue<T> {
    /// An empty queue. The clock only times what `metrics` wants to know for the queue called `name`.
    pub fn new(name: &str, clock: Arc<dyn Clock>, metrics: &dyn MetricsProvider) -> Self {
        Self {
            state: Mutex::new(State {
                order: VecDeque::new(),
                items: HashMap::new(),
                requested: 0,
                shutting_down: false,
                draining: false,
            }),
            available: Notify::new(),
            drained: Notify::new(),
            clock,
            metrics: metrics.queue(name),
        }
    }

    /// Marks `item` as needing work. Nothing happens when it waits already, or once shutdown has begun.
    pub fn add(&self, item: T) {
        let now = self.stamp();
        {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            if state.shutting_down {
                return;
            }
            let queued = match state.items.entry(item) {
                Entry::Vacant(entry) => {
                    let item = entry.key().clone();
                    entry.insert(Phase::Queued { added: now });
                    state.order.push_back(item);
                    true
                }
                Entry::Occupied(mut entry) => match *entry.get() {
                    Phase::Processing { started } => {
                        entry.insert(Phase::Requested { started, added: now });
                        state.requested += 1;
                        false
                    }
                    Phase::Queued { .. } | Phase::Requested { .. } => return,
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
        self.wake_one();
    }

    /// Waits for an item and takes it; `None` once the queue is shut down and empty. Whoever takes an item
    /// must call [`done`](Self::done) with it, also when the work has failed.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped has taken nothing, and has kept no other worker from being woken. A future
    /// that is kept but no longer polled may have been chosen to be woken: poll it or drop it.
    pub async fn get(&self) -> Option<T> {
        // A worker whose work never waits would otherwise keep its thread until the queue is empty.
        tokio::task::consume_budget().await;
        loop {
            let mut woken = pin!(self.available.notified());
            {
                let mut state = self.state.lock();
                match self.take(&mut state) {
                    Next::Item(item) => return Some(item),
                    Next::ShutDown => return None,
                    // Queueing up for a wake-up with the queue still locked: what is added from here on
                    // finds this worker among those to be woken.
                    Next::Empty => _ = woken.as_mut().enable(),
                }
            }
            woken.await;
        }
    }

    /// What [`get`](Self::get) would take, without waiting.
    pub(crate) fn try_get(&self) -> Next<T> {
        self.take(&mut self.state.lock())
    }

    fn take(&self, state: &mut State<T>) -> Next<T> {
        let Some(item) = state.order.pop_front() else {
            return if state.shutting_down { Next::ShutDown } else { Next::Empty };
        };
        let now = self.stamp();
        let phase = state
            .items
            .get_mut(&item)
            .map(|phase| std::mem::replace(phase, Phase::Processing { started: now }));
        if let (Some(metrics), Some(Phase::Queued { added })) = (&self.metrics, phase) {
            metrics.depth(state.depth());
            metrics.queue_duration(now.saturating_sub(added));
        }
        Next::Item(item)
    }

    /// Gives `item` back. It is queued again if it was added meanwhile.
    ///
    /// DEVIATION: nothing happens when no worker has it; upstream queues an item that waits a second time then.
    pub fn done(&self, item: &T) {
        let now = self.stamp();
        let (requeued, drained) = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let Some(phase) = state.items.get_mut(item) else { return };
            let (started, requeued) = match *phase {
                Phase::Queued { .. } => return,
                Phase::Processing { started } => {
                    state.items.remove(item);
                    (started, false)
                }
                Phase::Requested { started, added } => {
                    *phase = Phase::Queued { added };
                    state.requested -= 1;
                    state.order.push_back(item.clone());
                    (started, true)
                }
            };
            if let Some(metrics) = &self.metrics {
                metrics.work_duration(now.saturating_sub(started));
            }
            (requeued, state.shutting_down && state.items.is_empty())
        };
        if requeued {
            self.wake_one();
        }
        if drained {
            self.drained.notify_waiters();
        }
    }

    /// How many items could be taken now.
    pub fn len(&self) -> usize {
        self.state.lock().order.len()
    }

    /// Whether no item could be taken now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes no more items in. Workers get what is queued, then `None`.
    ///
    /// A [`shut_down_with_drain`](Self::shut_down_with_drain) that waits is called off.
    pub fn shut_down(&self) {
        self.begin_shut_down(false);
        self.drained.notify_waiters();
    }

    /// Takes no more items in, and waits until every item has been taken and given back.
    ///
    /// Workers must still be there, or the wait ends only when somebody calls [`shut_down`](Self::shut_down).
    ///
    /// DEVIATION: upstream promises the same, but may stop waiting while items are queued and no worker happens
    /// to have one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait; the queue stays shut down.
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

    /// Whether shutdown has begun.
    pub fn is_shutting_down(&self) -> bool {
        self.state.lock().shutting_down
    }

    /// Brings the metrics up to date that change with time alone. Upstream does so every 500 ms; before each
    /// scrape is exact.
    pub fn refresh_metrics(&self) {
        let Some(metrics) = &self.metrics else { return };
        let now = self.clock.monotonic();
        let state = self.state.lock();
        let (mut total, mut longest) = (Duration::ZERO, Duration::ZERO);
        for phase in state.items.values() {
            if let Phase::Processing { started } | Phase::Requested { started, .. } = *phase {
                let age = now.saturating_sub(started);
                total = total.saturating_add(age);
                longest = longest.max(age);
            }
        }
        metrics.unfinished_work(total);
        metrics.longest_running_processor(longest);
        metrics.depth(state.depth());
    }

    pub(crate) fn count_retry(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.retried();
        }
    }

    /// The time, if anybody measures.
    fn stamp(&self) -> Duration {
        if self.metrics.is_some() { self.clock.monotonic() } else { Duration::ZERO }
    }

    /// Wakes the worker that was parked last: its stack is still warm, and the one that was parked first keeps
    /// the time for all (see [`DelayingQueue`](crate::DelayingQueue)), which it need not hand over then.
    fn wake_one(&self) {
        self.available.notify_last();
    }
}

impl<T> State<T> {
    /// Upstream's `dirty`: the items that wait, also those that wait for their own processing to end.
    fn depth(&self) -> usize {
        self.order.len() + self.requested
    }
}

#[cfg(test)]
mod tests;
