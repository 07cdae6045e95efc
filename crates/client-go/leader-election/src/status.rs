//! Status of an election, for health checks.

use std::{fmt, sync::Arc, time::Duration};

use kcm_clock::Clock;
use parking_lot::Mutex;
use thiserror::Error;

use crate::Candidate;

/// Name of the health check (US-1.7).
pub const HEALTH_CHECK_NAME: &str = "leaderElection";

/// Time after the expiry of its lease during which a leader counts as healthy. As in upstream's manager.
pub const HEALTH_TOLERANCE: Duration = Duration::from_secs(20);

/// Status of an election. It can be read while the elector runs. Cheap to clone.
#[derive(Clone)]
pub struct ElectionStatus {
    pub(crate) name: Arc<str>,
    pub(crate) candidate: Arc<Mutex<Candidate>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lease_duration: Duration,
}

/// Error: the leader has not renewed its lease and still leads. `Display` gives the text of upstream's health check.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("failed election to renew leadership on lease {0}")]
pub struct NotRenewed(
    /// Name of the election.
    pub Arc<str>,
);

impl ElectionStatus {
    /// Returns the holder that this candidate last observed, or an empty string. For diagnostics; writes check the
    /// [`LeaderGate`](crate::LeaderGate).
    ///
    /// Upstream counterpart: `LeaderElector.GetLeader`.
    pub fn leader(&self) -> String {
        self.candidate.lock().observed().holder_identity.clone()
    }

    /// Checks that a leader has renewed the Lease within `lease_duration` and `tolerance` ([`HEALTH_TOLERANCE`]). A
    /// standby is always healthy.
    ///
    /// Upstream counterpart: `LeaderElector.Check`.
    ///
    /// # Errors
    ///
    /// If it has not: the process is stuck and should be restarted.
    pub fn check(&self, tolerance: Duration) -> Result<(), NotRenewed> {
        let candidate = self.candidate.lock();
        let since = self.clock.monotonic().saturating_sub(candidate.observed_at());
        if candidate.is_holder() && since > self.lease_duration.saturating_add(tolerance) {
            return Err(NotRenewed(Arc::clone(&self.name)));
        }
        Ok(())
    }
}

impl fmt::Debug for ElectionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectionStatus")
            .field("name", &self.name)
            .field("leader", &self.leader())
            .finish_non_exhaustive()
    }
}
