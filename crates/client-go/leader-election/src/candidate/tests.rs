//! Rules of US-1.6, with a Lease in memory.

mod acquire;

use kcm_api::error::reason;
use serde_json::json;

use super::*;
use crate::{LeaseLock, MemoryLock};

/// Lease, clocks, and the requests of the last attempt.
struct World {
    lock: MemoryLock,
    now: Now,
    asked: Vec<&'static str>,
}

impl World {
    fn new() -> Self {
        let wall = "2026-01-02T03:04:05.678901Z".parse().unwrap();
        Self {
            lock: MemoryLock::new(),
            now: Now { wall, monotonic: Duration::from_secs(100) },
            asked: vec![],
        }
    }

    /// A Lease with a holder whose clocks differ.
    fn held_by(holder: &str) -> Self {
        let world = Self::new();
        world.store(json!({
            "holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": "2020-01-01T00:00:00.000000Z",
            "renewTime": "2030-01-01T00:00:00.000000Z", "leaseTransitions": 4,
        }));
        world
    }

    fn store(&self, spec: serde_json::Value) {
        let spec = serde_json::from_value(spec).unwrap();
        if self.lock.lease().is_none() {
            let lease = Lease::new(&key());
            ready(self.lock.create(&lease)).unwrap();
        }
        self.lock.edit(|lease| lease.spec = spec);
    }

    fn spec(&self) -> serde_json::Value {
        serde_json::to_value(self.lock.lease().unwrap().spec).unwrap()
    }

    fn wait(&mut self, millis: u64) {
        let by = Duration::from_millis(millis);
        self.now.wall = self.now.wall.checked_add(by).unwrap();
        self.now.monotonic += by;
    }

    fn send(&mut self, request: &LeaseRequest) -> Result<Lease, ApiError> {
        match request {
            LeaseRequest::Get => {
                self.asked.push("get");
                ready(self.lock.get(&key()))
            }
            LeaseRequest::Create(lease) => {
                self.asked.push("create");
                ready(self.lock.create(lease))
            }
            LeaseRequest::Update(lease) => {
                self.asked.push("update");
                ready(self.lock.update(lease))
            }
        }
    }

    fn finish(&mut self, candidate: &mut Candidate, mut attempt: Attempt) -> AttemptResult {
        loop {
            let answer = self.send(attempt.request());
            match candidate.handle_response(attempt, answer, self.now) {
                NextStep::Send(next) => attempt = *next,
                NextStep::Done(result) => return result,
            }
        }
    }

    fn try_once(&mut self, candidate: &mut Candidate) -> AttemptResult {
        self.asked.clear();
        let attempt = candidate.try_acquire_or_renew(self.now);
        self.finish(candidate, attempt)
    }

    fn release(&mut self, candidate: &mut Candidate) -> AttemptResult {
        self.asked.clear();
        let attempt = candidate.release(self.now);
        self.finish(candidate, attempt)
    }

    fn leading_now(&self) -> AttemptResult {
        AttemptResult::Leading { since: self.now.monotonic }
    }
}

/// Polls a future of a [`MemoryLock`], which is always ready.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("pending"),
    }
}

fn key() -> ObjectKey {
    ObjectKey::new("kube-system", "kube-controller-manager")
}

fn candidate(identity: &str) -> Candidate {
    Candidate::new(key(), identity.to_owned(), 15)
}

fn held_by(holder: &str) -> AttemptResult {
    AttemptResult::HeldBy(holder.to_owned())
}

fn reports_shared_identity(candidate: &mut Candidate) -> bool {
    candidate.take_notices().iter().any(|notice| matches!(notice, AttemptNotice::IdentityShared(_)))
}

mod renew {
    use super::*;

    #[test]
    fn changes_only_the_renew_time() {
        let (mut world, mut me) = (World::new(), candidate("me"));
        world.try_once(&mut me);
        for _ in 0..3 {
            world.wait(2_000);
            assert_eq!(world.try_once(&mut me), world.leading_now());
            assert_eq!(world.asked, ["update"]);
        }
        assert_eq!(
            world.spec(),
            json!({
                "holderIdentity": "me", "leaseDurationSeconds": 15, "acquireTime": "2026-01-02T03:04:05.678901Z",
                "renewTime": "2026-01-02T03:04:11.678901Z", "leaseTransitions": 0,
            })
        );
        assert!(me.take_notices().is_empty());
    }

