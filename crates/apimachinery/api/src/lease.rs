//! Leases.

use crate::{MicroTime, ObjectKey, ObjectMeta};

/// Group and version of Leases.
pub const API_VERSION: &str = "coordination.k8s.io/v1";

/// Kind of a [`Lease`].
pub const KIND: &str = "Lease";

lossless! {
    /// A Lease. Unknown fields are kept in the `extra` of their parent.
    pub struct Lease {
        /// `coordination.k8s.io/v1`. Empty in items of a list.
        pub api_version: String = "apiVersion",
        /// `Lease`. Empty in items of a list.
        pub kind: String = "kind",
        /// Metadata.
        pub metadata: ObjectMeta = "metadata" always,
        /// Holder, duration and times.
        pub spec: LeaseSpec = "spec" always,
    }
}

lossless! {
    /// Holder, duration and times of a Lease.
    ///
    /// Unset and empty are different: a released Lease has an empty holder.
    pub struct LeaseSpec {
        /// Identity of the holder. Unset or empty if there is none.
        pub holder_identity: Option<String> = "holderIdentity",
        /// Time that candidates wait after the last renewal, in seconds.
        pub lease_duration_seconds: Option<i32> = "leaseDurationSeconds",
        /// Time at which the holder acquired the Lease, by its clock.
        pub acquire_time: Option<MicroTime> = "acquireTime",
        /// Time of the last renewal, by the holder's clock.
        pub renew_time: Option<MicroTime> = "renewTime",
        /// Number of changes of the holder.
        pub lease_transitions: Option<i32> = "leaseTransitions",
        /// Strategy of coordinated leader election.
        pub strategy: Option<String> = "strategy",
        /// Holder that coordinated leader election prefers.
        pub preferred_holder: Option<String> = "preferredHolder",
    }
}

impl Lease {
    /// Creates a Lease without a holder.
    pub fn new(key: &ObjectKey) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            metadata: ObjectMeta {
                name: key.name.clone(),
                namespace: key.namespace.clone(),
                ..ObjectMeta::default()
            },
            ..Self::default()
        }
    }

    /// Returns the holder. It may have died: the times are not considered.
    pub fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn round_trip() {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "kube-controller-manager", "namespace": "kube-system", "resourceVersion": "7"},
            "spec": {
                "holderIdentity": "a_1", "leaseDurationSeconds": 15, "acquireTime": "2026-01-02T03:04:05.000000Z",
                "renewTime": "2026-01-02T03:04:07.123450Z", "leaseTransitions": 0, "strategy": "OldestEmulationVersion",
                "preferredHolder": "b_2", "fromTheFuture": {"deep": [1]},
            },
        });
        let lease: Lease = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(lease.holder(), Some("a_1"));
        assert_eq!(serde_json::to_value(&lease).unwrap(), object);
    }

    #[test]
    fn empty_and_unset_holder_differ() {
        let mut lease = Lease::new(&ObjectKey::new("ns", "n"));
        assert_eq!(lease.holder(), None);
        assert_eq!(serde_json::to_value(&lease.spec).unwrap(), json!({}));
        lease.spec.holder_identity = Some(String::new());
        assert_eq!(lease.holder(), None);
        assert_eq!(serde_json::to_value(&lease.spec).unwrap(), json!({"holderIdentity": ""}));
    }
}
