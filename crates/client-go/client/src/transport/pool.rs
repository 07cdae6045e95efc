//! Connections to one API server, opened as requests need them.
//!
//! hyper-util's client sends all requests to a host on one HTTP/2 connection. API servers limit the streams of a
//! connection (kube-apiserver: 100), so further requests would wait inside of it. This pool opens another connection
//! when all are full, as Go's `net/http` does. Requests wait here only, in the order in which they came, and the leader
//! gate is checked after that.
//!
//! # Dials without an answer
//!
//! Go dials for each request that finds no connection. Here one dial serves all requests that it is expected to carry, and
//! while requests wait, another dial begins every second beside those that have not ended. The oldest dial is never given
//! up for that, so a server that takes seconds to answer is reached. Of the others the last two are kept.
//!
//! DEVIATION: in Go, a request fails with its own dial, and the number of dials has no limit.

mod body;

use std::{
    collections::VecDeque,
    error::Error,
    fmt,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::{sync::oneshot, task::AbortHandle};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

pub(crate) use self::body::PooledBody;
use super::{
    connection::{Connection, Incoming, Sender},
    connector::Endpoint,
    dial::timed_out,
    fence::Fence,
    send_failure::{ConnectionError, SendFailure},
};
use crate::{Body, write_gate::WriteGate};

/// Time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The same for an HTTP/2 connection that is not the oldest one. It was opened for a burst of requests, and its buffers are
/// as large as the burst.
const SURPLUS_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of idle HTTP/1.1 connections that are kept. Each has buffers of 28 KB.
///
/// Upstream counterpart: `idleConnsPerHost` in `k8s.io/client-go/transport`.
const MAX_IDLE_CONNECTIONS: usize = 25;

/// Requests that one new connection is expected to carry until the first one is open. Go expects the same.
const EXPECTED_STREAMS: usize = 100;

/// Time after the last dial at which another one begins, if requests still wait.
const REDIAL_AFTER: Duration = Duration::from_secs(1);

/// The same when a request of an election arrives. Requests that arrive together share a dial.
const ELECTION_REDIAL_AFTER: Duration = Duration::from_millis(100);

/// Dials beyond those that the waiting requests need.
const MAX_SURPLUS_DIALS: usize = 2;

/// Time that a request waits for a connection, as long as a dial of upstream's takes.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Time for which a request is sent again if each connection is closed before the server has processed it.
///
/// DEVIATION: Go has no limit and no pause.
const RESEND_FOR: Duration = MAX_WAIT;

/// Number of times that such a request is sent again at once.
const IMMEDIATE_RESENDS: u32 = 3;

/// Time after which it is sent again later.
const RESEND_PAUSE: Duration = Duration::from_millis(100);

/// Number of times that a request is sent again that an open connection has refused, as Go.
const MAX_REFUSALS: u32 = 7;

/// Connections to one server under one identity. Clones share them.
#[derive(Clone)]
pub(super) struct Pool(Arc<Shared>);

struct Shared {
    endpoint: Endpoint,
    purpose: Purpose,
    /// Cancelled to end watches.
    retired: CancellationToken,
    state: Mutex<State>,
}

/// Requests that a pool is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Those of an election. After a request that got no answer, new connections are used.
    ///
    /// DEVIATION: upstream's next renewal uses the same connection.
    Election,
    /// All others.
    General,
}

struct State {
    /// Open connections, oldest first. The first one with room is used, so that the others become idle.
    connections: Vec<Entry>,
    /// Requests that wait for room on a connection, oldest first.
    waiting: VecDeque<oneshot::Sender<Result<Slot, ConnectError>>>,
    /// Connections that are being opened, oldest first.
    dials: Vec<Dial>,
    /// Time at which the last dial began, on the monotonic clock.
    last_dial: Duration,
    /// Error of the last dial, with its time. `None` after a successful one.
    last_failure: Option<(Duration, ConnectError)>,
    /// Requests that a new connection is expected to carry.
    expected_streams: usize,
    /// Number of the next dial, and of its connection.
    next_id: u64,
}

