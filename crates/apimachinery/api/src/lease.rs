//! Leases.

use crate::{MicroTime, ObjectKey, ObjectMeta};

/// Group and version of Leases.
pub const API_VERSION: &str = "coordination.k8s.io/v1";

/// The kind of a [`Lease`].
pub const KIND: &str = "Lease";

lossless! {
    /// A Lease, whole: what is not known here is kept in the `extra` of the place it came in.
    pub struct Lease {
        /// Always `coordination.k8s.io/v1`, or empty in a list's items.
        pub api_version: String = "apiVersion",
        /// Always `Lease`, or empty in a list's items.
        pub kind: String = "kind",
        /// Name, labels and so on.
        pub metadata: ObjectMeta = "metadata" always,
        /// Who holds it, since when, for how long.
        pub spec: LeaseSpec = "spec" always,
    }
}

lossless! {
    /// Who holds a Lease.
    ///
    /// Every field may be missing, which is not the same as empty: a released Lease has an empty holder.
    pub struct LeaseSpec {
        /// The holder; missing or empty for nobody.
        pub holder_identity: Option<String> = "holderIdentity",
        /// How long after a renewal others must wait, in seconds.
        pub lease_duration_seconds: Option<i32> = "leaseDurationSeconds",
        /// When the holder got it, by the holder's clock.
        pub acquire_time: Option<MicroTime> = "acquireTime",
        /// When the holder last renewed it, by the holder's clock.
        pub renew_time: Option<MicroTime> = "renewTime",
        /// How often it has changed hands.
        pub lease_transitions: Option<i32> = "leaseTransitions",
        /// How the holder is chosen, where a coordinator does that.
        pub strategy: Option<String> = "strategy",
        /// Who should hold it instead, where a coordinator says so.
        pub preferred_holder: Option<String> = "preferredHolder",
    }
}

impl Lease {
    /// A Lease at `key` that nobody has held.
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

    /// Who holds it, as far as the object says; that the holder may have died is for others to find out.
    pub fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lease_read_and_written_is_the_same() {
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
    fn lease_without_a_holder_or_with_an_empty_one_is_held_by_nobody_and_the_two_are_written_apart() {
        let mut lease = Lease::new(&ObjectKey::new("ns", "n"));
        assert_eq!(lease.holder(), None);
        assert_eq!(serde_json::to_value(&lease.spec).unwrap(), json!({}));
        lease.spec.holder_identity = Some(String::new());
        assert_eq!(lease.holder(), None);
        assert_eq!(serde_json::to_value(&lease.spec).unwrap(), json!({"holderIdentity": ""}));
    }
}
