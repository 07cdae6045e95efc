//! Telling a standby that it is time.

use std::sync::Arc;

use kcm_api::Lease;
use tokio::sync::Notify;

/// Tells a standby to try at once instead of at its next turn. Cheap to clone.
///
/// Wire it to a watch on the Lease, and a Lease that is given back has a new holder within milliseconds; without, it
/// takes up to 2.2 retry periods. A nudge that comes too early, too often or for nothing costs a request now and then
/// and does no harm. A leader ignores it.
///
/// DEVIATION: upstream has nothing of the kind.
#[derive(Debug, Clone, Default)]
pub struct Nudge(Arc<Notify>);

impl Nudge {
    /// Makes the standby try.
    pub fn nudge(&self) {
        self.0.notify_one();
    }

    /// Makes the standby try if nobody holds `lease`: to be called with each state that a watch brings, and with `None`
    /// when the Lease is gone.
    pub fn lease_changed(&self, lease: Option<&Lease>) {
        if lease.and_then(Lease::holder).is_none() {
            self.nudge();
        }
    }

    pub(crate) async fn nudged(&self) {
        self.0.notified().await;
    }
}