/// Connection that is being opened.
struct Dial {
    id: u64,
    began: Duration,
    task: AbortHandle,
}

struct Entry {
    id: u64,
    /// `None` while an HTTP/1.1 connection is in use.
    sender: Option<Sender>,
    fence: Arc<Fence>,
    in_flight: usize,
    /// Time since which no request is in flight, on the monotonic clock.
    idle_since: Duration,
}

/// Error of a request that got no answer.
#[derive(Debug, Error)]
pub(crate) enum SendError {
    /// No connection could be opened. The request was not sent.
    #[error(transparent)]
    Connect(ConnectError),
    /// The server closed several connections before the request was sent.
    #[error("the server closes its connections")]
    Closed,
    /// The server refused the request several times without processing it.
    #[error("the server refuses the request")]
    Refused,
    /// The leader gate was closed before the request was sent.
    #[error("this process does not lead")]
    NotLeading,
    /// The connection broke after the request, or a part of it, may have been sent.
    #[error(transparent)]
    Broken(ConnectionError),
    /// The request cannot be sent. No part of it was sent.
    #[error(transparent)]
    Unsendable(BoxError),
}

impl SendError {
    /// `true` if no part of the request was sent.
    pub(crate) fn is_not_sent(&self) -> bool {
        !matches!(self, Self::Broken(_))
    }
}

/// Error of a connection that could not be opened. Shared by the requests that waited for it.
#[derive(Debug, Clone)]
pub(crate) struct ConnectError(Arc<dyn Error + Send + Sync>);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl Pool {
    /// An empty pool.
    pub(super) fn new(endpoint: Endpoint, purpose: Purpose) -> Self {
        let state = State {
            connections: Vec::new(),
            waiting: VecDeque::new(),
            dials: Vec::new(),
            last_dial: Duration::ZERO,
            last_failure: None,
            expected_streams: EXPECTED_STREAMS,
            next_id: 0,
        };
        let retired = CancellationToken::new();
        Self(Arc::new(Shared { endpoint, purpose, retired, state: Mutex::new(state) }))
    }

    /// An empty pool of connections to the same server.
    pub(super) fn separate(&self) -> Self {
        Self::new(self.0.endpoint.clone(), self.0.purpose)
    }

    /// Trigger of pings on all connections to the server.
    #[cfg(test)]
    pub(super) fn pings(&self) -> &super::liveness::PingTrigger {
        self.0.endpoint.pings()
    }

    /// Ends watches, as if the server had closed them. The connections close when the last request has been answered and the
    /// pool is dropped.
    pub(super) fn retire(&self) {
        self.0.retired.cancel();
    }

    /// Sends a request with an absolute URI. If it has a [`WriteGate`] as an extension, it is sent only while that is
    /// open.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the request from the queue. A request that was sent may take effect nevertheless.
    pub(super) async fn send(
        &self,
        mut request: Box<Request<Body>>,
    ) -> Result<Response<PooledBody>, SendError> {
        let gate = request.extensions_mut().remove::<WriteGate>();
        let clock = self.0.endpoint.clock();
        let end = clock.monotonic().saturating_add(RESEND_FOR);
        let (mut resends, mut refusals) = (0, 0);
        loop {
            let slot = self.0.slot().await?;
            if let Some(gate) = &gate {
                slot.fence.add(gate);
                if !gate.is_open() {
                    return Err(SendError::NotLeading);
                }
            }
            match slot.send(request).await {
                Ok(answer) => return Ok(answer),
                Err(SendFailure::NotSent(unsent)) => {
                    if clock.monotonic() >= end {
                        return Err(SendError::Closed);
                    }
                    request = unsent;
                    resends += 1;
                    if resends > IMMEDIATE_RESENDS {
                        clock.sleep(RESEND_PAUSE).await;
                    }
                }
                Err(SendFailure::Refused(unsent)) => {
                    if refusals == MAX_REFUSALS {
                        return Err(SendError::Refused);
                    }
                    request = unsent;
                    // The first one is sent again at once.
                    let pause = if refusals == 0 { 0 } else { 1 << (refusals - 1) };
                    refusals += 1;
                    clock.sleep(Duration::from_secs(pause)).await;
                }
                Err(SendFailure::Broken(error)) => return Err(SendError::Broken(error)),
                Err(SendFailure::Unsendable(error)) => return Err(SendError::Unsendable(error)),
            }
        }
    }
}