    #[test]
    fn reads_first_after_expiry() {
        let (mut world, mut me) = (World::new(), candidate("me"));
        world.try_once(&mut me);
        world.wait(14_999);
        world.try_once(&mut me);
        assert_eq!(world.asked, ["update"]);
        world.wait(15_000);
        assert_eq!(world.try_once(&mut me), world.leading_now());
        assert_eq!(world.asked, ["get", "update"]);
        assert!(matches!(*me.take_notices(), [AttemptNotice::SlowPath]));
        assert_eq!(world.spec()["leaseTransitions"], 0, "it was its own all the time");
    }

    #[test]
    fn retries_after_conflict() {
        let (mut world, mut me) = (World::new(), candidate("me"));
        world.try_once(&mut me);
        world.lock.edit(|lease| _ = lease.metadata.annotations.insert("by".to_owned(), "hand".to_owned()));
        world.wait(2_000);
        assert_eq!(world.try_once(&mut me), world.leading_now());
        assert_eq!(world.asked, ["update", "get", "update"]);
        assert_eq!(world.spec()["acquireTime"], "2026-01-02T03:04:05.678901Z");
        assert_eq!(world.spec()["renewTime"], "2026-01-02T03:04:07.678902Z", "no two writes are the same");
        assert_eq!(world.lock.lease().unwrap().metadata.annotations["by"], "hand");
        let notices = me.take_notices();
        assert!(
            matches!(&*notices, [AttemptNotice::OptimisticUpdateFailed(e), AttemptNotice::SlowPath] if e.is_conflict()),
            "{notices:?}"
        );
    }

    #[test]
    fn creates_deleted_lease() {
        let (mut world, mut me) = (World::new(), candidate("me"));
        world.try_once(&mut me);
        world.lock.delete();
        world.wait(2_000);
        assert_eq!(world.try_once(&mut me), world.leading_now());
        assert_eq!(world.asked, ["update", "get", "create"]);
        assert_eq!(world.spec()["leaseTransitions"], 0);
    }

    #[test]
    fn leadership_starts_when_the_write_is_sent() {
        let (mut world, mut me) = (World::new(), candidate("me"));
        let get = me.try_acquire_or_renew(world.now);
        let read = world.send(get.request());
        world.wait(3_000);
        let sent = world.now.monotonic;
        let NextStep::Send(create) = me.handle_response(get, read, world.now) else { panic!("no create") };
        let created = world.send(create.request());
        world.wait(4_000);
        let step = me.handle_response(*create, created, world.now);
        assert!(
            matches!(step, NextStep::Done(AttemptResult::Leading { since }) if since == sent),
            "{step:?}"
        );
        assert_eq!(world.spec()["renewTime"], "2026-01-02T03:04:08.678901Z");
        assert_eq!(me.observed_at(), world.now.monotonic);
    }

    #[test]
    fn write_after_lost_response_is_a_renewal() {
        let (mut world, mut me, mut other) = (World::new(), candidate("me"), candidate("other"));
        world.try_once(&mut me);
        world.wait(2_000);
        let update = me.try_acquire_or_renew(world.now);
        world.send(update.request()).unwrap();
        world.wait(1_000);
        assert_eq!(world.try_once(&mut other), held_by("me"));
        world.wait(4_000);
        let lost = ApiError::Timeout("update".to_owned());
        let NextStep::Send(get) = me.handle_response(update, Err(lost), world.now) else { panic!("no read") };
        assert_eq!(world.finish(&mut me, *get), world.leading_now());
        assert_eq!(world.try_once(&mut other), held_by("me"));
        assert_eq!(other.observed_at(), world.now.monotonic, "counted anew");
    }

    #[test]
    fn times_differ_if_the_wall_clock_stops() {
        let (mut world, mut me) = (World::new(), candidate("me"));
        let wall = world.now.wall;
        let mut seen = Vec::new();
        for _ in 0..3 {
            world.try_once(&mut me);
            seen.push(world.spec()["renewTime"].as_str().unwrap().to_owned());
            world.wait(2_000);
            world.now.wall = wall;
        }
        let expected =
            ["2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:07.678901Z", "2026-01-02T03:04:09.678901Z"];
        assert_eq!(seen, expected);
    }

