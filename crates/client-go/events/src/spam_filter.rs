//! What is still too much is dropped.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use governor::{
    Quota, RateLimiter,
    middleware::NoOpMiddleware,
    state::{InMemoryState, NotKeyed},
};
use kcm_clock::Clock;

use crate::{MAX_CACHE_ENTRIES, key::OriginKey, lru::Lru, object::Event};

/// 25 events of one origin at once, and then twelve an hour: one every five minutes.
const QUOTA: Quota = Quota::per_hour(NonZeroU32::new(12).unwrap()).allow_burst(NonZeroU32::new(25).unwrap());

/// Lets no more than so many events pass per source, object and type.
///
/// Upstream counterpart: `record.EventSourceObjectSpamFilter`.
#[derive(Debug)]
pub(crate) struct SpamFilter {
    /// One bucket per origin. governor's keyed limiter would hold them all, but not a bounded number of them,
    /// as upstream does.
    buckets: Lru<OriginKey, Bucket>,
    clock: BucketClock,
}

type Bucket = RateLimiter<NotKeyed, InMemoryState, BucketClock, NoOpMiddleware<Duration>>;

impl SpamFilter {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { buckets: Lru::new(MAX_CACHE_ENTRIES), clock: BucketClock(clock) }
    }

    /// Whether `event` is one too many.
    pub(crate) fn is_spam(&mut self, event: &Event) -> bool {
        let origin = OriginKey::of(event);
        if let Some(bucket) = self.buckets.get_mut(&origin) {
            return bucket.check().is_err();
        }
        let bucket = Bucket::direct_with_clock(QUOTA, self.clock.clone());
        let spam = bucket.check().is_err();
        self.buckets.insert(origin, bucket);
        spam
    }
}

/// Our clock as governor reads it; governor's own do not know of simulated time.
#[derive(Debug, Clone)]
struct BucketClock(Arc<dyn Clock>);

impl governor::clock::Clock for BucketClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.monotonic()
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, Timestamp};

    use super::*;
    use crate::{EventType, object::tests::event};

    fn filter() -> (FakeClock, SpamFilter) {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let filter = SpamFilter::new(Arc::new(clock.clone()));
        (clock, filter)
    }

    /// How many of `events` equal events pass.
    fn passing(filter: &mut SpamFilter, events: usize) -> usize {
        (0..events).filter(|_| !filter.is_spam(&event("Reason", "message"))).count()
    }

    #[test]
    fn flood_of_one_object_is_cut_off_after_25_events() {
        let (_clock, mut filter) = filter();
        assert_eq!(passing(&mut filter, 100), 25);
    }

    #[test]
    fn object_cut_off_has_one_more_event_every_five_minutes() {
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
    fn objects_sources_and_types_are_counted_apart_and_reasons_together() {
        let (_clock, mut filter) = filter();
        passing(&mut filter, 25);
        assert!(filter.is_spam(&event("Another", "message")));
        let mut warning = event("Reason", "message");
        warning.type_ = EventType::Warning;
        assert!(!filter.is_spam(&warning));
        let mut recreated = event("Reason", "message");
        recreated.regarding.uid = "another".into();
        assert!(!filter.is_spam(&recreated));
        let mut elsewhere = event("Reason", "message");
        elsewhere.component = "another-controller".into();
        assert!(!filter.is_spam(&elsewhere));
    }

    #[test]
    fn object_not_heard_of_while_4096_others_were_starts_anew() {
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
