use std::{fmt, sync::Arc};

use kcm_clock::Clock;
use kcm_flowcontrol::TokenBucket;

use crate::{
    event::Event,
    key::OriginKey,
    lru::{Lru, MAX_CACHE_ENTRIES},
};

/// A burst of 25 events, then one every five minutes.
const BURST: u32 = 25;
const EVENTS_PER_SECOND: f64 = 1.0 / 300.0;

/// Limits the rate of events per source, object and type.
///
/// Upstream counterpart: `record.EventSourceObjectSpamFilter`.
pub(crate) struct SpamFilter {
    /// A bucket per origin.
    buckets: Lru<OriginKey, TokenBucket>,
    clock: Arc<dyn Clock>,
}

impl SpamFilter {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { buckets: Lru::new(MAX_CACHE_ENTRIES), clock }
    }

    /// Returns `true` if `event` exceeds the limit.
    pub(crate) fn is_spam(&mut self, event: &Event) -> bool {
        let (origin, now) = (OriginKey::of(event), self.clock.monotonic());
        if let Some(bucket) = self.buckets.get_mut(&origin) {
            return !bucket.try_take(now);
        }
        let mut bucket = TokenBucket::new(EVENTS_PER_SECOND, BURST);
        let spam = !bucket.try_take(now);
        self.buckets.insert(origin, bucket);
        spam
    }
}

impl fmt::Debug for SpamFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpamFilter").field("buckets", &self.buckets).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcm_clock::{FakeClock, Timestamp};

    use super::*;
    use crate::{event::tests::event, recorder::EventType};

    fn filter() -> (FakeClock, SpamFilter) {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let filter = SpamFilter::new(Arc::new(clock.clone()));
        (clock, filter)
    }

    /// Returns the number of events that pass, of `events` equal ones.
    fn passing(filter: &mut SpamFilter, events: usize) -> usize {
        (0..events).filter(|_| !filter.is_spam(&event("Reason", "message"))).count()
    }

    #[test]
    fn burst_is_limited_to_25_events() {
        let (_clock, mut filter) = filter();
        assert_eq!(passing(&mut filter, 100), 25);
    }

    #[test]
    fn one_more_event_passes_every_five_minutes() {
        let (clock, mut filter) = filter();
        passing(&mut filter, 100);
        clock.step(Duration::from_secs(299));
        assert_eq!(passing(&mut filter, 10), 0);
        clock.step(Duration::from_secs(1));
        assert_eq!(passing(&mut filter, 10), 1);
        clock.step(Duration::from_secs(3 * 300));
        assert_eq!(passing(&mut filter, 10), 3);
        clock.step(Duration::from_secs(24 * 3600));
        assert_eq!(passing(&mut filter, 100), 25);
    }

    #[test]
    fn limit_applies_per_object_source_and_type_for_all_reasons() {
        let (_clock, mut filter) = filter();
        passing(&mut filter, 25);
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
        let (_clock, mut filter) = filter();
        passing(&mut filter, 25);
        for other in 0..MAX_CACHE_ENTRIES {
            let mut event = event("Reason", "message");
            event.regarding.uid = other.to_string().into();
            filter.is_spam(&event);
        }
        assert_eq!(passing(&mut filter, 100), 25);
    }
}
