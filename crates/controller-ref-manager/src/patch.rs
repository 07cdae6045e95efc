/// The body of a strategic merge patch that adds or removes an owner reference (US-3.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerPatch(String);

impl OwnerPatch {
    /// The patch as JSON text, fields in the order in which upstream sends them.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}
