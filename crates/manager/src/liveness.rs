//! Health check of the thread that the controllers run on.

use std::{sync::Arc, time::Duration};

use kcm_clock::Clock;
use kcm_serving::HealthCheck;
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// Time without a response after which the runtime counts as stuck. A sync that computes for as long is a defect.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Time after a task in which a check queues no other one. Checks are requested by clients without credentials.
const INTERVAL: Duration = Duration::from_secs(1);

/// Last task of a check.
#[derive(Clone, Copy)]
enum LastTask {
    Queued(Duration),
    /// The task has run. It was queued at this time.
    Ran(Duration),
}

/// Returns a check that fails if the runtime of the caller has not run a task for 60 s.
///
/// The Lease is renewed and the secure port is served on other threads, so both work while this one is stuck. A check queues
/// a task, unless one is queued or ran in the last second. An idle runtime is not woken between checks.
///
/// # Panics
///
/// Outside of a Tokio runtime.
pub(crate) fn liveness(clock: Arc<dyn Clock>) -> HealthCheck {
    let runtime = Handle::current();
    let last: Arc<Mutex<Option<LastTask>>> = Arc::default();
    Arc::new(move || {
        let now = clock.monotonic();
        let mut state = last.lock();
        match *state {
            Some(LastTask::Queued(at)) => {
                let waited = now.saturating_sub(at);
                if waited < TIMEOUT { Ok(()) } else { Err(format!("no task has run for {waited:?}")) }
            }
            Some(LastTask::Ran(at)) if now.saturating_sub(at) < INTERVAL => Ok(()),
            _ => {
                *state = Some(LastTask::Queued(now));
                let last = Arc::clone(&last);
                runtime.spawn(async move { *last.lock() = Some(LastTask::Ran(now)) });
                Ok(())
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, Timestamp};
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn fails_while_the_runtime_is_stuck() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let check = liveness(Arc::new(clock.clone()));
        // No task runs until this one yields.
        for _ in 0..6 {
            assert_eq!(check(), Ok(()));
            clock.step(Duration::from_secs(10));
        }
        assert_eq!(check(), Err("no task has run for 60s".to_owned()));
        yield_now().await;
        assert_eq!(check(), Ok(()));
    }

    #[tokio::test]
    async fn wakes_the_runtime_once_a_second() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let check = liveness(Arc::new(clock.clone()));
        let spawned = || Handle::current().metrics().num_alive_tasks();
        let mut tasks = Vec::new();
        for _ in 0..5 {
            assert_eq!(check(), Ok(()));
            tasks.push(spawned());
            yield_now().await;
            clock.step(Duration::from_millis(500));
        }
        assert_eq!(tasks, [1, 0, 1, 0, 1]);
    }

    #[tokio::test]
    async fn passes_however_long_there_was_no_check() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let check = liveness(Arc::new(clock.clone()));
        for _ in 0..3 {
            assert_eq!(check(), Ok(()));
            yield_now().await;
            clock.step(Duration::from_secs(3600));
        }
    }
}
