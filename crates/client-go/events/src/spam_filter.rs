use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

use governor::{Quota, RateLimiter, middleware::NoOpMiddleware, nanos::Nanos, state::StateStore};
use kcm_clock::Clock;
use parking_lot::Mutex;

use crate::{
    event::Event,
    key::OriginKey,
    lru::{Lru, MAX_CACHE_ENTRIES},
};

/// A burst of 25 events, then one every five minutes.
const BURST: NonZeroU32 = NonZeroU32::MIN.saturating_add(24);
const REFILL: Duration = Duration::from_secs(300);

/// Limits the rate of events per source, object and type.
///
/// Upstream counterpart: `record.EventSourceObjectSpamFilter`.
pub(crate) struct SpamFilter(RateLimiter<OriginKey, RecentOrigins, MonotonicClock, NoOpMiddleware<Duration>>);

/// States of the most recent origins.
struct RecentOrigins(Mutex<Lru<OriginKey, Nanos>>);

/// Clock of the project, for governor.
struct MonotonicClock(Arc<dyn Clock>);

impl SpamFilter {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let quota = Quota::with_period(REFILL).unwrap_or_else(|| Quota::per_hour(BURST)).allow_burst(BURST);
        let origins = RecentOrigins(Mutex::new(Lru::new(MAX_CACHE_ENTRIES)));
        Self(RateLimiter::new(quota, origins, MonotonicClock(clock)))
    }

    /// Returns `true` if `event` exceeds the limit.
    pub(crate) fn is_spam(&self, event: &Event) -> bool {
        self.0.check_key(&OriginKey::of(event)).is_err()
    }
}

impl StateStore for RecentOrigins {
    type Key = OriginKey;

    fn measure_and_replace<T, F, E>(&self, origin: &OriginKey, f: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut states = self.0.lock();
        let state = states.get_mut(origin);
        let (outcome, next) = f(state.as_deref().copied())?;
        match state {
            Some(state) => *state = next,
            None => states.insert(*origin, next),
        }
        Ok(outcome)
    }
}

impl governor::clock::Clock for MonotonicClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.monotonic()
    }
}

impl fmt::Debug for SpamFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpamFilter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, Timestamp};

    use super::*;
    use crate::{event::tests::event, recorder::EventType};

    fn filter() -> (FakeClock, SpamFilter) {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let filter = SpamFilter::new(Arc::new(clock.clone()));
        (clock, filter)
    }

    /// Returns the number of events that pass, of `events` equal ones.
    fn passing(filter: &SpamFilter, events: usize) -> usize {
        (0..events).filter(|_| !filter.is_spam(&event("Reason", "message"))).count()
    }

    #[test]
    fn burst_is_limited_to_25_events() {
        let (_clock, filter) = filter();
        assert_eq!(passing(&filter, 100), 25);
    }

    #[test]
    fn one_more_event_passes_every_five_minutes() {
        let (clock, filter) = filter();
        passing(&filter, 100);
        clock.step(Duration::from_secs(299));
        assert_eq!(passing(&filter, 10), 0);
        clock.step(Duration::from_secs(1));
        assert_eq!(passing(&filter, 10), 1);
        clock.step(Duration::from_secs(3 * 300));
        assert_eq!(passing(&filter, 10), 3);
        clock.step(Duration::from_secs(24 * 3600));
        assert_eq!(passing(&filter, 100), 25);
    }

    #[test]
    fn limit_applies_per_object_source_and_type_for_all_reasons() {
        let (_clock, filter) = filter();
        passing(&filter, 25);
        assert!(filter.is_spam(&event("Another", "message")));
        let mut warning = event("Reason", "message");
        warning.type_ = EventType::Warning;
        assert!(!filter.is_spam(&warning));
        let mut recreated = event("Reason", "message");
        recreated.regarding.uid = "another".into();
        assert!(!filter.is_spam(&recreated));
        let mut other_source = event("Reason", "message");
        other_source.component = "another-controller".into();
        assert!(!filter.is_spam(&other_source));
    }

    #[test]
    fn limit_is_reset_after_4096_other_objects() {
        let (_clock, filter) = filter();
        passing(&filter, 25);
        for other in 0..MAX_CACHE_ENTRIES {
            let mut event = event("Reason", "message");
            event.regarding.uid = other.to_string().into();
            filter.is_spam(&event);
        }
        assert_eq!(passing(&filter, 100), 25);
    }
}
