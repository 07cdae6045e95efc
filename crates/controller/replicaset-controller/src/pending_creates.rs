//! Names of pods that were requested and whose creation is not confirmed.
//!
//! A request to create a pod can fail and still take effect: the response is lost, or the API server executes the
//! request after the connection broke. The controller chooses the name of each pod, so that the request can be
//! repeated: the API server creates at most one pod of a name. The results of the requests for a name decide:
//!
//! ```text
//!  name generated ──► requested ──► 201, or 409 and the pod is ours ──► created
//!                      │  ▲  ├────► in the cache ─────────────────────► created
//!                      │  │  ├────► 409 and the pod is not ours ──────► dropped
//!                      │  │  └────► refused, as all requests before ──► dropped
//!                      ▼  │
//!                     pending ────► no pod has the name, and no ──────► dropped
//!                                   request can take effect any more
//! ```
//!
//! A refusal is definite if the API server has not executed the request: 4xx except 408, 409 and 429, or not sent. After
//! any other failure the name is pending: each sync that creates pods repeats it, beside new names, for [`REPEAT_FOR`].
//! [`EXECUTION_LIMIT`] after the last such failure, a consistent read decides whether the name is dropped. Until then, a
//! pod with a pending name counts as one of the missing pods.
//!
//! A sync requests at most the missing pods. A request that is executed late creates a surplus pod in four cases: the
//! ReplicaSet was scaled down, the pod of that name was created by a repetition and deleted again, the request was
//! executed after [`EXECUTION_LIMIT`], or the manager has restarted, because names are not persisted. The surplus pod is
//! deleted when the watch reports it.
//!
//! DEVIATION: upstream lets the API server choose the name. It treats a request without a response as failed, and
//! relies on the watch being faster than the retry.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use kcm_api::{ApiError, ObjectKey};
use kcm_controller_ref_manager::OwnerIdentity;
use parking_lot::Mutex;

/// Time after the failure of a request after which no API server executes the request.
///
/// By default, an API server ends a request 60 s after its arrival (`--request-timeout`): its wait in a queue, admission
/// webhooks, and storage. The rest is for requests on the way, and for etcd, which drops a write after 7 s.
const EXECUTION_LIMIT: Duration = Duration::from_secs(75);

/// Time for which a name is repeated after the first failure.
///
/// By then, the back-off of a key that no event enqueues is longer than [`EXECUTION_LIMIT`], even if each request takes the
/// 34 s that an API server gives a creation: the next sync looks the pod up at once.
const REPEAT_FOR: Duration = Duration::from_secs(600);

/// Pending names by owner. Empty unless requests are in flight or have failed.
#[derive(Debug, Default)]
pub(crate) struct PendingCreates(Mutex<HashMap<ObjectKey, Pending>>);

#[derive(Debug)]
struct Pending {
    owner_uid: Arc<str>,
    names: BTreeMap<Arc<str>, Attempts>,
    /// Number of requests so far.
    requests: u64,
}

/// Requests for a name that may have taken effect, or may take effect later.
#[derive(Debug, Clone)]
pub(crate) struct Attempts {
    /// Monotonic time of the first failure.
    first: Duration,
    /// Monotonic time of the last failure.
    last: Duration,
    /// Position of the last request among those of the owner.
    position: u64,
    /// Last failure. `None` if the request is in flight, or its sync was dropped.
    pub(crate) error: Option<ApiError>,
}

/// Treatment of a pending name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// The request is repeated.
    Repeat,
    /// A request may still be executed: the name is neither repeated nor dropped.
    Wait,
    /// No request can be executed any more: the name is dropped if the API server has no such pod.
    LookUp,
}

impl Attempts {
    pub(crate) fn next_step(&self, now: Duration) -> NextStep {
        if self.wait(now).is_zero() {
            NextStep::LookUp
        } else if now.saturating_sub(self.first) >= REPEAT_FOR {
            NextStep::Wait
        } else {
            NextStep::Repeat
        }
    }

