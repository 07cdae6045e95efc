//! What others may ask of an election.

use std::{fmt, sync::Arc, time::Duration};

use kcm_clock::Clock;
use parking_lot::Mutex;
use thiserror::Error;

use crate::Candidate;

/// What the health check is called (US-1.7).
pub const HEALTH_CHECK_NAME: &str = "leaderElection";

/// How long after its lease has run out upstream's manager lets a leader that never noticed count as healthy.
pub const HEALTH_TOLERANCE: Duration = Duration::from_secs(20);

/// What others may ask of an election, while it runs or not. Cheap to clone.
#[derive(Clone)]
pub struct ElectionStatus {
    pub(crate) name: Arc<str>,
    pub(crate) candidate: Arc<Mutex<Candidate>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lease_duration: Duration,
}

/// A leader that neither renews nor notices. Displays as upstream's health check does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("failed election to renew leadership on lease {0}")]
pub struct NotRenewed(
    /// The election's name.
    pub Arc<str>,
);

impl ElectionStatus {
    /// Who holds the Lease, as far as this candidate saw; empty for nobody. For people; writes ask the
    /// [`LeaderGate`](crate::LeaderGate).
    ///
    /// Upstream counterpart: `LeaderElector.GetLeader`.
    pub fn leader(&self) -> String {
        self.candidate.lock().observed().holder_identity.clone()
    }

    /// Whether this candidate is well: it does not hold the Lease, or has renewed it within the lease's duration and
    /// `tolerance` ([`HEALTH_TOLERANCE`]). A standby is well.
    ///
    /// Upstream counterpart: `LeaderElector.Check`.
    ///
    /// # Errors
    ///
    /// When it is not: the process is stuck, and should be started anew.
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
