use std::sync::Arc;

use kcm_clock::Clock;

use crate::{
    aggregate::Aggregator,
    dedupe::Deduplicator,
    event::{Event, StoredEvent},
    key::SameKey,
    name::Names,
    spam_filter::SpamFilter,
};

/// Combines similar events, counts repeated ones, and drops events above the rate limit, in this order.
///
/// Upstream counterpart: `record.EventCorrelator`.
#[derive(Debug)]
pub(crate) struct Correlator {
    aggregator: Aggregator,
    deduplicator: Deduplicator,
    filter: SpamFilter,
}

/// Event to write.
#[derive(Debug)]
pub(crate) struct Correlated {
    pub(crate) event: Event,
    key: SameKey,
    is_new: bool,
}

impl Correlated {
    /// Returns `true` if the event repeats an earlier one. The stored event is patched then.
    pub(crate) fn is_repetition(&self) -> bool {
        !self.is_new
    }

    /// Replaces the event, which is not written yet, by a later one that repeats it. Otherwise returns the later one.
    pub(crate) fn repeat(&mut self, later: Self) -> Option<Self> {
        if self.key != later.key {
            return Some(later);
        }
        self.event = later.event;
        None
    }
}

impl Correlator {
    pub(crate) fn new(clock: &Arc<dyn Clock>, names: Arc<Names>) -> Self {
        Self {
            aggregator: Aggregator::new(Arc::clone(clock), names),
            deduplicator: Deduplicator::new(),
            filter: SpamFilter::new(Arc::clone(clock)),
        }
    }

    /// Returns the event to write for `event`; `None` if it is dropped.
    pub(crate) fn correlate(&mut self, event: Event) -> Option<Correlated> {
        let (event, key) = self.aggregator.aggregate(event);
        // Counted before the filter, so that the next event that is written has the correct count.
        let event = self.deduplicator.observe(event, &key);
        let spam = self.filter.is_spam(&event);
        let is_new = event.count == 1;
        (!spam).then_some(Correlated { event, key, is_new })
    }

    /// Updates the state to the event that the API server has stored.
    pub(crate) fn update_state(&mut self, correlated: &Correlated, stored: StoredEvent) {
        self.deduplicator.update_state(&correlated.key, &correlated.event, stored);
    }
}

#[cfg(test)]
mod tests;
