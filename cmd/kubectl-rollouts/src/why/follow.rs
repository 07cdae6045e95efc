//! `--watch` and `--until`.

use std::{pin::pin, time::Duration};

use kcm_clock::Clock;
use kcm_rollouts::{Diagnosis, State, printable};

use super::{WhyError, cache::Cache, exit_code, flags::WhyFlags, output::Printer, reading::Reading};
use crate::connection::Connection;

/// Minimum time for which changes are collected before the cluster is read. Not less than the last reading took.
const SETTLE: Duration = Duration::from_millis(250);
/// Period at which the diagnosis of one Deployment, of the same objects, is compared with that of the present time.
const TICK: Duration = Duration::from_secs(1);
/// As [`TICK`], for a table.
const TABLE_TICK: Duration = Duration::from_secs(10);
/// Period at which the cluster is read while the caller may not list and watch the objects.
const POLL: Duration = Duration::from_secs(10);
/// Time before the cluster is read again after a failure.
const RETRY: Duration = Duration::from_secs(2);

/// Prints each change until a state of `--until` is reached, and returns the exit code.
pub(super) async fn run(
    connection: &Connection,
    flags: &WhyFlags,
    clock: &dyn Clock,
    printer: &mut Printer,
) -> Result<u8, WhyError> {
    let mut last = Vec::new();
    let Some(timeout) = flags.timeout else {
        return follow(connection, flags, clock, printer, &mut last).await;
    };
    let outcome = {
        let following = pin!(follow(connection, flags, clock, printer, &mut last));
        tokio::select! {
            biased;
            outcome = following => Some(outcome),
            () = clock.sleep(timeout) => None,
        }
    };
    outcome.unwrap_or(Err(WhyError::TimedOut { timeout, last }))
}

/// As [`run`], without a timeout. `last` are the last states of the rollouts that are not complete.
async fn follow(
    connection: &Connection,
    flags: &WhyFlags,
    clock: &dyn Clock,
    printer: &mut Printer,
    last: &mut Vec<String>,
) -> Result<u8, WhyError> {
    let namespace = (!flags.all_namespaces).then_some(&*connection.namespace);
    let cache = Cache::start(&connection.client, namespace, flags);
    cache.settle().await;
    let mut failures = Failures::default();
    loop {
        let started = clock.monotonic();
        let reading = match Reading::cached(connection, flags, clock, &cache).await {
            Ok(reading) => reading,
            Err(error) => {
                failures.check(error)?;
                clock.sleep(RETRY).await;
                continue;
            }
        };
        failures = Failures { has_read: true, is_reported: false };
        let took = clock.monotonic().saturating_sub(started);
        let found = reading.diagnose(reading.now)?;
        if found.is_empty() && !flags.until.is_empty() {
            return Err(WhyError::NoMatch);
        }
        printer.print(&reading, &found, reading.now)?;
        *last = found.iter().filter(|one| one.state != State::Complete).map(describe).collect();
        let states: Vec<State> = found.iter().map(|one| one.state).collect();
        if flags.until.iter().any(|until| until.is_reached(&states)) {
            printer.finish(&reading, &found, reading.now)?;
            return Ok(exit_code(&found));
        }
        let (changed, is_complete) = (|| cache.changed(), || cache.is_complete());
        if wait(changed, is_complete, &reading, flags, clock, printer).await? == Next::Poll {
            cache.poll(clock).await;
        }
        // Also limits the load of a namespace in which objects change all the time.
        clock.sleep(SETTLE.max(took)).await;
    }
}

/// State and cause of a rollout.
fn describe(diagnosis: &Diagnosis) -> String {
    format!("{}/{}: {}", diagnosis.namespace, diagnosis.name, diagnosis.summary.trim_end_matches('.'))
}

/// Next reading.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The cached objects, which have changed or have another diagnosis.
    Read,
    /// Periodic reads, for objects that may not be watched.
    Poll,
}

