//! Causes of a rollout that does not move.

use serde::Serialize;

/// Cause of a rollout that waits or is stuck.
///
/// The set is closed. The [name](Self::name) of a cause does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The Deployment is paused.
    Paused,
}

impl Cause {
    /// All causes.
    pub const ALL: &[Self] = &[Self::Paused];

    /// Name in JSON and in metrics, in snake_case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paused => "paused",
        }
    }
}
