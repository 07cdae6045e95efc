//! Metrics of an election.

/// Hooks for metrics of an election. The first argument is the name of the election. Methods do nothing by default
/// and must not block.
///
/// Upstream counterpart: `leaderelection.LeaderMetric` and the callback `OnNewLeader`.
pub trait ElectionMetrics: Send + Sync + 'static {
    /// Sets `leader_election_master_status`. Called at construction and at every change.
    fn leading(&self, election: &str, leading: bool) {
        let _ = (election, leading);
    }

    /// Increments `leader_election_slowpath_total`: a renewal had to read the Lease first.
    fn slow_path(&self, election: &str) {
        let _ = election;
    }

    /// The Lease has a new holder. `identity` is empty after a release.
    fn new_leader(&self, election: &str, identity: &str) {
        let _ = (election, identity);
    }

    /// Another process wrote the Lease with the identity of this candidate.
    fn identity_shared(&self, election: &str) {
        let _ = election;
    }
}

/// Records no metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoElectionMetrics;

impl ElectionMetrics for NoElectionMetrics {}