/// Waits for a change of the objects, or for a time at which the same objects have another diagnosis.
async fn wait(
    changed: impl AsyncFn(),
    is_complete: impl Fn() -> bool,
    reading: &Reading,
    flags: &WhyFlags,
    clock: &dyn Clock,
    printer: &mut Printer,
) -> Result<Next, WhyError> {
    let tick = if flags.name.is_some() { TICK } else { TABLE_TICK };
    let read_at = clock.monotonic();
    loop {
        tokio::select! {
            () = changed() => return Ok(Next::Read),
            () = clock.sleep(tick) => {}
        }
        if !is_complete() && clock.monotonic().saturating_sub(read_at) >= POLL {
            return Ok(Next::Poll);
        }
        let now = reading.present(clock);
        let found = reading.diagnose(now)?;
        if printer.differs(&found) {
            // The objects that are not watched, such as the Lease, may have changed.
            return Ok(Next::Read);
        }
        if printer.redraws() {
            printer.print(reading, &found, now)?;
        }
    }
}

/// Failed readings since the last one.
#[derive(Debug, Default)]
struct Failures {
    has_read: bool,
    is_reported: bool,
}

impl Failures {
    /// Reports a failure that can end without intervention, once. Returns other failures, and the first one.
    fn check(&mut self, error: WhyError) -> Result<(), WhyError> {
        let WhyError::Read(cause) = &error else { return Err(error) };
        let is_temporary = cause.code().is_none_or(|code| code == 429 || code >= 500);
        if !self.has_read || !is_temporary {
            return Err(error);
        }
        if !self.is_reported {
            eprintln!("warning: {}; retrying", printable(&error.to_string()));
            self.is_reported = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kcm_api::{ApiError, Status};
    use kcm_clock::SimulatedClock;
    use kcm_rollouts::{Known, Snapshot};
    use serde_json::{Value, json};

    use super::*;
    use crate::why::flags::command;

    /// Time until the objects have another diagnosis. `None` if that takes longer than an hour.
    async fn time_until_a_reading(deployment: Value, is_complete: bool) -> Option<(Duration, Next)> {
        let clock = SimulatedClock::new("2026-01-15T00:00:00Z".parse().unwrap());
        let snapshot = Snapshot {
            replica_sets: Known::Read(Vec::new()),
            pods: Known::Read(Vec::new()),
            ..Snapshot::default()
        };
        let reading = Reading::of(deployment, snapshot, &clock);
        let flags = WhyFlags::try_from(&command().get_matches_from(["why", "web"])).unwrap();
        let mut printer = Printer::new(&flags);
        printer.record(&reading.diagnose(reading.now).unwrap());
        let start = clock.monotonic();
        let changed = || std::future::pending();
        let next = tokio::select! {
            outcome = wait(changed, || is_complete, &reading, &flags, &clock, &mut printer) => outcome.unwrap(),
            () = clock.sleep(Duration::from_secs(3600)) => return None,
        };
        Some((clock.monotonic().saturating_sub(start), next))
    }

    fn deployment(paused: bool) -> Value {
        json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "generation": 2,
                "creationTimestamp": "2026-01-15T00:00:00Z",
            },
            "spec": { "replicas": 1, "paused": paused, "strategy": { "type": "Recreate" },
                      "selector": { "matchLabels": { "app": "web" } } },
            "status": { "observedGeneration": 2 },
        })
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_is_read_when_time_changes_the_diagnosis() {
        // A rollout that does not begin is reported after a time.
        let (time, next) = time_until_a_reading(deployment(false), true).await.unwrap();
        assert!((50..=70).contains(&time.as_secs()) && next == Next::Read, "{time:?}");
        // A diagnosis that does not depend on the time is not read again.
        assert_eq!(time_until_a_reading(deployment(true), true).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_is_polled_while_a_watch_has_not_started() {
        assert_eq!(time_until_a_reading(deployment(true), false).await, Some((POLL, Next::Poll)));
    }

    #[test]
    fn temporary_failures_after_the_first_reading() {
        let status = |code| ApiError::Status(Box::new(Status { code, ..Status::default() }));
        let check =
            |has_read, error| Failures { has_read, is_reported: true }.check(WhyError::Read(error)).is_ok();
        assert!(check(true, status(503)) && check(true, status(429)));
        assert!(check(true, ApiError::NotSent("".into())));
        assert!(!check(true, status(403)) && !check(false, status(503)));
        let missing = Failures { has_read: true, is_reported: true }.check(WhyError::Missing(String::new()));
        assert!(missing.is_err());
    }
}
