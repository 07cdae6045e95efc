//! Event recorder: writes events to an API server and limits their number.
//!
//! *Upstream counterpart:* `k8s.io/client-go/tools/record`.
//!
//! A controller records events with an [`EventRecorder`], which returns immediately. Each event then passes
//!
//! 1. a queue of [`MAX_QUEUED_EVENTS`]; if it is full, the event is dropped and a message is logged;
//! 2. the correlator, which combines similar events (`aggregate`), counts repeated events (`dedupe`) and drops events above
//!    a rate limit (`spam_filter`);
//! 3. a background task that creates or patches the event with an [`EventSink`], and retries if the API server is
//!    unreachable.
//!
//! Events are therefore written later than the changes they describe. Events about one object are written in the order in
//! which they were recorded. The limits are upstream's (US-2.3): from the tenth different message on, within ten minutes,
//! events with the same reason are *combined from similar events*; after 25 events about an object there is one more every
//! five minutes.
//!
//! [`EventBroadcaster`] combines these parts. [`FakeRecorder`] is a recorder for tests.
//!
//! *Not part of this crate:* the texts of events, HTTP.

#![warn(missing_debug_implementations)]

mod aggregate;
mod broadcaster;
mod correlator;
mod dedupe;
mod event;
mod fake;
mod key;
mod lru;
mod name;
mod object_reference;
mod recorder;
mod sink;
mod spam_filter;
mod writer;

pub use broadcaster::{EventBroadcaster, MAX_QUEUED_EVENTS};
pub use event::{Event, EventPatch, StoredEvent};
pub use fake::FakeRecorder;
pub use object_reference::ObjectReference;
pub use recorder::{EventRecorder, EventType};
pub use sink::EventSink;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
