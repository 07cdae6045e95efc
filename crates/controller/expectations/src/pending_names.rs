//! Names of objects that were requested and whose creation is not confirmed.
//!
//! A request to create an object can fail and still take effect: the response is lost, or the API server executes the
//! request after the connection broke. The controller chooses the name of each object, so that the request can be
//! repeated: the API server creates at most one object of a name. The results of the requests for a name decide:
//!
//! ```text
//!  name generated ──► requested ──► 201, or 409 and the object is ours ──► created
//!                      │  ▲  ├────► in the cache ────────────────────────► created
//!                      │  │  ├────► 409 and the object is not ours ──────► dropped
//!                      │  │  └────► refused, as all requests before ─────► dropped
//!                      ▼  │
//!                     pending ────► no object has the name, and no ──────► dropped
//!                                   request can take effect any more
//! ```
//!
//! A refusal is definite if the API server has not executed the request: 4xx except 408, 409 and 429, or not sent. After
//! any other failure the name is pending: each sync that creates objects repeats it, beside new names, for [`REPEAT_FOR`].
//! [`EXECUTION_LIMIT`] after the last such failure, a consistent read decides whether the name is dropped. Until then, an
//! object with a pending name counts as one of the missing ones.
//!
//! A sync requests at most the missing objects. A request that is executed late creates a surplus object in four cases: the
//! owner was scaled down, the object of that name was created by a repetition and deleted again, the request was executed
//! after [`EXECUTION_LIMIT`], or the controller has restarted, because names are not persisted.
//!
//! DEVIATION: upstream lets the API server choose the name. It treats a request without a response as failed, and
//! relies on the watch being faster than the retry.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use kcm_meta::ObjectKey;
use parking_lot::Mutex;

/// Time after the failure of a request after which no API server executes the request.
///
/// By default, an API server ends a request 60 s after its arrival (`--request-timeout`): its wait in a queue, admission
/// webhooks, and storage. The rest is for requests on the way, and for etcd, which drops a write after 7 s.
const EXECUTION_LIMIT: Duration = Duration::from_secs(75);

/// Time for which a name is repeated after the first failure.
///
/// By then, the back-off of a key that no event enqueues is longer than [`EXECUTION_LIMIT`], even if each request takes the
/// 34 s that an API server gives a creation: the next sync looks the object up at once.
const REPEAT_FOR: Duration = Duration::from_secs(600);

/// Pending names by owner. Empty unless requests are in flight or have failed.
#[derive(Debug, Default)]
pub struct PendingNames(Mutex<HashMap<ObjectKey, Pending>>);

#[derive(Debug)]
struct Pending {
    owner_uid: Arc<str>,
    names: BTreeMap<Arc<str>, Attempts>,
    /// Number of requests so far.
    requests: u64,
}

/// Requests for a name that may have taken effect, or may take effect later.
#[derive(Debug, Clone)]
pub struct Attempts {
    /// Monotonic time of the first failure.
    first: Duration,
    /// Monotonic time of the last failure.
    last: Duration,
    /// Position of the last request among those of the owner.
    position: u64,
    /// Message of the last failure. `None` if the request is in flight, or its sync was dropped.
    pub error: Option<Arc<str>>,
}

/// Treatment of a pending name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// The request is repeated.
    Repeat,
    /// A request may still be executed: the name is neither repeated nor dropped.
    Wait,
    /// No request can be executed any more: the name is dropped if the API server has no such object.
    LookUp,
}

impl Attempts {
    /// Returns the treatment of the name at the monotonic time `now`.
    pub fn next_step(&self, now: Duration) -> NextStep {
        if self.wait(now).is_zero() {
            NextStep::LookUp
        } else if now.saturating_sub(self.first) >= REPEAT_FOR {
            NextStep::Wait
        } else {
            NextStep::Repeat
        }
    }

    /// Returns the time until no request can be executed any more.
    pub fn wait(&self, now: Duration) -> Duration {
        self.last.saturating_add(EXECUTION_LIMIT).saturating_sub(now)
    }
}