    /// Time until no request can be executed any more.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        self.last.saturating_add(EXECUTION_LIMIT).saturating_sub(now)
    }
}

impl PendingCreates {
    /// Adds a name whose request is about to be sent, or records the repetition. Returns the earlier attempts.
    ///
    /// Until the result is recorded, the request counts as one that may have taken effect. Names of an earlier owner with
    /// the same key are dropped.
    pub(crate) fn requested(
        &self,
        owner: &OwnerIdentity,
        name: &Arc<str>,
        now: Duration,
    ) -> Option<Attempts> {
        let mut owners = self.0.lock();
        let fresh = || Pending { owner_uid: Arc::clone(&owner.uid), names: BTreeMap::new(), requests: 0 };
        let pending = owners.entry(owner.key()).or_insert_with(fresh);
        if pending.owner_uid != owner.uid {
            *pending = fresh();
        }
        pending.requests += 1;
        let position = pending.requests;
        let earlier = pending.names.get(name).cloned();
        let first = earlier.as_ref().map_or(now, |earlier| earlier.first);
        pending.names.insert(Arc::clone(name), Attempts { first, last: now, position, error: None });
        earlier
    }

    /// Records that the last request for a name failed at `now`. `earlier` are the attempts before it.
    ///
    /// If the request has not taken effect and never will, the name is as before: dropped if there was no other request.
    pub(crate) fn failed(
        &self,
        owner: &OwnerIdentity,
        name: &str,
        earlier: Option<Attempts>,
        error: &ApiError,
        now: Duration,
    ) {
        self.change(owner, |names| {
            let Some(attempts) = names.get_mut(name) else { return };
            let is_taken = error.is_already_exists() && !error.may_have_taken_effect();
            if !is_taken && !error.is_definite_refusal() {
                (attempts.last, attempts.error) = (now, Some(error.clone()));
            } else if let Some(earlier) = earlier {
                *attempts = Attempts { position: attempts.position, ..earlier };
            } else {
                names.remove(name);
            }
        });
    }

    /// Removes a name: its pod exists, or the name belongs to another pod.
    pub(crate) fn remove(&self, owner: &OwnerIdentity, name: &str) {
        self.change(owner, |names| {
            names.remove(name);
        });
    }

    /// Keeps the names for which `keep` returns `true`.
    pub(crate) fn retain(&self, owner: &OwnerIdentity, keep: impl Fn(&str) -> bool) {
        self.change(owner, |names| names.retain(|name, _| keep(name)));
    }

    fn change(&self, owner: &OwnerIdentity, change: impl FnOnce(&mut BTreeMap<Arc<str>, Attempts>)) {
        let mut owners = self.0.lock();
        if owners.is_empty() {
            return;
        }
        let key = owner.key();
        if let Some(pending) = owners.get_mut(&key) {
            change(&mut pending.names);
            if pending.names.is_empty() || pending.owner_uid != owner.uid {
                owners.remove(&key);
            }
        }
    }

    /// Returns the pending names of `owner`, the least recently requested one first.
    ///
    /// A name that is always refused therefore does not prevent the repetition of the others.
    pub(crate) fn names(&self, owner: &OwnerIdentity) -> Vec<(Arc<str>, Attempts)> {
        let owners = self.0.lock();
        let pending = owners.get(&owner.key()).filter(|pending| pending.owner_uid == owner.uid);
        let names = pending.into_iter().flat_map(|pending| &pending.names);
        let mut names: Vec<_> = names.map(|(name, attempts)| (Arc::clone(name), attempts.clone())).collect();
        names.sort_by_key(|(_, attempts)| attempts.position);
        names
    }

