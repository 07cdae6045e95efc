//! A recorder for tests.

use parking_lot::Mutex;

use crate::{EventRecorder, EventType, ObjectReference};

/// Keeps events as text: type, reason and message, separated by spaces.
///
/// Upstream counterpart: `record.FakeRecorder`.
#[derive(Debug, Default)]
pub struct FakeRecorder {
    events: Mutex<Vec<String>>,
}

impl FakeRecorder {
    /// A recorder that was told nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What it was told, in this order.
    pub fn events(&self) -> Vec<String> {
        self.events.lock().clone()
    }

    /// What it was told since the last call, in this order.
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
    fn recorder_keeps_what_it_is_told_in_order() {
        let recorder = FakeRecorder::new();
        let regarding = ObjectReference::default();
        recorder.event(&regarding, EventType::Normal, "Created", "pod a".to_owned());
        recorder.event(&regarding, EventType::Warning, "Failed", "pod b".to_owned());
        assert_eq!(recorder.events(), ["Normal Created pod a", "Warning Failed pod b"]);
        assert_eq!(recorder.take().len(), 2);
        assert_eq!(recorder.events(), [""; 0]);
    }
}
