//! Result of the writes of a plan.

use std::time::Duration;

use crate::ManageError;

/// Result of the creations or deletions of a sync.
#[derive(Debug, Default)]
pub(crate) struct Performed {
    /// First error.
    pub(crate) error: Option<ManageError>,
    /// `true` if a pod was created or deleted. Its watch event starts another sync.
    pub(crate) has_events: bool,
    /// Time after which the sync can make progress, if the error is that of an earlier request.
    pub(crate) retry_after: Option<Duration>,
}
