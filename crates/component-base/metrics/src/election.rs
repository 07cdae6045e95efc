//! `leader_election_*` (US-1.6), and what else an election tells.

use kcm_leader_election::{ElectionMetrics, LeaderGate};

use crate::{Counter, Family, Gauge, Registry, Spec, Stability::Alpha, metrics::Refreshers};

/// Counts what elections do.
#[derive(Debug)]
pub(crate) struct Elections {
    leading: Family<Gauge, 1>,
    slow_path: Family<Counter, 1>,
    changes: Family<Counter, 1>,
    shared: Family<Counter, 1>,
    remaining: Family<Gauge, 1>,
}

impl Elections {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            leading: registry.metric(Spec::upstream(
                "leader_election_master_status",
                Alpha,
                ["name"],
                "1 while this process leads, 0 while it stands by, by the Lease's name.",
            )),
            slow_path: registry.metric(Spec::upstream(
                "leader_election_slowpath_total",
                Alpha,
                ["name"],
                "Renewals that had to read the Lease first, by the Lease's name.",
            )),
            changes: registry.metric(Spec::own(
                "kcm_leader_election_changes_total",
                ["name"],
                "How often the Lease was seen with another holder than before, by the Lease's name.",
            )),
            shared: registry.metric(Spec::own(
                "kcm_leader_election_identity_shared_total",
                ["name"],
                "How often something else wrote the Lease in this process's name.",
            )),
            remaining: registry.metric(Spec::own(
                "kcm_leader_election_remaining_seconds",
                ["name"],
                "How long this process may go on to write if it does not renew the Lease again, in seconds; 0 when it \
                 does not lead.",
            )),
        }
    }

    /// Shows at each scrape how long `gate` stays open.
    pub(crate) fn watch(&self, name: &str, gate: LeaderGate, refreshers: &Refreshers) {
        let remaining = self.remaining.with([name]);
        refreshers.add(Box::new(move || {
            remaining.set_seconds(gate.remaining());
            true
        }));
    }
}

impl ElectionMetrics for Elections {
    fn leading(&self, election: &str, leading: bool) {
        self.leading.with([election]).set(if leading { 1.0 } else { 0.0 });
        // Exported as 0 from the start, so that `increase()` includes the first occurrence.
        self.shared.with([election]);
    }

    fn slow_path(&self, election: &str) {
        self.slow_path.with([election]).inc();
    }

    fn new_leader(&self, election: &str, _identity: &str) {
        self.changes.with([election]).inc();
    }

    fn identity_shared(&self, election: &str) {
        self.shared.with([election]).inc();
    }
}
