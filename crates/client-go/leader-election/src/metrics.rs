//! Who is told what an election does.

/// Who is told what an election does. Every method does nothing unless implemented, gets the election's name first,
/// and must not block.
///
/// Upstream counterpart: `leaderelection.LeaderMetric` and the callback `OnNewLeader`.
pub trait ElectionMetrics: Send + Sync + 'static {
    /// `leader_election_master_status`: whether this candidate leads. Told at construction and at every change.
    fn leading(&self, election: &str, leading: bool) {
        let _ = (election, leading);
    }

    /// `leader_election_slowpath_total`: a renewal had to read the Lease first.
    fn slow_path(&self, election: &str) {
        let _ = election;
    }

    /// The Lease has another holder than before; an empty one when it was given back.
    fn new_leader(&self, election: &str, identity: &str) {
        let _ = (election, identity);
    }

    /// Something else than this candidate wrote in its name.
    fn identity_shared(&self, election: &str) {
        let _ = election;
    }
}

/// Nobody is told.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoElectionMetrics;

impl ElectionMetrics for NoElectionMetrics {}
