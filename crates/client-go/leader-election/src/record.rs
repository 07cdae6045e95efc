//! Election record of a Lease.

use kcm_api::{LeaseSpec, MicroTime};

/// Part of a Lease that candidates read and write. Unset fields are empty, zero or `None`.
///
/// Upstream counterpart: `resourcelock.LeaderElectionRecord`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElectionRecord {
    /// Identity of the leader. Empty if there is none.
    pub holder_identity: String,
    /// Time that standbys wait after the last observed renewal, in seconds.
    pub lease_duration_seconds: i32,
    /// Time at which the leader acquired the Lease, by its own wall clock.
    pub acquire_time: Option<MicroTime>,
    /// Time of the last renewal, by the leader's wall clock.
    pub renew_time: Option<MicroTime>,
    /// Number of acquisitions, including those by the same candidate after a release.
    pub leader_transitions: i32,
    /// Coordinated leader election: identity of the candidate that should lead instead.
    pub preferred_holder: String,
    /// Coordinated leader election: strategy that selects the leader.
    pub strategy: String,
}

impl From<&LeaseSpec> for ElectionRecord {
    fn from(spec: &LeaseSpec) -> Self {
        Self {
            holder_identity: spec.holder_identity.clone().unwrap_or_default(),
            lease_duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquire_time: spec.acquire_time,
            renew_time: spec.renew_time,
            leader_transitions: spec.lease_transitions.unwrap_or_default(),
            preferred_holder: spec.preferred_holder.clone().unwrap_or_default(),
            strategy: spec.strategy.clone().unwrap_or_default(),
        }
    }
}

impl ElectionRecord {
    /// Writes the record to `spec`. Unknown fields are kept.
    pub fn write_to(&self, spec: &mut LeaseSpec) {
        let unless_empty = |text: &String| (!text.is_empty()).then(|| text.clone());
        // A released Lease has an empty holder rather than none.
        spec.holder_identity = Some(self.holder_identity.clone());
        spec.lease_duration_seconds = Some(self.lease_duration_seconds);
        spec.acquire_time = self.acquire_time;
        spec.renew_time = self.renew_time;
        spec.lease_transitions = Some(self.leader_transitions);
        spec.preferred_holder = unless_empty(&self.preferred_holder);
        spec.strategy = unless_empty(&self.strategy);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_spec_is_empty_record() {
        assert_eq!(ElectionRecord::from(&LeaseSpec::default()), ElectionRecord::default());
    }

    #[test]
    fn write_keeps_unknown_fields() {
        let mut spec: LeaseSpec = serde_json::from_value(json!({
            "holderIdentity": "old", "leaseDurationSeconds": 15, "acquireTime": "2026-01-02T03:04:05.000000Z",
            "renewTime": "2026-01-02T03:04:05.000000Z", "leaseTransitions": 7, "strategy": "S",
            "preferredHolder": "p", "unknown": [1],
        }))
        .unwrap();
        let record = ElectionRecord {
            lease_duration_seconds: 1,
            renew_time: Some("2026-01-02T03:04:06.25Z".parse().unwrap()),
            leader_transitions: 7,
            ..ElectionRecord::default()
        };
        record.write_to(&mut spec);
        assert_eq!(
            serde_json::to_value(&spec).unwrap(),
            json!({
                "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": "2026-01-02T03:04:06.250000Z",
                "leaseTransitions": 7, "unknown": [1],
            })
        );
        assert_eq!(ElectionRecord::from(&spec), record);
    }
}