impl PendingNames {
    /// Adds a name whose request is about to be sent, or records the repetition. Returns the earlier attempts.
    ///
    /// Until the result is recorded, the request counts as one that may have taken effect. Names of an earlier owner with
    /// the same key are dropped.
    pub fn requested(
        &self,
        owner: &ObjectKey,
        owner_uid: &Arc<str>,
        name: &Arc<str>,
        now: Duration,
    ) -> Option<Attempts> {
        let mut owners = self.0.lock();
        let fresh = || Pending { owner_uid: Arc::clone(owner_uid), names: BTreeMap::new(), requests: 0 };
        let pending = owners.entry(owner.clone()).or_insert_with(fresh);
        if pending.owner_uid != *owner_uid {
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
    /// `unresolved` is the message of the failure, if the request may have taken effect or may take effect later. After a
    /// definite refusal it is `None`: the name is as before the request, and dropped if there was no other one.
    pub fn failed(
        &self,
        owner: &ObjectKey,
        name: &str,
        earlier: Option<Attempts>,
        unresolved: Option<Arc<str>>,
        now: Duration,
    ) {
        self.change(owner, |names| {
            let Some(attempts) = names.get_mut(name) else { return };
            if unresolved.is_some() {
                (attempts.last, attempts.error) = (now, unresolved);
            } else if let Some(earlier) = earlier {
                *attempts = Attempts { position: attempts.position, ..earlier };
            } else {
                names.remove(name);
            }
        });
    }

    /// Returns `true` if no name is pending.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Removes a name: its object exists, or the name belongs to another object.
    pub fn remove(&self, owner: &ObjectKey, name: &str) {
        self.change(owner, |names| {
            names.remove(name);
        });
    }

    /// Keeps the names for which `keep` returns `true`.
    pub fn retain(&self, owner: &ObjectKey, keep: impl Fn(&Arc<str>) -> bool) {
        self.change(owner, |names| names.retain(|name, _| keep(name)));
    }

    fn change(&self, owner: &ObjectKey, change: impl FnOnce(&mut BTreeMap<Arc<str>, Attempts>)) {
        let mut owners = self.0.lock();
        if let Some(pending) = owners.get_mut(owner) {
            change(&mut pending.names);
            if pending.names.is_empty() {
                owners.remove(owner);
            }
        }
    }

    /// Returns the pending names of `owner`, the least recently requested one first.
    ///
    /// A name that is always refused therefore does not prevent the repetition of the others.
    pub fn pending(&self, owner: &ObjectKey, owner_uid: &str) -> Vec<(Arc<str>, Attempts)> {
        let owners = self.0.lock();
        let pending = owners.get(owner).filter(|pending| *pending.owner_uid == *owner_uid);
        let names = pending.into_iter().flat_map(|pending| &pending.names);
        let mut names: Vec<_> = names.map(|(name, attempts)| (Arc::clone(name), attempts.clone())).collect();
        names.sort_by_key(|(_, attempts)| attempts.position);
        names
    }

    /// Removes the names of `owner`. If `owner_uid` is given, only those of that UID.
    pub fn clear(&self, owner: &ObjectKey, owner_uid: Option<&str>) {
        if let Entry::Occupied(entry) = self.0.lock().entry(owner.clone())
            && owner_uid.is_none_or(|uid| *entry.get().owner_uid == *uid)
        {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> ObjectKey {
        ObjectKey::new("default", "web")
    }

    /// Sends a request for the owner with UID `1`.
    fn requested(pending: &PendingNames, name: &str, sent: u64) -> Option<Attempts> {
        pending.requested(&owner(), &"1".into(), &name.into(), seconds(sent))
    }

    fn names(pending: &PendingNames, uid: &str) -> Vec<String> {
        pending.pending(&owner(), uid).iter().map(|(name, _)| name.to_string()).collect()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn lost() -> Option<Arc<str>> {
        Some("connection broken".into())
    }

    /// A request at `sent` that fails a second later.
    fn request(pending: &PendingNames, name: &str, sent: u64, unresolved: Option<Arc<str>>) {
        let earlier = requested(pending, name, sent);
        pending.failed(&owner(), name, earlier, unresolved, seconds(sent + 1));
    }

    fn next_step(pending: &PendingNames, now: u64) -> Option<NextStep> {
        pending.pending(&owner(), "1").first().map(|(_, attempts)| attempts.next_step(seconds(now)))
    }

    #[test]
    fn name_is_pending_until_it_is_removed() {
        let pending = PendingNames::default();
        for name in ["b", "a", "c", "a"] {
            requested(&pending, name, 0);
        }
        assert_eq!(names(&pending, "1"), ["b", "c", "a"], "the last requested one is the last");
        pending.remove(&owner(), "b");
        pending.retain(&owner(), |name| **name != *"c");
        assert_eq!(names(&pending, "1"), ["a"]);
        pending.retain(&owner(), |name| **name != *"a");
        assert!(pending.is_empty());
    }

    #[test]
    fn names_belong_to_one_owner_of_a_key() {
        let pending = PendingNames::default();
        requested(&pending, "a", 0);
        assert!(names(&pending, "2").is_empty());
        pending.requested(&owner(), &"2".into(), &"b".into(), seconds(0));
        assert!(names(&pending, "1").is_empty());
        assert_eq!(names(&pending, "2"), ["b"]);
        pending.clear(&owner(), Some("1"));
        assert_eq!(names(&pending, "2"), ["b"]);
        pending.clear(&owner(), Some("2"));
        assert!(pending.is_empty());
    }

    #[test]
    fn name_that_was_only_refused_is_dropped() {
        let pending = PendingNames::default();
        request(&pending, "a", 0, None);
        assert!(pending.is_empty());
    }

    #[test]
    fn name_is_looked_up_after_the_last_request_that_may_have_taken_effect() {
        let pending = PendingNames::default();
        request(&pending, "a", 0, lost());
        request(&pending, "a", 9, lost());
        // Refusals change nothing.
        request(&pending, "a", 40, None);
        assert_eq!(next_step(&pending, 84), Some(NextStep::Repeat));
        assert_eq!(next_step(&pending, 85), Some(NextStep::LookUp));
    }

    #[test]
    fn name_is_not_repeated_for_ever() {
        let pending = PendingNames::default();
        for sent in (0..600).step_by(20) {
            request(&pending, "a", sent, lost());
        }
        assert_eq!(next_step(&pending, 599), Some(NextStep::Repeat));
        assert_eq!(next_step(&pending, 600), Some(NextStep::Wait));
        assert_eq!(next_step(&pending, 655), Some(NextStep::Wait));
        assert_eq!(next_step(&pending, 656), Some(NextStep::LookUp));
    }

    /// The sync was dropped while the request was in flight.
    #[test]
    fn request_without_a_result_may_have_taken_effect() {
        let pending = PendingNames::default();
        request(&pending, "a", 0, lost());
        requested(&pending, "a", 50);
        assert_eq!(next_step(&pending, 100), Some(NextStep::Repeat));
    }
}
