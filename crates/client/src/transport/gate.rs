//! One request first.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kcm_clock::Clock;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// How long requests wait behind the first one.
const PATIENCE: Duration = Duration::from_secs(1);

/// Holds requests back until the first one has found out what the server speaks.
///
/// An idle pool does not know whether one connection will do (HTTP/2), so a hundred requests at once open a
/// hundred. Behind one that has been answered, they find its connection and share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Gate {
    is_open: Arc<AtomicBool>,
    first: Arc<Mutex<()>>,
}

impl Gate {
    /// Waits until the gate is open, or it is one's turn to be the first, or patience has run out. The first gets
    /// a guard, to be held until its answer has come.
    pub(super) async fn pass(&self, clock: &dyn Clock) -> Option<OwnedMutexGuard<()>> {
        if self.is_open.load(Ordering::Acquire) {
            return None;
        }
        let turn = Arc::clone(&self.first).lock_owned();
        tokio::select! {
            biased;
            turn = turn => (!self.is_open.load(Ordering::Acquire)).then_some(turn),
            () = clock.sleep(PATIENCE) => None,
        }
    }

    /// An answer has come.
    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{SimulatedClock, Timestamp};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn gate_lets_the_others_through_once_the_first_is_answered() {
        let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
        let gate = Gate::default();
        let first = gate.pass(&clock).await;
        assert!(first.is_some());
        let (other, other_clock) = (gate.clone(), clock.clone());
        let other = tokio::spawn(async move { other.pass(&other_clock).await });
        tokio::task::yield_now().await;
        assert!(!other.is_finished());
        gate.open();
        drop(first);
        assert!(other.await.unwrap().is_none());
        assert_eq!(clock.monotonic(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn gate_whose_first_fails_makes_the_next_the_first() {
        let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
        let gate = Gate::default();
        drop(gate.pass(&clock).await);
        assert!(gate.pass(&clock).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn gate_whose_first_is_slow_holds_nobody_for_long() {
        let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
        let gate = Gate::default();
        let _first = gate.pass(&clock).await;
        assert!(gate.pass(&clock).await.is_none());
        assert_eq!(clock.monotonic(), PATIENCE);
    }
}