impl Shared {
    /// Waits for room for one request.
    async fn slot(self: &Arc<Self>) -> Result<Slot, SendError> {
        let clock = self.endpoint.clock();
        let began = clock.monotonic();
        let waiting = {
            let mut state = self.state.lock();
            if let Some(slot) = self.check_out(&mut state) {
                return Ok(slot);
            }
            let (waiter, waiting) = oneshot::channel();
            state.waiting.push_back(waiter);
            let redial_after = match self.purpose {
                Purpose::Election => ELECTION_REDIAL_AFTER,
                Purpose::General => REDIAL_AFTER,
            };
            self.dial(&mut state);
            self.redial(&mut state, redial_after);
            waiting
        };
        tokio::select! {
            biased;
            // The sender is dropped with the pool only.
            slot = waiting => slot.map_err(|_| SendError::Closed)?.map_err(SendError::Connect),
            () = clock.sleep(MAX_WAIT) => {
                let failure = self.state.lock().last_failure.clone().filter(|(at, _)| *at >= began);
                let timeout = || ConnectError(Arc::new(timed_out("connect timeout")));
                Err(SendError::Connect(failure.map_or_else(timeout, |(_, error)| error)))
            }
        }
    }

    fn check_out(self: &Arc<Self>, state: &mut State) -> Option<Slot> {
        let (entry, sender) =
            state.connections.iter_mut().find_map(|entry| entry.sender().map(|sender| (entry, sender)))?;
        entry.in_flight += 1;
        let (id, fence) = (entry.id, Arc::clone(&entry.fence));
        Some(Slot { pool: Arc::clone(self), id, fence, sender: Some(sender), is_answered: true })
    }

    /// Takes back the room of one request, with the sender of an HTTP/1.1 connection.
    fn check_in(self: &Arc<Self>, id: u64, sender: Option<Sender>, is_answered: bool) {
        let now = self.endpoint.clock().monotonic();
        let (mut closed, mut distrusted) = (None, Vec::new());
        {
            let mut state = self.state.lock();
            if !is_answered && self.purpose == Purpose::Election {
                // The request timed out. Each of the connections may be dead, also those of other purposes.
                distrusted = std::mem::take(&mut state.connections);
                self.endpoint.pings().fire();
            }
            if let Some(at) = state.connections.iter().position(|entry| entry.id == id) {
                let entry = &mut state.connections[at];
                entry.in_flight -= 1;
                entry.idle_since = now;
                if entry.sender.is_none() {
                    entry.sender = sender.and_then(|mut sender| sender.is_ready().then_some(sender));
                    // An HTTP/1.1 connection with an answer that was not read to its end is not used again.
                    let unusable = entry.sender.is_none();
                    closed = (unusable || state.has_too_many_idle()).then(|| state.connections.remove(at));
                }
            }
        }
        drop((closed, distrusted));
        self.serve_waiting();
    }

    /// Hands free room to waiting requests.
    fn serve_waiting(self: &Arc<Self>) {
        loop {
            let (waiter, slot) = {
                let mut state = self.state.lock();
                while state.waiting.front().is_some_and(oneshot::Sender::is_closed) {
                    state.waiting.pop_front();
                }
                let Some(waiter) = state.waiting.pop_front() else { return };
                let Some(slot) = self.check_out(&mut state) else {
                    state.waiting.push_front(waiter);
                    return;
                };
                (waiter, slot)
            };
            // If the request was dropped, the slot is returned and given to the next one.
            drop(waiter.send(Ok(slot)));
        }
    }

