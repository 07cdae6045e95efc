//! Gate that blocks writes while the process does not lead.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Method;
use kcm_clock::Clock;
use tokio::sync::watch;

/// Gate for the writes of a process that may lose its leadership. Reads always pass. The default gate is always open.
///
/// The gate is checked after a write has waited for the rate limit, again when the write gets a connection, and
/// whenever the task is polled while it waits for the response. The write carries the gate to its connection, which
/// sends no bytes while the gate is closed. If the process is stopped (SIGSTOP) during a write and resumes after another
/// process has become the leader, the write is therefore not continued.
///
/// DEVIATION: upstream does not connect writes with leader election. A leader that loses its lease exits, and everything
/// that it sends until then is sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteGate(Option<Arc<Gate>>);

struct Gate {
    remaining: Box<dyn Fn() -> Duration + Send + Sync>,
    writes: watch::Sender<Writes>,
}

/// State of all writes so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Writes {
    /// If `true`, no more writes are sent.
    stopped: bool,
    in_flight: usize,
    /// `true` if the caller of a write dropped it before the response.
    any_abandoned: bool,
}

impl Writes {
    fn have_settled(&self) -> bool {
        self.in_flight == 0 && !self.any_abandoned
    }
}

impl Gate {
    fn remaining(&self) -> Duration {
        (self.remaining)()
    }

    fn is_open(&self) -> bool {
        self.remaining() > Duration::ZERO
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("remaining", &self.remaining())
            .field("writes", &*self.writes.borrow())
            .finish()
    }
}

/// Clones are equal.
impl PartialEq for WriteGate {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

/// Error: the gate is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

impl WriteGate {
    /// Creates a gate that is open while `remaining` returns more than zero.
    pub(crate) fn new(remaining: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(Gate { remaining: Box::new(remaining), writes: watch::Sender::default() })))
    }

    /// `true` if requests with `method` pass only while the gate is open.
    pub(crate) fn applies_to(&self, method: &Method) -> bool {
        self.0.is_some() && !method.is_safe()
    }

    /// `true` if writes pass at this moment.
    pub(crate) fn is_open(&self) -> bool {
        self.0.as_deref().is_none_or(Gate::is_open)
    }

    /// Stops new writes and waits for those in flight, at most for `timeout`. Returns `true` if all have settled.
    pub(crate) async fn stop(&self, timeout: Duration, clock: &dyn Clock) -> bool {
        let Some(gate) = &self.0 else { return true };
        gate.writes.send_modify(|writes| writes.stopped = true);
        let mut changes = gate.writes.subscribe();
        tokio::select! {
            biased;
            _ = changes.wait_for(|writes| writes.in_flight == 0) => {}
            () = clock.sleep(timeout) => {}
        }
        self.has_settled()
    }

    /// `true` if every write so far got a response or failed.
    pub(crate) fn has_settled(&self) -> bool {
        self.0.as_ref().is_none_or(|gate| gate.writes.borrow().have_settled())
    }

    /// Awaits `send`, which sends a request with `method`, while the gate is open. It is pinned by the caller, which drops it
    /// when the gate has closed, because an argument takes its size twice.
    ///
    /// # Cancel safety
    ///
    /// As `send`.
    pub(crate) async fn pass<T>(
        &self,
        method: &Method,
        clock: &dyn Clock,
        mut send: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Closed> {
        let gate = match &self.0 {
            Some(gate) if !method.is_safe() => gate,
            _ => return Ok(send.await),
        };
        if !gate.is_open() {
            return Err(Closed);
        }
        let mut write = WriteInFlight::start(&gate.writes).ok_or(Closed)?;
        let mut closing = clock.sleep(gate.remaining());
        let poll = |context: &mut Context<'_>| {
            loop {
                // The clock decides, not the timer: after SIGSTOP, a response may be polled before the timer fires.
                if !gate.is_open() {
                    return Poll::Ready(Err(Closed));
                }
                if let Poll::Ready(output) = send.as_mut().poll(context) {
                    return Poll::Ready(if gate.is_open() { Ok(output) } else { Err(Closed) });
                }
                if closing.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                // The lease may have been renewed.
                closing = clock.sleep(gate.remaining());
            }
        };
        let result = poll_fn(poll).await;
        write.has_ended = result.is_ok();
        result
    }
}

/// Counts a write as in flight until it is dropped.
struct WriteInFlight<'a> {
    writes: &'a watch::Sender<Writes>,
    has_ended: bool,
}

impl<'a> WriteInFlight<'a> {
    /// Returns `None` if writes were stopped.
    fn start(writes: &'a watch::Sender<Writes>) -> Option<Self> {
        let started = writes.send_if_modified(|writes| {
            writes.in_flight += usize::from(!writes.stopped);
            !writes.stopped
        });
        started.then(|| Self { writes, has_ended: false })
    }
}

impl Drop for WriteInFlight<'_> {
    fn drop(&mut self) {
        self.writes.send_modify(|writes| {
            writes.in_flight = writes.in_flight.saturating_sub(1);
            writes.any_abandoned |= !self.has_ended;
        });
    }
}

#[cfg(test)]
mod tests;
