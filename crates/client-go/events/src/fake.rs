use parking_lot::Mutex;

use crate::{
    object_reference::ObjectReference,
    recorder::{EventRecorder, EventType},
};

/// Recorder for tests. Keeps each event as text: type, reason and message, separated by spaces.
///
/// Upstream counterpart: `record.FakeRecorder`.
///
/// ```
/// use kcm_events::{EventRecorder, EventType, FakeRecorder, ObjectReference};
///
/// let recorder = FakeRecorder::new();
/// recorder.event(&ObjectReference::default(), EventType::Warning, "FailedCreate", "exceeded quota".to_owned());
/// assert_eq!(recorder.take(), ["Warning FailedCreate exceeded quota"]);
/// ```
#[derive(Debug, Default)]
pub struct FakeRecorder {
    events: Mutex<Vec<String>>,
}

impl FakeRecorder {
    /// Creates a recorder without events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns and removes the recorded events, in their order.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.events.lock())
    }
}

impl EventRecorder for FakeRecorder {
    fn event(&self, _regarding: &ObjectReference, type_: EventType, reason: &str, message: String) {
        self.events.lock().push(format!("{} {reason} {message}", type_.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_events_in_order() {
        let recorder = FakeRecorder::new();
        let regarding = ObjectReference::default();
        recorder.event(&regarding, EventType::Normal, "Created", "pod a".to_owned());
        recorder.event(&regarding, EventType::Warning, "Failed", "pod b".to_owned());
        assert_eq!(recorder.take(), ["Normal Created pod a", "Warning Failed pod b"]);
        assert_eq!(recorder.take(), [""; 0]);
    }
}
