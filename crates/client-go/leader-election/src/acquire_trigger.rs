//! Trigger that makes a standby try to acquire the Lease.

use std::sync::Arc;

use kcm_api::Lease;
use tokio::sync::Notify;

/// Makes a standby try to acquire the Lease at once. Cheap to clone.
///
/// Connected to a watch on the Lease, it makes a standby acquire a released Lease within milliseconds. Without it,
/// the standby tries again after up to 2.2 retry periods. An unnecessary call costs at most one request. A leader
/// ignores it.
///
/// DEVIATION: upstream has no such trigger.
///
/// ```
/// use kcm_api::Lease;
/// use kcm_leader_election::AcquireTrigger;
///
/// /// Event handler of a watch on the Lease.
/// fn on_update(trigger: &AcquireTrigger, lease: &Lease) {
///     trigger.lease_changed(Some(lease));
/// }
/// ```
#[derive(Debug, Clone, Default)]
pub struct AcquireTrigger(Arc<Notify>);

impl AcquireTrigger {
    /// Makes the standby try.
    pub fn trigger(&self) {
        self.0.notify_one();
    }

    /// Makes the standby try if `lease` has no holder. To be called with each state from a watch, and with `None`
    /// when the Lease is deleted.
    pub fn lease_changed(&self, lease: Option<&Lease>) {
        if lease.and_then(Lease::holder).is_none() {
            self.trigger();
        }
    }

    pub(crate) async fn triggered(&self) {
        self.0.notified().await;
    }
}
