//! Whether this process leads, at this very moment.

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

/// Whether this process leads, at this very moment: what to ask before each write. Cheap to clone and to ask.
///
/// It closes by the monotonic clock alone. No task needs to run for that and no request to end, so it is right also
/// when the process has just been continued after a stop.
#[derive(Clone)]
pub struct LeaderGate(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    /// Monotonic nanoseconds until which this process leads; 0 when it does not.
    until: AtomicU64,
}

impl LeaderGate {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { clock, until: AtomicU64::new(0) }))
    }

    /// Whether this process leads now, and nobody else can.
    pub fn is_leader(&self) -> bool {
        self.remaining() > Duration::ZERO
    }

    /// How long this process would lead if it never renewed again; zero when it does not lead.
    pub fn remaining(&self) -> Duration {
        // The order between this and the clock matters: a gate that was opened after the clock was read is no harm.
        let now = self.0.clock.monotonic();
        Duration::from_nanos(self.0.until.load(Ordering::Acquire)).saturating_sub(now)
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

/// What the one who leads is given: it lasts from being elected until the leadership ends. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Leadership {
    gate: LeaderGate,
    lost: CancellationToken,
}

impl Leadership {
    /// Whether the leadership lasts. Ask before each write.
    pub fn is_leader(&self) -> bool {
        !self.lost.is_cancelled() && self.gate.is_leader()
    }

    /// Cancelled when the leadership ends, for whatever reason.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }
}

/// Holds the gate open for one leadership. Dropping it ends that.
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
        // First the gate: who is woken by the token must find it closed.
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
    fn gate_never_opened_is_closed() {
        let (clock, gate) = gate();
        assert!(!gate.is_leader());
        clock.step(Duration::from_secs(1));
        assert!(!gate.is_leader());
    }

    #[test]
    fn gate_closes_by_time_alone_whatever_the_wall_clock_does() {
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
    fn term_dropped_closes_the_gate_and_a_later_term_does_not_revive_it() {
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
