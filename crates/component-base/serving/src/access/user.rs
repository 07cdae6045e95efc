//! User of a request.

use std::collections::BTreeMap;

/// Name of users without credentials.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// User of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// User name. `system:anonymous` without credentials.
    pub name: String,
    /// UID. Empty if unknown.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Extra attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns `true` if the request had no credentials.
    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    pub(super) fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }
}
