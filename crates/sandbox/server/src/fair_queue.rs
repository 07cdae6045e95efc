//! Fair queuing: clients take turns.
//!
//! Upstream counterpart: API Priority and Fairness, with one priority level and a [flow](Flow) per client.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{HeaderValue, Request, Version, header};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Flow of connections that have not sent a request.
const NEW: u64 = 0;

/// Number of turns of new connections for each turn of another flow. Until its first request is read, a connection may be
/// that of any client, so new connections wait for each other.
const NEW_TURNS: usize = 8;

/// Flows of HTTP/1.1 clients. Other connections have smaller numbers.
const HTTP_1: u64 = 1 << 63;

/// Queue in which flows take turns.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    /// Queue of each flow that has one.
    queues: HashMap<u64, VecDeque<T>>,
    /// Flows in `queues`, the next one first.
    order: VecDeque<u64>,
    /// Number of turns of new connections since the last turn of another flow.
    new_turns: usize,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { queues: HashMap::new(), order: VecDeque::new(), new_turns: 0 }
    }
}

impl<T> Turns<T> {
    /// Appends `item` to the queue of a flow.
    pub(crate) fn push(&mut self, flow: &Flow, item: T) {
        let flow = flow.number();
        let queue = self.queues.entry(flow).or_default();
        queue.push_back(item);
        if queue.len() == 1 {
            self.order.push_back(flow);
        }
    }

    /// Removes the first item of the next flow.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let flow = self.order.pop_front()?;
        let queue = self.queues.get_mut(&flow)?;
        let item = queue.pop_front();
        self.new_turns = if flow == NEW { self.new_turns + 1 } else { 0 };
        if queue.is_empty() {
            self.queues.remove(&flow);
        } else if flow == NEW && self.new_turns < NEW_TURNS {
            self.order.push_front(flow);
        } else {
            self.order.push_back(flow);
        }
        item
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Queue for a limited number of seats.
#[derive(Debug)]
pub(crate) struct FairQueue(Mutex<Seats>);

#[derive(Debug)]
struct Seats {
    free: usize,
    waiting: Turns<oneshot::Sender<Seat>>,
}

/// A seat. Dropping it admits the next request.
#[derive(Debug)]
pub(crate) struct Seat(Option<Arc<FairQueue>>);

impl FairQueue {
    /// Creates a queue for `seats` seats.
    pub(crate) fn new(seats: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Seats { free: seats.max(1), waiting: Turns::default() })))
    }

    /// Waits for a seat.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the request from the queue.
    pub(crate) async fn seat(self: &Arc<Self>, flow: &Flow) -> Seat {
        let admitted = {
            let mut seats = self.0.lock();
            if seats.free > 0 {
                seats.free -= 1;
                return Seat(Some(Arc::clone(self)));
            }
            let (sender, admitted) = oneshot::channel();
            seats.waiting.push(flow, sender);
            admitted
        };
        // The sender is dropped only with the queue.
        admitted.await.unwrap_or(Seat(None))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(queue) = self.0.take() else { return };
        loop {
            let mut seats = queue.0.lock();
            let Some(next) = seats.waiting.pop() else {
                seats.free += 1;
                return;
            };
            drop(seats);
            match next.send(Self(Some(Arc::clone(&queue)))) {
                Ok(()) => return,
                // The request was cancelled. The seat is passed on without `drop`, which calls this method.
                Err(mut seat) => drop(seat.0.take()),
            }
        }
    }
}

/// Client of a connection. Clones share it.
///
/// An HTTP/1.1 client has a connection per concurrent request, so connections with the same address, credentials and user
/// agent are one client. An HTTP/2 connection is a client. Connections without a request are one client in common.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    peer: IpAddr,
    connection: u64,
    current: Arc<AtomicU64>,
}

impl Flow {
    /// Creates the flow of a new connection, which has the number `connection`, from `peer`.
    pub(crate) fn new(peer: IpAddr, connection: u64) -> Self {
        Self { peer, connection: (connection + 1) & !HTTP_1, current: Arc::new(AtomicU64::new(NEW)) }
    }

