//! Telling people what happened, without flooding anybody.
//!
//! *Upstream counterpart:* `k8s.io/client-go/tools/record`.
//!
//! A controller holds an [`EventRecorder`] and tells it what it did. That returns at once. What was told goes
//!
//! 1. into a queue of [`MAX_QUEUED_EVENTS`]; when that is full, the event is dropped and the loss is logged;
//! 2. through the correlator: many similar events become one *(aggregate)*, a repetition becomes a count on the
//!    first *(de-duplicate)*, and what is still too much is dropped *(spam filter)*;
//! 3. to an [`EventSink`] as a core/v1 object or a patch to one, by a single background task that retries when
//!    the server cannot be reached.
//!
//! So events are written later than, and in no order with, what the controller itself writes. The numbers are
//! those of US-2.3, among them the two that users ask about: a tenth different message of the same reason
//! within ten minutes is reported as *combined from similar events*, and after 25 events on one object there is
//! one more every five minutes.
//!
//! [`EventBroadcaster`] is all of this; [`FakeRecorder`] is a recorder for tests.
//!
//! *What must not live here:* what is worth an event, and its wording; HTTP; the log itself.

mod aggregate;
mod broadcaster;
mod correlator;
mod dedupe;
mod event;
mod fake;
mod key;
mod lru;
mod name;
mod object;
mod spam_filter;
mod writer;

pub use broadcaster::{EventBroadcaster, MAX_QUEUED_EVENTS};
pub use event::{EventRecorder, EventSink, EventType, ObjectReference};
pub use fake::FakeRecorder;

/// How many entries each cache of the correlator holds; the one used longest ago makes room.
const MAX_CACHE_ENTRIES: usize = 4096;
