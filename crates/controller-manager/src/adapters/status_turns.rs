//! Turns of status writes at the rate limit of a client.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
};

use kcm_api::ObjectKey;
use kcm_client::{Api, ApiClient, Permit, PriorityLevel};
use kcm_controller_util::{StatusTurns, StatusUrgency};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// Turns of status writes at the rate limit of a client. Clones share them.
#[derive(Clone)]
pub struct RateLimitTurns(Arc<Shared>);

struct Shared {
    client: ApiClient,
    turns: Mutex<Turns>,
    enqueue: OnceLock<Box<dyn Fn(ObjectKey, StatusUrgency) + Send + Sync>>,
}

#[derive(Default)]
struct Turns {
    by_key: HashMap<ObjectKey, Turn>,
    next: u64,
}

enum Turn {
    /// A task waits for the token.
    Waiting { urgency: StatusUrgency, number: u64, task: AbortHandle },
    /// The status may be written.
    Due(Permit),
}

impl RateLimitTurns {
    /// Creates turns at the rate limit of `client`.
    pub fn new(client: &ApiClient) -> Self {
        let client = client.clone();
        Self(Arc::new(Shared { client, turns: Mutex::default(), enqueue: OnceLock::new() }))
    }

    /// Returns the client that has the rate limit.
    pub(crate) fn client(&self) -> &ApiClient {
        &self.0.client
    }

    /// Returns `true` if the status of `key` waits.
    pub(crate) fn is_waiting(&self, key: &ObjectKey) -> bool {
        matches!(self.0.turns.lock().by_key.get(key), Some(Turn::Waiting { .. }))
    }

    /// Returns `objects` with the permit for the status of `key`, if its turn was taken.
    pub(super) fn permitted<'a, K>(&self, objects: &'a Api<K>, key: &ObjectKey) -> Cow<'a, Api<K>> {
        let mut turns = self.0.turns.lock();
        let is_due = matches!(turns.by_key.get(key), Some(Turn::Due(_)));
        if is_due && let Some(Turn::Due(permit)) = turns.by_key.remove(key) {
            Cow::Owned(objects.with_permit(permit))
        } else {
            Cow::Borrowed(objects)
        }
    }

    /// Waits for a token and enqueues `key`.
    fn wait(&self, key: &ObjectKey, urgency: StatusUrgency, number: u64) -> AbortHandle {
        let (shared, key) = (Arc::clone(&self.0), key.clone());
        let waiting = async move {
            let permit = shared.client.with_priority_level(level(urgency)).acquire().await;
            shared.come(key, urgency, number, permit);
        };
        tokio::spawn(waiting).abort_handle()
    }
}

impl Shared {
    fn come(&self, key: ObjectKey, urgency: StatusUrgency, number: u64, permit: Permit) {
        {
            let mut turns = self.turns.lock();
            match turns.by_key.get_mut(&key) {
                Some(turn) if turn.is_waiting(number) => *turn = Turn::Due(permit),
                // It was given back meanwhile.
                _ => return,
            }
        }
        if let Some(enqueue) = self.enqueue.get() {
            enqueue(key, urgency);
        }
    }
}

fn level(urgency: StatusUrgency) -> PriorityLevel {
    match urgency {
        StatusUrgency::FewerPods => PriorityLevel::Availability,
        StatusUrgency::Awaited => PriorityLevel::Rollout,
        StatusUrgency::Other => PriorityLevel::Status,
    }
}

impl Turn {
    fn is_waiting(&self, of: u64) -> bool {
        matches!(self, Self::Waiting { number, .. } if *number == of)
    }

    fn abort(&self) {
        if let Self::Waiting { task, .. } = self {
            task.abort();
        }
    }
}

impl StatusTurns for RateLimitTurns {
    fn on_turn(&self, enqueue: Box<dyn Fn(ObjectKey, StatusUrgency) + Send + Sync>) {
        // A second function is of another controller with the same client, which there is not.
        let _ = self.0.enqueue.set(enqueue);
    }

    fn take(&self, key: &ObjectKey, urgency: StatusUrgency) -> bool {
        let client = &self.0.client;
        if !client.is_rate_limited() {
            return true;
        }
        let mut turns = self.0.turns.lock();
        match turns.by_key.get(key) {
            Some(Turn::Due(_)) => return true,
            Some(Turn::Waiting { urgency: earlier, .. }) if *earlier <= urgency => return false,
            Some(Turn::Waiting { .. }) => {}
            None => {
                if let Some(permit) = client.with_priority_level(level(urgency)).try_acquire() {
                    turns.by_key.insert(key.clone(), Turn::Due(permit));
                    return true;
                }
            }
        }
        turns.next += 1;
        let number = turns.next;
        let task = self.wait(key, urgency, number);
        if let Some(earlier) = turns.by_key.insert(key.clone(), Turn::Waiting { urgency, number, task }) {
            earlier.abort();
        }
        false
    }

    fn give_back(&self, key: &ObjectKey) {
        let turn = self.0.turns.lock().by_key.remove(key);
        if let Some(turn) = turn {
            turn.abort();
        }
    }
}

impl fmt::Debug for RateLimitTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.turns.lock().by_key.keys()).finish()
    }
}

#[cfg(test)]
mod tests;
