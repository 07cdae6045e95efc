use crate::object_reference::ObjectReference;

/// Records events. Upstream counterpart: `record.EventRecorder`.
pub trait EventRecorder: Send + Sync + 'static {
    /// Records an event about `regarding`. Returns immediately; the event is written later or dropped.
    fn event(&self, regarding: &ObjectReference, type_: EventType, reason: &str, message: String);
}

/// Type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Information.
    Normal,
    /// Problem.
    Warning,
}

impl EventType {
    /// Returns the value of the field `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}