    #[test]
    fn times_differ_if_the_wall_clock_is_set_back() {
        let (mut world, mut me) = (World::new(), candidate("me"));
        let mut seen = Vec::new();
        for wall in ["03:04:05.6", "03:04:05.7", "03:04:07.7", "02:00:00.0", "04:00:00.0"] {
            world.now.wall = format!("2026-01-02T{wall}Z").parse().unwrap();
            world.try_once(&mut me);
            seen.push(world.spec()["renewTime"].as_str().unwrap()[11..21].to_owned());
            world.now.monotonic += Duration::from_secs(2);
        }
        assert_eq!(seen, ["03:04:05.6", "03:04:07.6", "03:04:09.6", "02:00:00.0", "04:00:00.0"]);
    }
}

mod identity {
    use super::*;

    #[test]
    fn own_write_with_lost_response_is_recognised() {
        let (mut world, mut me) = (World::held_by(""), candidate("me").with_unique_identity(true));
        let get = me.try_acquire_or_renew(world.now);
        let read = world.send(get.request());
        let NextStep::Send(update) = me.handle_response(get, read, world.now) else { panic!("no update") };
        world.send(update.request()).unwrap();
        let lost = ApiError::Timeout("update".to_owned());
        assert!(matches!(
            me.handle_response(*update, Err(lost), world.now),
            NextStep::Done(AttemptResult::Failed)
        ));
        me.take_notices();
        assert!(!me.is_holder() && me.may_be_holder());
        world.wait(2_000);
        assert_eq!(world.try_once(&mut me), world.leading_now());
        assert_eq!(world.asked, ["get", "update"]);
        assert!(matches!(*me.take_notices(), [AttemptNotice::SlowPath]));
        assert_eq!(world.spec()["leaseTransitions"], 5, "it was got once");
    }

    #[test]
    fn lease_of_previous_process_is_acquired_and_reported() {
        let (mut world, mut me) = (World::held_by("me"), candidate("me"));
        assert_eq!(world.try_once(&mut me), world.leading_now());
        assert_eq!(world.spec()["leaseTransitions"], 4);
        assert!(reports_shared_identity(&mut me));
    }

    #[test]
    fn shared_identity_leads_twice_and_is_reported() {
        let (mut world, mut one, mut two) = (World::new(), candidate("twin"), candidate("twin"));
        world.try_once(&mut one);
        world.wait(1_000);
        assert_eq!(world.try_once(&mut two), world.leading_now());
        assert!(reports_shared_identity(&mut two));
        world.wait(1_000);
        assert_eq!(world.try_once(&mut one), world.leading_now());
        assert!(reports_shared_identity(&mut one));
    }

    #[test]
    fn unique_identity_leads_once() {
        let twin = || candidate("twin").with_unique_identity(true);
        let (mut world, mut one, mut two) = (World::new(), twin(), twin());
        world.try_once(&mut one);
        for _ in 0..20 {
            world.wait(2_000);
            assert_eq!(world.try_once(&mut one), world.leading_now());
            assert_eq!(world.try_once(&mut two), held_by("twin"));
        }
        assert!(!reports_shared_identity(&mut one) && reports_shared_identity(&mut two));
        world.wait(15_000);
        assert_eq!(world.try_once(&mut two), world.leading_now());
        assert_eq!(world.try_once(&mut one), held_by("twin"), "what it finds is not its own");
    }

