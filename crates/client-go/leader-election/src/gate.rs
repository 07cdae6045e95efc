//! Reports whether this process leads at this moment.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kcm_clock::Clock;
use tokio_util::sync::CancellationToken;

/// Reports whether this process leads at this moment. To be checked before each write. Cheap to clone and to check.
///
/// It closes by the monotonic clock alone, without a running task or a response. It is therefore closed when a
/// stopped process or, with a clock that includes that time, a suspended machine resumes after the deadline.
///
/// ```
/// use kcm_leader_election::LeaderGate;
///
/// fn write(gate: &LeaderGate) -> Result<(), &'static str> {
///     if !gate.is_leader() {
///         return Err("not the leader");
///     }
///     // Send the request, with a timeout of at most `gate.remaining()`.
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct LeaderGate(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    /// Monotonic nanoseconds at which the leadership ends. 0 if this process does not lead.
    until: AtomicU64,
}

impl LeaderGate {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { clock, until: AtomicU64::new(0) }))
    }

    /// `true` if this process leads, and no other candidate can.
    pub fn is_leader(&self) -> bool {
        self.remaining() > Duration::ZERO
    }

    /// Time until the leadership ends if the Lease is not renewed. Zero if this process does not lead.
    pub fn remaining(&self) -> Duration {
        // The clock is read first: a renewal between the two reads can only make the result shorter than it could be.
        let now = self.0.clock.monotonic();
        Duration::from_nanos(self.0.until.load(Ordering::Acquire)).saturating_sub(now)
    }

    /// `true` from the election of this candidate to the end of its leadership, also while the gate is closed because a
    /// renewal is late.
    pub(crate) fn has_term(&self) -> bool {
        self.0.until.load(Ordering::Acquire) > 0
    }

    pub(crate) fn open_until(&self, deadline: Duration) {
        let nanos = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
        self.0.until.store(nanos, Ordering::Release);
    }

    pub(crate) fn close(&self) {
        self.0.until.store(0, Ordering::Release);
    }
}

impl fmt::Debug for LeaderGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderGate").field("remaining", &self.remaining()).finish()
    }
}

/// One leadership, from the election to its end. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Leadership {
    gate: LeaderGate,
    lost: CancellationToken,
}

impl Leadership {
    /// `true` while the leadership lasts. To be checked before each write.
    pub fn is_leader(&self) -> bool {
        !self.lost.is_cancelled() && self.gate.is_leader()
    }

    /// Token that is cancelled when the leadership ends, for any reason.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }
}

/// Keeps the gate open for one leadership. Dropping it ends the leadership.
#[derive(Debug)]
pub(crate) struct Term(Leadership);

impl Term {
    pub(crate) fn begin(gate: LeaderGate, until: Duration) -> Self {
        gate.open_until(until);
        Self(Leadership { gate, lost: CancellationToken::new() })
    }

    pub(crate) fn leadership(&self) -> Leadership {
        self.0.clone()
    }

    pub(crate) fn extend(&self, until: Duration) {
        self.0.gate.open_until(until);
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        // The gate closes first: tasks that the token wakes must find it closed.
        self.0.gate.close();
        self.0.lost.cancel();
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, Timestamp};

    use super::*;

    fn gate() -> (FakeClock, LeaderGate) {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let gate = LeaderGate::new(Arc::new(clock.clone()));
        (clock, gate)
    }

    #[test]
    fn is_closed_initially() {
        let (clock, gate) = gate();
        assert!(!gate.is_leader());
        clock.step(Duration::from_secs(1));
        assert!(!gate.is_leader());
    }

    #[test]
    fn closes_by_monotonic_clock() {
        let (clock, gate) = gate();
        let term = Term::begin(gate.clone(), Duration::from_secs(10));
        let leadership = term.leadership();
        clock.set_wall("2100-01-01T00:00:00Z".parse().unwrap());
        assert!(gate.is_leader() && leadership.is_leader());
        clock.step(Duration::from_nanos(9_999_999_999));
        assert_eq!(gate.remaining(), Duration::from_nanos(1));
        assert!(gate.is_leader());
        clock.set_wall(Timestamp::UNIX_EPOCH);
        clock.step(Duration::from_nanos(1));
        assert!(!gate.is_leader() && !leadership.is_leader());
        term.extend(Duration::from_secs(11));
        assert!(gate.is_leader() && leadership.is_leader());
    }

    #[test]
    fn dropped_term_ends_its_leadership() {
        let (_clock, gate) = gate();
        let first = Term::begin(gate.clone(), Duration::from_secs(10));
        let leadership = first.leadership();
        drop(first);
        assert!(!gate.is_leader() && leadership.lost().is_cancelled());
        let second = Term::begin(gate.clone(), Duration::from_secs(10));
        assert!(second.leadership().is_leader());
        assert!(!leadership.is_leader());
    }
}
