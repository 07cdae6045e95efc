//! Many similar events become one.

use std::{collections::HashSet, sync::Arc, time::Duration};

use kcm_api::Time;
use kcm_clock::Clock;

use crate::{
    MAX_CACHE_ENTRIES,
    key::{SameKey, SimilarKey},
    lru::Lru,
    name::Names,
    object::Event,
};

/// With so many different messages, similar events are combined.
const MAX_SIMILAR: usize = 10;

/// After so long without a similar event, counting starts anew.
const WINDOW: Duration = Duration::from_secs(600);

/// Combines events that differ in their message only.
///
/// Upstream counterpart: `record.EventAggregator`.
#[derive(Debug)]
pub(crate) struct Aggregator {
    similar: Lru<SimilarKey, Similar>,
    clock: Arc<dyn Clock>,
    names: Arc<Names>,
}

#[derive(Debug)]
struct Similar {
    /// Different messages seen; never [`MAX_SIMILAR`] of them, since the one that would be is combined.
    messages: HashSet<Arc<str>>,
    /// When the last similar event came, by the monotonic clock.
    last: Duration,
}

impl Aggregator {
    pub(crate) fn new(clock: Arc<dyn Clock>, names: Arc<Names>) -> Self {
        Self { similar: Lru::new(MAX_CACHE_ENTRIES), clock, names }
    }

    /// Returns `event`, or what it is to be combined to, and what that is counted with.
    pub(crate) fn aggregate(&mut self, event: Event) -> (Event, SameKey) {
        let key = SimilarKey::of(&event);
        if self.is_one_too_many(&key, &event.message) {
            (self.combine(event), SameKey::combined(key))
        } else {
            let same = SameKey::plain(key, &event);
            (event, same)
        }
    }

    fn is_one_too_many(&mut self, key: &SimilarKey, message: &str) -> bool {
        let now = self.clock.monotonic();
        let Some(similar) = self.similar.get_mut(key) else {
            self.similar
                .insert(key.clone(), Similar { messages: HashSet::from([message.into()]), last: now });
            return MAX_SIMILAR <= 1;
        };
        if now.saturating_sub(similar.last) > WINDOW {
            similar.messages.clear();
        }
        similar.last = now;
        if similar.messages.contains(message) {
            return false;
        }
        // Upstream adds this message and then takes out any one, chosen by Go's map order, so that one of the
        // first nine may later be combined and the tenth not. Leaving this one out is one of its outcomes, and
        // the one without chance.
        if similar.messages.len() + 1 >= MAX_SIMILAR {
            return true;
        }
        similar.messages.insert(message.into());
        false
    }

    fn combine(&self, event: Event) -> Event {
        let now = self.clock.now();
        Event {
            name: self.names.generate(&event.regarding.name, now),
            message: format!("(combined from similar events): {}", event.message),
            reported: false,
            count: 1,
            first_timestamp: Time::new(now),
            last_timestamp: Time::new(now),
            ..event
        }
    }
}