    #[test]
    fn record_of_restored_backup_is_not_own() {
        let (mut world, mut me) = (World::new(), candidate("me"));
        let others = json!({"holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 1});
        world.store(others.clone());
        world.try_once(&mut me);
        world.wait(15_000);
        assert_eq!(world.try_once(&mut me), world.leading_now());
        world.store(others);
        world.wait(2_000);
        assert_eq!(world.try_once(&mut me), held_by("other"));
        assert_eq!(world.asked, ["update", "get"]);
    }

    #[test]
    fn older_renewal_of_restored_backup_is_own() {
        let (mut world, mut me) = (World::held_by(""), candidate("me").with_unique_identity(true));
        world.try_once(&mut me);
        world.wait(2_000);
        world.try_once(&mut me);
        let backup = world.spec();
        for _ in 0..2 * REMEMBERED_WRITES {
            world.wait(2_000);
            world.try_once(&mut me);
        }
        world.store(backup);
        world.wait(2_000);
        assert_eq!(world.try_once(&mut me), world.leading_now());
        assert!(!reports_shared_identity(&mut me));
    }
}

mod restore {
    use super::*;

    fn restores(me: &mut Candidate) -> usize {
        let is_restored = |notice: &&AttemptNotice| matches!(notice, AttemptNotice::Restored { .. });
        me.take_notices().iter().filter(is_restored).count()
    }

    /// Starts a renewal whose first write fails. Returns the read that follows.
    fn failed_renewal(world: &World, me: &mut Candidate) -> Attempt {
        let renewal = me.try_acquire_or_renew(world.now);
        let timeout = Err(ApiError::Timeout("update lease".to_owned()));
        match me.handle_response(renewal, timeout, world.now) {
            NextStep::Send(read) => *read,
            NextStep::Done(result) => panic!("{result:?}"),
        }
    }

    #[test]
    fn lower_version_is_reported_once() {
        let (mut world, mut me) = (World::held_by(""), candidate("me"));
        world.try_once(&mut me);
        let backup = me.lease().unwrap().clone();
        world.wait(2_000);
        world.try_once(&mut me);
        world.wait(2_000);
        let current = me.lease().unwrap().clone();
        for (read, expected) in [(current, 0), (backup.clone(), 1), (backup, 0)] {
            let get = failed_renewal(&world, &mut me);
            me.handle_response(get, Ok(read), world.now);
            assert_eq!(restores(&mut me), expected);
        }
    }

    /// The backup is older than the Lease, which is created again.
    #[test]
    fn backup_has_no_lease() {
        for (version, expected) in [("2", 1), ("200", 0)] {
            let (mut world, mut me) = (World::new(), candidate("me"));
            world.try_once(&mut me);
            let mut lease = me.lease().unwrap().clone();
            lease.metadata.resource_version = "100".to_owned();
            world.wait(2_000);
            let renewal = me.try_acquire_or_renew(world.now);
            me.handle_response(renewal, Ok(lease.clone()), world.now);
            world.wait(2_000);
            let get = failed_renewal(&world, &mut me);
            let not_found = Err(ApiError::status(404, reason::NOT_FOUND, "no Lease"));
            let NextStep::Send(create) = me.handle_response(get, not_found, world.now) else {
                panic!("the Lease is not created")
            };
            assert_eq!(restores(&mut me), 0);
            lease.metadata.resource_version = version.to_owned();
            me.handle_response(*create, Ok(lease), world.now);
            assert_eq!(restores(&mut me), expected, "{version}");
        }
    }
}

mod release {
    use super::*;

    #[test]
    fn clears_holder_and_keeps_transitions() {
        let (mut world, mut me) = (World::new(), candidate("me"));
        world.store(json!({"leaseTransitions": 2}));
        world.try_once(&mut me);
        world.wait(5_000);
        assert_eq!(world.release(&mut me), AttemptResult::Released);
        assert_eq!(world.asked, ["get", "update"]);
        assert_eq!(
            world.spec(),
            json!({
                "holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": "2026-01-02T03:04:10.678901Z",
                "renewTime": "2026-01-02T03:04:10.678901Z", "leaseTransitions": 3,
            })
        );
        assert!(!me.is_holder() && !me.may_be_holder());
        assert_eq!(world.release(&mut me), AttemptResult::NothingToRelease);
    }

    #[test]
    fn does_not_release_lease_of_another() {
        let (mut world, mut me) = (World::held_by("other"), candidate("me"));
        assert_eq!(world.release(&mut me), AttemptResult::NothingToRelease);
        assert_eq!(world.asked, ["get"]);
        world.wait(15_000);
        world.try_once(&mut me);
        world.wait(15_000);
        world.try_once(&mut me);
        // Taken over in between, which it has not seen.
        world.lock.edit(|lease| lease.spec.holder_identity = Some("other".to_owned()));
        assert!(me.is_holder());
        assert_eq!(world.release(&mut me), AttemptResult::NothingToRelease);
        assert_eq!(world.spec()["holderIdentity"], "other");
        world.lock.delete();
        assert_eq!(world.release(&mut me), AttemptResult::NothingToRelease);
    }

    #[test]
    fn can_be_repeated_after_conflict() {
        let (mut world, mut me) = (World::new(), candidate("me"));
        world.try_once(&mut me);
        let get = me.release(world.now);
        let read = world.send(get.request());
        let NextStep::Send(release) = me.handle_response(get, read, world.now) else { panic!("no update") };
        world.lock.edit(|lease| _ = lease.metadata.labels.insert("a".to_owned(), "b".to_owned()));
        let refused = world.send(release.request());
        assert!(matches!(
            me.handle_response(*release, refused, world.now),
            NextStep::Done(AttemptResult::ReleaseConflict)
        ));
        assert_eq!(world.release(&mut me), AttemptResult::Released);
    }
}
