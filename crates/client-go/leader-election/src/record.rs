//! What a Lease says about an election.

use kcm_api::{LeaseSpec, MicroTime};

/// Who leads, since when, for how long: the part of a Lease that candidates read and write.
///
/// A missing text, number or time of the Lease reads as empty, zero or `None`.
///
/// Upstream counterpart: `resourcelock.LeaderElectionRecord`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElectionRecord {
    /// The leader; empty for nobody.
    pub holder_identity: String,
    /// How long after they last saw the record change others wait, in seconds.
    pub lease_duration_seconds: i32,
    /// When the leader became that, by its own wall clock.
    pub acquire_time: Option<MicroTime>,
    /// When the leader last wrote, by its own wall clock.
    pub renew_time: Option<MicroTime>,
    /// How often the Lease went to another leader, or to the same one after having been free.
    pub leader_transitions: i32,
    /// Coordinated election only: who should lead instead.
    pub preferred_holder: String,
    /// Coordinated election only: how the leader is chosen.
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
    /// Writes the record over what `spec` says of the election. Fields that this version does not know stay.
    pub fn write_to(&self, spec: &mut LeaseSpec) {
        let unless_empty = |text: &String| (!text.is_empty()).then(|| text.clone());
        // An empty holder is written, not left out: that is how a Lease is given back.
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
    fn record_of_an_empty_lease_is_empty() {
        assert_eq!(ElectionRecord::from(&LeaseSpec::default()), ElectionRecord::default());
    }

    #[test]
    fn record_written_over_a_lease_replaces_all_that_is_known_and_keeps_the_rest() {
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
