//! Actions and incidents of a scenario in their order.

use std::time::Duration;

use kcm_clock::Clock;

use super::faults::{At, Incident};

/// First revision of a store that is restored. The revisions after the restore do not reach it.
const REVISION_BEFORE_RESTORE: u64 = 1_000_000;

/// An action, an incident, or a backup for a later restore.
#[derive(Debug)]
pub enum Event<'a, A> {
    Action(&'a A),
    Incident(&'a Incident),
    BackUp,
}

/// All events, by time.
pub fn timeline<'a, A>(
    actions: &'a [At<A>],
    incidents: &'a [At<Incident>],
) -> impl Iterator<Item = (u64, Event<'a, A>)> {
    let backups = incidents.iter().filter_map(|one| match one.event {
        Incident::Restore { age } => Some((one.at.saturating_sub(age), Event::BackUp)),
        _ => None,
    });
    let actions = actions.iter().map(|one| (one.at, Event::Action(&one.event)));
    let incidents = incidents.iter().map(|one| (one.at, Event::Incident(&one.event)));
    let mut events: Vec<_> = backups.chain(actions).chain(incidents).collect();
    events.sort_by_key(|(at, _)| *at);
    events.into_iter()
}

/// `true` if the store is restored from a backup.
pub fn has_restore(incidents: &[At<Incident>]) -> bool {
    incidents.iter().any(|one| matches!(one.event, Incident::Restore { .. }))
}

/// First revision of the store.
pub fn first_revision(incidents: &[At<Incident>]) -> u64 {
    if has_restore(incidents) { REVISION_BEFORE_RESTORE } else { 1 }
}

/// Waits until a time in milliseconds since the start.
pub async fn sleep_until(clock: &dyn Clock, millisecond: u64) {
    clock.sleep(Duration::from_millis(millisecond).saturating_sub(clock.monotonic())).await;
}
