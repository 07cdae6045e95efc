//! Writing only while one may.

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
};

use http::Method;
use kcm_clock::Clock;
use kcm_leader_election::LeaderGate;

/// Lets reads pass always, and writes while its [`LeaderGate`] is open, if it has one.
///
/// A write is looked at when it is about to be sent, after all waiting, and again each time before it goes on: while
/// it waits for a connection, and while it waits for the answer. So a process that was stopped in between
/// (SIGSTOP) and wakes when another leads does not go on with it.
///
/// DEVIATION: upstream's writes know nothing of the election. A leader that has lost exits, and what it sends until
/// then is sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteGate(Option<LeaderGate>);

/// The gate is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

impl WriteGate {
    pub(crate) fn new(leader: LeaderGate) -> Self {
        Self(Some(leader))
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
        let leader = match &self.0 {
            Some(leader) if !method.is_safe() => leader,
            _ => return Ok(sending.await),
        };
        let mut sending = pin!(sending);
        let mut closing = clock.sleep(leader.remaining());
        let step = |context: &mut Context<'_>| {
            loop {
                // Asked of the time itself: a timer that is due may fire later than an answer that is there.
                if !leader.is_leader() {
                    return Poll::Ready(Err(Closed));
                }
                if let Poll::Ready(outcome) = sending.as_mut().poll(context) {
                    return Poll::Ready(Ok(outcome));
                }
                if closing.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                // The lease has been renewed meanwhile.
                closing = clock.sleep(leader.remaining());
            }
        };
        poll_fn(step).await
    }
}

#[cfg(test)]
mod tests;
