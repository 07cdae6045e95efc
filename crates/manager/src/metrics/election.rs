//! Metrics of leader election: `leader_election_*` (US-1.6), changes and remaining time.

use kcm_leader_election::{ElectionMetrics, LeaderGate};
use kcm_metrics::{Counter, Family, Gauge, Registry, Spec, Stability::Alpha};

/// Metrics of leader elections.
#[derive(Debug)]
pub(super) struct Elections {
    leading: Family<Gauge, 1>,
    slow_path: Family<Counter, 1>,
    changes: Family<Counter, 1>,
    shared: Family<Counter, 1>,
    remaining: Family<Gauge, 1>,
    unserved: Family<Gauge, 1>,
}

impl Elections {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            leading: registry.metric(Spec::upstream(
                "leader_election_master_status",
                Alpha,
                ["name"],
                "1 if this process is the leader, 0 if it is a standby, by name of the Lease.",
            )),
            slow_path: registry.metric(Spec::upstream(
                "leader_election_slowpath_total",
                Alpha,
                ["name"],
                "Renewals that had to read the Lease first, by name of the Lease.",
            )),
            changes: registry.metric(Spec::own(
                "kcm_leader_election_changes_total",
                ["name"],
                "Observed changes of the holder of the Lease, by name of the Lease.",
            )),
            shared: registry.metric(Spec::own(
                "kcm_leader_election_identity_shared_total",
                ["name"],
                "Writes of the Lease by another process with the same identity, by name of the Lease.",
            )),
            remaining: registry.metric(Spec::own(
                "kcm_leader_election_remaining_seconds",
                ["name"],
                "Time until this process must stop writing unless it renews the Lease, in seconds. 0 if it is not the \
                 leader.",
            )),
            unserved: registry.metric(Spec::own(
                "kcm_leader_election_unserved_controllers",
                ["name"],
                "Controllers of upstream's manager that no process runs because this process holds its Lease, by name \
                 of the Lease. 0 if this process is not the leader.",
            )),
        }
    }

    /// Exports the time until `gate` closes, and until then the number of `unserved` controllers.
    pub(super) fn watch(&self, name: &str, gate: LeaderGate, unserved: usize, registry: &Registry) {
        let (remaining, count) = (self.remaining.with([name]), self.unserved.with([name]));
        registry.on_scrape(Box::new(move || {
            remaining.set_seconds(gate.remaining());
            count.set(if gate.is_leader() { unserved as f64 } else { 0.0 });
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
