//! Writing only while one may.

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Method;
use kcm_clock::Clock;
use kcm_leader_election::LeaderGate;
use tokio::sync::watch;

/// Lets reads pass always, and writes while its [`LeaderGate`] is open, if it has one.
///
/// The gate is checked after a write has waited for the rate limit, again when the write has room on a connection, and
/// each time that it goes on while it waits for its answer. It travels with the write to the connection, which sends no
/// bytes once it is closed. A process that was stopped in between (SIGSTOP) and wakes when another leads does not go on
/// with the write.
///
/// DEVIATION: upstream's writes know nothing of the election. A leader that has lost exits, and what it sends until
/// then is sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteGate(Option<Arc<Gate>>);

#[derive(Debug)]
struct Gate {
    leader: LeaderGate,
    writes: watch::Sender<Writes>,
}

/// What has become of the writes so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Writes {
    /// No more are sent.
    are_over: bool,
    under_way: usize,
    /// There was one whose answer nobody waited for.
    is_any_abandoned: bool,
}

impl Writes {
    fn have_settled(&self) -> bool {
        self.under_way == 0 && !self.is_any_abandoned
    }
}

/// Two are equal if they are clones.
impl PartialEq for WriteGate {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

/// The gate is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

impl WriteGate {
    pub(crate) fn new(leader: LeaderGate) -> Self {
        Self(Some(Arc::new(Gate { leader, writes: watch::Sender::default() })))
    }

    /// `true` if requests with `method` are sent only while the gate is open.
    pub(crate) fn applies_to(&self, method: &Method) -> bool {
        self.0.is_some() && !method.is_safe()
    }

    /// `true` if writes may be sent at this moment.
    pub(crate) fn is_open(&self) -> bool {
        self.0.as_ref().is_none_or(|gate| gate.leader.is_leader())
    }

    /// Lets no more writes pass, and waits for those under way. Whether all of them have come to an end.
    pub(crate) async fn shut(&self, within: Duration, clock: &dyn Clock) -> bool {
        let Some(gate) = &self.0 else { return true };
        gate.writes.send_modify(|writes| writes.are_over = true);
        let mut told = gate.writes.subscribe();
        tokio::select! {
            biased;
            _ = told.wait_for(|writes| writes.under_way == 0) => {}
            () = clock.sleep(within) => {}
        }
        self.has_settled()
    }

    /// Whether every write so far has been answered, or has failed: none is under way.
    pub(crate) fn has_settled(&self) -> bool {
        self.0.as_ref().is_none_or(|gate| gate.writes.borrow().have_settled())
    }

    /// Waits for `sending`, which sends a request with `method`, for as long as that may be sent.
    ///
    /// # Cancel safety
    ///
    /// That of `sending`, which is dropped when the gate closes.
    pub(crate) async fn pass<T>(
        &self,
        method: &Method,
        clock: &dyn Clock,
        sending: impl Future<Output = T>,
    ) -> Result<T, Closed> {
        let gate = match &self.0 {
            Some(gate) if !method.is_safe() => gate,
            _ => return Ok(sending.await),
        };
        let leader = &gate.leader;
        if !leader.is_leader() {
            return Err(Closed);
        }
        let mut write = Write::begin(&gate.writes).ok_or(Closed)?;
        let mut sending = pin!(sending);
        let mut closing = clock.sleep(leader.remaining());
        let step = |context: &mut Context<'_>| {
            loop {
                // Asked of the time itself: a timer that is due may fire later than an answer that is there.
                if !leader.is_leader() {
                    return Poll::Ready(Err(Closed));
                }
                if let Poll::Ready(outcome) = sending.as_mut().poll(context) {
                    return Poll::Ready(if leader.is_leader() { Ok(outcome) } else { Err(Closed) });
                }
                if closing.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                // The lease has been renewed meanwhile.
                closing = clock.sleep(leader.remaining());
            }
        };
        let outcome = poll_fn(step).await;
        write.has_ended = outcome.is_ok();
        outcome
    }
}

/// A write that is under way, until it is dropped.
struct Write<'a> {
    all: &'a watch::Sender<Writes>,
    has_ended: bool,
}

impl<'a> Write<'a> {
    /// One more, unless there are to be no more.
    fn begin(all: &'a watch::Sender<Writes>) -> Option<Self> {
        let may_begin = all.send_if_modified(|writes| {
            writes.under_way += usize::from(!writes.are_over);
            !writes.are_over
        });
        may_begin.then(|| Self { all, has_ended: false })
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        self.all.send_modify(|writes| {
            writes.under_way = writes.under_way.saturating_sub(1);
            writes.is_any_abandoned |= !self.has_ended;
        });
    }
}

#[cfg(test)]
mod tests;
