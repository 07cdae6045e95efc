//! Fair queuing of writes: clients take turns.
//!
//! Upstream counterpart: API Priority and Fairness, with one priority level and a flow per client: a connection of
//! HTTP/2, or all HTTP/1.1 connections with the same user agent. An HTTP/1.1 client has a connection per concurrent
//! request.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Client of a request on a socket.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    number: u64,
    queue: Arc<FairQueue>,
}

/// Queue of the writes of all clients. Reads do not wait.
///
/// If more writes were received than can be served at a time, each is appended to the queue of its client, and clients
/// take turns. So a burst of one client delays a write of another by about one write per client, and a read by the writes
/// that are being served.
#[derive(Debug)]
pub(super) struct FairQueue {
    seats: usize,
    state: Mutex<State>,
    flows: AtomicU64,
    /// Number of writes that were received and not answered.
    received: AtomicUsize,
}

#[derive(Debug)]
struct State {
    /// Number of further writes that can be served now.
    free: usize,
    /// Waiting writes by flow.
    waiting: HashMap<u64, VecDeque<oneshot::Sender<Seat>>>,
    /// Flows with waiting writes, the next one first.
    turns: VecDeque<u64>,
}

/// Permission to serve a write. Dropping it admits the next write.
#[derive(Debug)]
pub(super) struct Seat(Option<Arc<FairQueue>>);

impl FairQueue {
    /// Creates a queue that admits `seats` writes at a time.
    pub(super) fn new(seats: usize) -> Arc<Self> {
        let seats = seats.max(1);
        let state = State { free: seats, waiting: HashMap::new(), turns: VecDeque::new() };
        Arc::new(Self {
            seats,
            state: Mutex::new(state),
            flows: AtomicU64::new(0),
            received: AtomicUsize::new(0),
        })
    }

    /// Returns the flow of a new connection.
    pub(super) fn flow(self: &Arc<Self>) -> Flow {
        Flow { number: self.flows.fetch_add(1, Ordering::Relaxed), queue: Arc::clone(self) }
    }

    /// Admits waiting writes while there are free seats.
    fn admit(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            if state.free == 0 {
                return;
            }
            let Some(next) = state.next() else { return };
            state.free -= 1;
            drop(state);
            if let Err(mut seat) = next.send(Seat(Some(Arc::clone(self)))) {
                // The client is gone. The seat is freed without `drop`, which calls this method.
                seat.0.take();
                self.state.lock().free += 1;
            }
        }
    }
}

impl State {
    fn next(&mut self) -> Option<oneshot::Sender<Seat>> {
        let flow = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&flow)?;
        let next = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&flow);
        } else {
            self.turns.push_back(flow);
        }
        next
    }
}

impl Flow {
    /// Returns the flow of the HTTP/1.1 connections with this user agent.
    pub(super) fn of_user_agent(&self, user_agent: &[u8]) -> Self {
        /// Connections have smaller numbers.
        const USER_AGENT: u64 = 1 << 63;
        let mut hasher = DefaultHasher::new();
        user_agent.hash(&mut hasher);
        Self { number: hasher.finish() | USER_AGENT, queue: Arc::clone(&self.queue) }
    }

    /// Counts a write as received until the returned value is dropped.
    pub(super) fn receive(&self) -> Received {
        self.queue.received.fetch_add(1, Ordering::Relaxed);
        Received(Arc::clone(&self.queue))
    }

    /// Waits until the write may be served. The returned seat is held meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the write from the queue.
    pub(super) async fn seat(&self) -> Seat {
        let admitted = {
            let mut state = self.queue.state.lock();
            if state.free > 0 && self.queue.received.load(Ordering::Relaxed) <= self.queue.seats {
                state.free -= 1;
                return Seat(Some(Arc::clone(&self.queue)));
            }
            let (sender, admitted) = oneshot::channel();
            let waiting = state.waiting.entry(self.number).or_default();
            waiting.push_back(sender);
            if waiting.len() == 1 {
                state.turns.push_back(self.number);
            }
            admitted
        };
        // All received writes are queued before one is admitted.
        tokio::task::yield_now().await;
        self.queue.admit();
        // The sender is dropped only with the queue.
        admitted.await.unwrap_or(Seat(None))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.state.lock().free += 1;
            queue.admit();
        }
    }
}

/// A write that was received and not answered.
#[derive(Debug)]
pub(super) struct Received(Arc<FairQueue>);

impl Drop for Received {
    fn drop(&mut self) {
        self.0.received.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, future::BoxFuture};

    use super::*;

    fn write(flow: &Flow) -> BoxFuture<'_, Seat> {
        flow.seat().boxed()
    }

    /// Polls the future, which yields once.
    fn poll(write: &mut BoxFuture<'_, Seat>) -> Option<Seat> {
        write.now_or_never().or_else(|| write.now_or_never())
    }

    #[test]
    fn write_without_others_does_not_wait() {
        let queue = FairQueue::new(1);
        let flow = queue.flow();
        let received = flow.receive();
        assert!(write(&flow).now_or_never().is_some());
        let other = flow.receive();
        assert!(write(&flow).now_or_never().is_none(), "yields to writes that were received");
        drop((received, other));
        assert!(write(&flow).now_or_never().is_some());
    }

    #[test]
    fn flows_take_turns() {
        let queue = FairQueue::new(1);
        let (busy, other) = (queue.flow(), queue.flow());
        let seat = write(&busy).now_or_never().unwrap();
        let mut burst: Vec<_> = (0..100).map(|_| write(&busy)).collect();
        assert!(burst.iter_mut().all(|write| poll(write).is_none()));
        let mut single = write(&other);
        assert!(poll(&mut single).is_none());
        drop(seat);
        let first = poll(&mut burst[0]).unwrap();
        assert!(poll(&mut single).is_none());
        drop(first);
        assert!(poll(&mut single).is_some(), "after one write of the burst");
    }

    #[test]
    fn connections_of_a_user_agent_have_one_turn() {
        let queue = FairQueue::new(1);
        let seat = write(&queue.flow()).now_or_never().unwrap();
        let flows: Vec<Flow> = (0..100).map(|_| queue.flow().of_user_agent(b"busy")).collect();
        let mut burst: Vec<_> = flows.iter().map(write).collect();
        assert!(burst.iter_mut().all(|write| poll(write).is_none()));
        let other = queue.flow().of_user_agent(b"other");
        let mut single = write(&other);
        assert!(poll(&mut single).is_none());
        drop(seat);
        drop(poll(&mut burst[0]).unwrap());
        assert!(poll(&mut single).is_some(), "after one write of the burst");
    }

    #[test]
    fn cancelled_writes_are_skipped() {
        let queue = FairQueue::new(1);
        let flow = queue.flow();
        let seat = write(&flow).now_or_never().unwrap();
        let mut writes: Vec<_> = (0..100_000).map(|_| write(&flow)).collect();
        assert!(writes.iter_mut().all(|write| poll(write).is_none()));
        let mut last = writes.pop().unwrap();
        drop(writes);
        drop(seat);
        assert!(poll(&mut last).is_some());
        assert_eq!(queue.state.lock().free, 1);
        assert!(queue.state.lock().turns.is_empty());
    }
}