    /// Removes all names of an owner that was deleted.
    pub(crate) fn clear(&self, owner: &ObjectKey) {
        self.0.lock().remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use kcm_api::error::reason;

    use super::*;
    use crate::testing::replica_set;

    fn owner(uid: &str) -> OwnerIdentity {
        let mut metadata = replica_set("web", 1).metadata;
        metadata.uid = uid.into();
        OwnerIdentity::new("apps/v1", "ReplicaSet", &metadata)
    }

    fn names(pending: &PendingCreates, uid: &str) -> Vec<String> {
        pending.names(&owner(uid)).iter().map(|(name, _)| name.to_string()).collect()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn refused() -> ApiError {
        ApiError::status(403, reason::FORBIDDEN, "no")
    }

    fn lost() -> ApiError {
        ApiError::Transport("connection broken".to_owned())
    }

    /// A request at `sent` that fails with `error` a second later.
    fn request(pending: &PendingCreates, name: &str, sent: u64, error: &ApiError) {
        let earlier = pending.requested(&owner("1"), &name.into(), seconds(sent));
        pending.failed(&owner("1"), name, earlier, error, seconds(sent + 1));
    }

    fn next_step(pending: &PendingCreates, now: u64) -> Option<NextStep> {
        pending.names(&owner("1")).first().map(|(_, attempts)| attempts.next_step(seconds(now)))
    }

    #[test]
    fn name_is_pending_until_it_is_removed() {
        let pending = PendingCreates::default();
        for name in ["b", "a", "c", "a"] {
            pending.requested(&owner("1"), &name.into(), seconds(0));
        }
        assert_eq!(names(&pending, "1"), ["b", "c", "a"], "the last requested one is the last");
        pending.remove(&owner("1"), "b");
        pending.retain(&owner("1"), |name| name != "c");
        assert_eq!(names(&pending, "1"), ["a"]);
        pending.retain(&owner("1"), |name| name != "a");
        assert!(pending.0.lock().is_empty());
    }

    #[test]
    fn names_belong_to_one_owner_of_a_key() {
        let pending = PendingCreates::default();
        pending.requested(&owner("1"), &"a".into(), seconds(0));
        assert!(names(&pending, "2").is_empty());
        pending.requested(&owner("2"), &"b".into(), seconds(0));
        assert!(names(&pending, "1").is_empty());
        assert_eq!(names(&pending, "2"), ["b"]);
        pending.clear(&owner("2").key());
        assert!(pending.0.lock().is_empty());
    }

    #[test]
    fn name_that_was_only_refused_is_dropped() {
        let pending = PendingCreates::default();
        request(&pending, "a", 0, &refused());
        assert!(pending.0.lock().is_empty());
    }

    #[test]
    fn name_is_looked_up_after_the_last_request_that_may_have_taken_effect() {
        let pending = PendingCreates::default();
        request(&pending, "a", 0, &lost());
        request(&pending, "a", 9, &lost());
        // Refusals change nothing.
        request(&pending, "a", 40, &refused());
        assert_eq!(next_step(&pending, 84), Some(NextStep::Repeat));
        assert_eq!(next_step(&pending, 85), Some(NextStep::LookUp));
    }

    #[test]
    fn name_is_not_repeated_for_ever() {
        let pending = PendingCreates::default();
        for sent in (0..600).step_by(20) {
            request(&pending, "a", sent, &lost());
        }
        assert_eq!(next_step(&pending, 599), Some(NextStep::Repeat));
        assert_eq!(next_step(&pending, 600), Some(NextStep::Wait));
        assert_eq!(next_step(&pending, 655), Some(NextStep::Wait));
        assert_eq!(next_step(&pending, 656), Some(NextStep::LookUp));
    }

    /// The sync was dropped while the request was in flight.
    #[test]
    fn request_without_a_result_may_have_taken_effect() {
        let pending = PendingCreates::default();
        request(&pending, "a", 0, &lost());
        pending.requested(&owner("1"), &"a".into(), seconds(50));
        assert_eq!(next_step(&pending, 100), Some(NextStep::Repeat));
    }
}
