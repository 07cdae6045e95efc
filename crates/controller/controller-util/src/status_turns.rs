//! Turns of status writes at a rate limit.

use kcm_api::ObjectKey;

/// Turns of status writes at the rate limit that they share with other requests of the controller.
///
/// A controller that waits for the rate limit holds a status that later events may change, and a worker. With turns, it
/// ends the sync without the write. Its key is enqueued when the write would be sent, and that sync computes the status.
///
/// DEVIATION: upstream's workers compute the status, then wait for the rate limit.
pub trait StatusTurns: Send + Sync + 'static {
    /// Sets the function that enqueues the keys whose turn has come. Called once, before the first sync.
    fn on_turn(&self, enqueue: Box<dyn Fn(ObjectKey) + Send + Sync>) {
        drop(enqueue);
    }

    /// Returns `true` if the status of `key` may be written now. The next status write of the key then does not wait for the
    /// rate limit. Otherwise, the key is enqueued when its turn comes.
    ///
    /// If `is_awaited`, a rollout waits for the write, which is then as urgent as a write of a pod.
    fn take(&self, key: &ObjectKey, is_awaited: bool) -> bool {
        let _ = (key, is_awaited);
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