    fn number(&self) -> u64 {
        self.current.load(Ordering::Relaxed)
    }

    /// Assigns the connection to the client that sent `request`. Returns `true` if it was assigned to another one.
    pub(crate) fn assign<B>(&self, request: &Request<B>) -> bool {
        let number = if request.version() < Version::HTTP_2 {
            let mut hasher = DefaultHasher::new();
            self.peer.hash(&mut hasher);
            for name in [header::AUTHORIZATION, header::USER_AGENT] {
                request.headers().get(name).map(HeaderValue::as_bytes).hash(&mut hasher);
            }
            hasher.finish() | HTTP_1
        } else {
            self.connection
        };
        self.current.swap(number, Ordering::Relaxed) != number
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::{FutureExt, future::BoxFuture};

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Flow of a connection with this number.
    fn http_2(connection: u64) -> Flow {
        let flow = Flow::new(PEER, connection);
        assert!(flow.assign(&request(Version::HTTP_2, "same")));
        flow
    }

    /// Flow of a connection of the client with this user agent.
    fn http_1(user_agent: &str) -> Flow {
        let flow = Flow::new(PEER, 0);
        assert!(flow.assign(&request(Version::HTTP_11, user_agent)));
        flow
    }

    fn request(version: Version, user_agent: &str) -> Request<()> {
        Request::builder().version(version).header(header::USER_AGENT, user_agent).body(()).unwrap()
    }

    fn seat<'a>(queue: &'a Arc<FairQueue>, flow: &'a Flow) -> BoxFuture<'a, Seat> {
        queue.seat(flow).boxed()
    }

    #[test]
    fn flows_take_turns() {
        let queue = FairQueue::new(1);
        let (busy, other) = (http_2(1), http_2(2));
        let held = seat(&queue, &busy).now_or_never().unwrap();
        let mut burst: Vec<_> = (0..100).map(|_| seat(&queue, &busy)).collect();
        assert!(burst.iter_mut().all(|seat| seat.now_or_never().is_none()));
        let mut single = seat(&queue, &other);
        assert!((&mut single).now_or_never().is_none());
        drop(held);
        let first = (&mut burst[0]).now_or_never().unwrap();
        assert!((&mut single).now_or_never().is_none());
        drop(first);
        assert!(single.now_or_never().is_some(), "after one of the burst");
    }

    #[test]
    fn http_1_connections_of_a_user_agent_are_one_flow() {
        assert_eq!(http_1("busy").number(), http_1("busy").number());
        assert_ne!(http_1("busy").number(), http_1("other").number());
        assert_ne!(http_2(1).number(), http_2(2).number());
        assert!(![http_1("busy"), http_2(0)].iter().any(|flow| flow.number() == NEW));
        let flow = http_2(1);
        assert!(!flow.assign(&request(Version::HTTP_2, "other")), "a further request of the connection");
    }

    #[test]
    fn cancelled_requests_are_skipped() {
        let queue = FairQueue::new(1);
        let flow = http_2(1);
        let held = seat(&queue, &flow).now_or_never().unwrap();
        let mut seats: Vec<_> = (0..100_000).map(|_| seat(&queue, &flow)).collect();
        assert!(seats.iter_mut().all(|seat| seat.now_or_never().is_none()));
        let last = seats.pop().unwrap();
        drop(seats);
        drop(held);
        assert!(last.now_or_never().is_some());
        assert_eq!(queue.0.lock().free, 1);
        assert!(queue.0.lock().waiting.is_empty());
    }

    #[test]
    fn new_connections_have_more_turns() {
        let (busy, new) = (http_2(1), Flow::new(PEER, 2));
        let mut turns = Turns::default();
        for _ in 0..100 {
            turns.push(&busy, "busy");
            turns.push(&new, "new");
        }
        let first: Vec<_> = std::iter::from_fn(|| turns.pop()).take(2 * NEW_TURNS + 3).collect();
        let busy: Vec<usize> = (0..first.len()).filter(|at| first[*at] == "busy").collect();
        assert_eq!(busy, [0, NEW_TURNS + 1, 2 * NEW_TURNS + 2]);
    }
}
