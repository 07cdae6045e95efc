//! What becomes of an event before it is written.

use std::sync::Arc;

use kcm_clock::Clock;
use serde_json::Value;

use crate::{
    aggregate::Aggregator, dedupe::Deduplicator, key::SameKey, name::Names, object::Event,
    spam_filter::SpamFilter,
};

/// Aggregates, de-duplicates and filters, in this order.
///
/// Upstream counterpart: `record.EventCorrelator`.
#[derive(Debug)]
pub(crate) struct Correlator {
    aggregator: Aggregator,
    deduplicator: Deduplicator,
    filter: SpamFilter,
}

/// An event to be written.
#[derive(Debug)]
pub(crate) struct Correlated {
    pub(crate) event: Event,
    key: SameKey,
}

impl Correlated {
    /// Whether the event is a repetition of one that should be on the server: patch that.
    pub(crate) fn is_repetition(&self) -> bool {
        self.event.count > 1
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

    /// What to write for `event`, if anything.
    pub(crate) fn correlate(&mut self, event: Event) -> Option<Correlated> {
        let (event, key) = self.aggregator.aggregate(event);
        // Counted even if the filter drops it: the next one that passes tells the true count.
        let event = self.deduplicator.observe(event, &key);
        let spam = self.filter.is_spam(&event);
        (!spam).then_some(Correlated { event, key })
    }

    /// Takes note of what the server has stored.
    pub(crate) fn written(&mut self, correlated: &Correlated, answer: &Value) {
        self.deduplicator.update_state(&correlated.key, &correlated.event, answer);
    }
}

#[cfg(test)]
mod tests;
