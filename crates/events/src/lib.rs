//! placeholder
mod event;
pub use event::{EventRecorder, EventSink, EventType, ObjectReference};
