//! Turns of status writes at a rate limit.

use kcm_api::ObjectKey;

/// Urgency of a status write at the rate limit, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusUrgency {
    /// The status reports fewer available pods. Until it is written, a rollout may remove pods that `maxUnavailable` protects
    /// (US-4.9).
    FewerPods,
    /// A rollout waits for the status as for a pod.
    Awaited,
    /// No controller waits for the status.
    Other,
}

/// Turns of status writes at the rate limit that they share with other requests of the controller.
///
/// A controller that waits for the rate limit holds a status that later events may change, and a worker. With turns, it
/// ends the sync without the write. Its key is enqueued when the write would be sent, and that sync computes the status.
///
/// DEVIATION: upstream's workers compute the status, then wait for the rate limit.
pub trait StatusTurns: Send + Sync + 'static {
    /// Sets the function that enqueues the keys whose turn has come. Called once, before the first sync.
    fn on_turn(&self, enqueue: Box<dyn Fn(ObjectKey, StatusUrgency) + Send + Sync>) {
        drop(enqueue);
    }

    /// Returns `true` if the status of `key` may be written now. The next status write of the key then does not wait for the
    /// rate limit. Otherwise, the key is enqueued when its turn comes.
    fn take(&self, key: &ObjectKey, urgency: StatusUrgency) -> bool {
        let _ = (key, urgency);
        true
    }

    /// Gives back the turn of `key`: its status does not differ any more.
    fn give_back(&self, key: &ObjectKey) {
        let _ = key;
    }
}

/// Permits each status write at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoStatusTurns;

impl StatusTurns for NoStatusTurns {}