    /// Opens as many connections as the waiting requests need.
    fn dial(self: &Arc<Self>, state: &mut State) {
        let needed = state.needed_dials();
        while state.dials.len() < needed {
            self.start_dial(state);
        }
    }

    /// Opens another connection if requests wait and the last dial began at least `after` ago.
    fn redial(self: &Arc<Self>, state: &mut State, after: Duration) {
        let now = self.endpoint.clock().monotonic();
        let needed = state.needed_dials();
        if needed == 0 || now.saturating_sub(state.last_dial) < after {
            return;
        }
        if state.dials.len() >= needed + MAX_SURPLUS_DIALS {
            // The oldest one keeps all the time that a slow server may need.
            state.dials.remove(1).task.abort();
        }
        self.start_dial(state);
    }

    fn start_dial(self: &Arc<Self>, state: &mut State) {
        let (pool, id) = (Arc::clone(self), state.next_id);
        state.next_id += 1;
        let task = tokio::spawn(async move {
            let mut opened = pin!(Connection::open(&pool.endpoint));
            loop {
                tokio::select! {
                    biased;
                    opened = &mut opened => return match opened {
                        Ok(connection) => pool.add(id, connection),
                        Err(error) => pool.fail_waiting(id, &ConnectError(Arc::from(error))),
                    },
                    () = pool.endpoint.clock().sleep(REDIAL_AFTER) => {
                        // A connection that was suspect may be usable again.
                        pool.serve_waiting();
                        pool.redial(&mut pool.state.lock(), REDIAL_AFTER);
                    }
                }
            }
        });
        let began = self.endpoint.clock().monotonic();
        state.last_dial = began;
        state.dials.push(Dial { id, began, task: task.abort_handle() });
    }

    fn add(self: &Arc<Self>, id: u64, connection: Connection) {
        let Connection { sender, fence, driver } = connection;
        let now = self.endpoint.clock().monotonic();
        let mut state = self.state.lock();
        state.dials.retain(|dial| dial.id != id);
        state.last_failure = None;
        state.expected_streams = sender.limit().max(1);
        let entry = Entry { id, sender: Some(sender), fence, in_flight: 0, idle_since: now };
        state.connections.push(entry);
        drop(state);
        tokio::spawn(drive(Arc::downgrade(self), id, driver));
        self.serve_waiting();
        let mut state = self.state.lock();
        if state.needed_dials() == 0 {
            state.dials.retain(|dial| {
                let is_recent = now.saturating_sub(dial.began) < REDIAL_AFTER;
                if !is_recent {
                    dial.task.abort();
                }
                is_recent
            });
        }
        self.dial(&mut state);
    }

    /// Fails the waiting requests that the remaining new connections are not expected to carry.
    fn fail_waiting(self: &Arc<Self>, id: u64, error: &ConnectError) {
        let failed: Vec<_> = {
            let mut state = self.state.lock();
            state.dials.retain(|dial| dial.id != id);
            state.last_failure = Some((self.endpoint.clock().monotonic(), error.clone()));
            let expected = state.dials.len().saturating_mul(state.expected_streams);
            let failed = state.waiting.len().saturating_sub(expected);
            state.waiting.drain(..failed).collect()
        };
        for waiter in failed {
            // An error means that the request was dropped.
            drop(waiter.send(Err(error.clone())));
        }
    }

    /// Removes a connection that is closed.
    fn remove(self: &Arc<Self>, id: u64) {
        let mut state = self.state.lock();
        let at = state.connections.iter().position(|entry| entry.id == id);
        let closed = at.map(|at| state.connections.remove(at));
        self.dial(&mut state);
        drop(state);
        drop(closed);
    }

    /// Closes a connection that was idle for its [timeout](State::idle_timeout). Returns the time until it should be checked
    /// again, or `None` if it is closed.
    fn close_if_idle(&self, id: u64) -> Option<Duration> {
        let now = self.endpoint.clock().monotonic();
        let mut state = self.state.lock();
        let at = state.connections.iter().position(|entry| entry.id == id)?;
        let (entry, timeout) = (&state.connections[at], state.idle_timeout(at));
        if entry.in_flight > 0 {
            return Some(timeout);
        }
        let left = timeout.saturating_sub(now.saturating_sub(entry.idle_since));
        if !left.is_zero() {
            return Some(left);
        }
        let closed = state.connections.remove(at);
        drop(state);
        drop(closed);
        None
    }
}

/// Drives a connection to its end, and closes it when it is idle.
async fn drive(pool: Weak<Shared>, id: u64, mut driver: BoxFuture<'static, ()>) {
    let mut wait = Some(SURPLUS_IDLE_TIMEOUT);
    while let (Some(next), Some(clock)) = (wait, pool.upgrade().map(|pool| Arc::clone(pool.endpoint.clock())))
    {
        tokio::select! {
            biased;
            () = &mut driver => {
                if let Some(pool) = pool.upgrade() {
                    pool.remove(id);
                }
                return;
            }
            () = clock.sleep(next) => wait = pool.upgrade().and_then(|pool| pool.close_if_idle(id)),
        }
    }
    // The pool no longer has its sender. Requests in flight continue.
    driver.await;
}

impl State {
    /// Number of dials that the waiting requests need.
    fn needed_dials(&mut self) -> usize {
        self.waiting.retain(|waiter| !waiter.is_closed());
        self.waiting.len().div_ceil(self.expected_streams)
    }

    /// Time after which the connection at this position is closed if it is idle.
    fn idle_timeout(&self, at: usize) -> Duration {
        let is_surplus = at > 0 && self.connections[at].limit() > 1;
        if is_surplus { SURPLUS_IDLE_TIMEOUT } else { IDLE_TIMEOUT }
    }

    /// `true` if more HTTP/1.1 connections are idle than are kept.
    fn has_too_many_idle(&self) -> bool {
        let is_idle = |entry: &&Entry| entry.in_flight == 0 && entry.limit() == 1;
        self.waiting.is_empty() && self.connections.iter().filter(is_idle).count() > MAX_IDLE_CONNECTIONS
    }
}

impl Entry {
    fn limit(&self) -> usize {
        self.sender.as_ref().map_or(1, Sender::limit)
    }

    /// A sender for one more request, if there is room.
    fn sender(&mut self) -> Option<Sender> {
        let sender = self.sender.as_mut()?;
        if self.in_flight >= sender.limit() || !sender.is_usable() || !self.fence.is_open() {
            return None;
        }
        sender.share().or_else(|| self.sender.take())
    }
}

/// Room for one request on a connection.
struct Slot {
    pool: Arc<Shared>,
    id: u64,
    fence: Arc<Fence>,
    /// `None` once it was checked in.
    sender: Option<Sender>,
    /// `false` while the answer to a request is awaited.
    is_answered: bool,
}

impl Slot {
    async fn send(mut self, request: Box<Request<Body>>) -> Result<Response<PooledBody>, SendFailure> {
        let is_watch = is_watch(&request);
        let Some(sender) = &mut self.sender else { return Err(SendFailure::NotSent(request)) };
        self.is_answered = false;
        let answer = sender.send(request).await;
        // An error is an answer, too: the connection is not used again if it has failed. The body of a watch has no end.
        self.is_answered = answer.is_err() || is_watch;
        let (head, body) = answer?.into_parts();
        let retired = is_watch.then(|| Box::pin(self.pool.retired.clone().cancelled_owned()));
        Ok(Response::from_parts(head, PooledBody { body: Some(body), slot: Some(self), retired }))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.pool.check_in(self.id, self.sender.take(), self.is_answered);
    }
}

fn is_watch(request: &Request<Body>) -> bool {
    let parameters = request.uri().query().unwrap_or_default().split('&');
    parameters.into_iter().any(|parameter| matches!(parameter, "watch=true" | "watch=1"))
}

#[cfg(test)]
mod tests;
