//! Each rule of US-1.6, one by one, against a Lease in memory.

use kcm_api::error::reason;
use serde_json::json;

use super::*;
use crate::{LeaseLock, MemoryLock};

/// The Lease, the time, and what was asked.
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

    /// A Lease that somebody holds, by clocks of its own.
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

    fn ask(&mut self, request: &Request) -> Result<Lease, ApiError> {
        match request {
            Request::Get => {
                self.asked.push("get");
                ready(self.lock.get(&key()))
            }
            Request::Create(lease) => {
                self.asked.push("create");
                ready(self.lock.create(lease))
            }
            Request::Update(lease) => {
                self.asked.push("update");
                ready(self.lock.update(lease))
            }
        }
    }

    fn finish(&mut self, candidate: &mut Candidate, mut attempt: Attempt) -> Verdict {
        loop {
            let answer = self.ask(attempt.request());
            match candidate.answer(attempt, answer, self.now) {
                Step::Ask(next) => attempt = *next,
                Step::Done(verdict) => return verdict,
            }
        }
    }

    fn try_once(&mut self, candidate: &mut Candidate) -> Verdict {
        self.asked.clear();
        let attempt = candidate.try_acquire_or_renew(self.now);
        self.finish(candidate, attempt)
    }

    fn release(&mut self, candidate: &mut Candidate) -> Verdict {
        self.asked.clear();
        let attempt = candidate.release(self.now);
        self.finish(candidate, attempt)
    }

    fn leading_now(&self) -> Verdict {
        Verdict::Leading { since: self.now.monotonic }
    }
}

/// What a lock in memory answers: it never waits.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("a lock in memory never waits"),
    }
}

fn key() -> ObjectKey {
    ObjectKey::new("kube-system", "kube-controller-manager")
}

fn candidate(identity: &str) -> Candidate {
    Candidate::new(key(), identity.to_owned(), 15)
}

fn held_by(holder: &str) -> Verdict {
    Verdict::HeldBy(holder.to_owned())
}

fn is_told_shared(candidate: &mut Candidate) -> bool {
    candidate.take_notes().iter().any(|note| matches!(note, Note::IdentityShared(_)))
}

#[test]
fn lease_that_is_not_there_is_created_without_transitions() {
    let (mut world, mut me) = (World::new(), candidate("me"));
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.asked, ["get", "create"]);
    let mut lease = world.lock.lease().unwrap();
    lease.metadata.resource_version = String::new();
    assert_eq!(
        serde_json::to_value(lease).unwrap(),
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
            "spec": {
                "holderIdentity": "me", "leaseDurationSeconds": 15, "acquireTime": "2026-01-02T03:04:05.678901Z",
                "renewTime": "2026-01-02T03:04:05.678901Z", "leaseTransitions": 0,
            },
        })
    );
    assert!(me.is_holder());
}

#[test]
fn leader_renews_by_one_write_that_moves_the_time_of_renewal_only() {
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
    assert!(me.take_notes().is_empty());
}

#[test]
fn leader_whose_record_has_run_out_looks_before_it_writes() {
    let (mut world, mut me) = (World::new(), candidate("me"));
    world.try_once(&mut me);
    world.wait(14_999);
    world.try_once(&mut me);
    assert_eq!(world.asked, ["update"]);
    world.wait(15_000);
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.asked, ["get", "update"]);
    assert!(matches!(*me.take_notes(), [Note::SlowPath]));
    assert_eq!(world.spec()["leaseTransitions"], 0, "it was its own all the time");
}

#[test]
fn leader_whose_write_conflicts_looks_and_writes_again() {
    let (mut world, mut me) = (World::new(), candidate("me"));
    world.try_once(&mut me);
    world.lock.edit(|lease| _ = lease.metadata.annotations.insert("by".to_owned(), "hand".to_owned()));
    world.wait(2_000);
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.asked, ["update", "get", "update"]);
    assert_eq!(world.spec()["acquireTime"], "2026-01-02T03:04:05.678901Z");
    assert_eq!(world.spec()["renewTime"], "2026-01-02T03:04:07.678902Z", "no two writes are the same");
    assert_eq!(world.lock.lease().unwrap().metadata.annotations["by"], "hand");
    let notes = me.take_notes();
    assert!(
        matches!(&*notes, [Note::OptimisticUpdateFailed(e), Note::SlowPath] if e.is_conflict()),
        "{notes:?}"
    );
}

#[test]
fn lease_of_another_is_respected_for_its_duration_from_when_it_was_first_seen() {
    let (mut world, mut me) = (World::held_by("other"), candidate("me"));
    assert_eq!(world.try_once(&mut me), held_by("other"));
    assert_eq!(me.runs_out_at(), Some(world.now.monotonic + Duration::from_secs(15)));
    world.wait(14_999);
    assert_eq!(world.try_once(&mut me), held_by("other"));
    assert_eq!(world.asked, ["get"]);
    world.wait(1);
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.asked, ["get", "update"]);
    assert_eq!(
        world.spec(),
        json!({
            "holderIdentity": "me", "leaseDurationSeconds": 15, "acquireTime": "2026-01-02T03:04:20.678901Z",
            "renewTime": "2026-01-02T03:04:20.678901Z", "leaseTransitions": 5,
        })
    );
    assert!(me.take_notes().is_empty(), "taking over is no slow path");
}

#[test]
fn lease_of_another_counts_anew_when_its_record_changes_and_only_then() {
    let (mut world, mut me) = (World::held_by("other"), candidate("me"));
    world.try_once(&mut me);
    world.wait(14_000);
    world.lock.edit(|lease| lease.spec.renew_time = Some("2030-01-01T00:00:00.000001Z".parse().unwrap()));
    assert_eq!(world.try_once(&mut me), held_by("other"));
    world.wait(14_000);
    world.lock.edit(|lease| _ = lease.metadata.labels.insert("a".to_owned(), "b".to_owned()));
    assert_eq!(world.try_once(&mut me), held_by("other"));
    world.wait(1_000);
    assert_eq!(world.try_once(&mut me), world.leading_now(), "a label is no renewal");
}

#[test]
fn lease_of_another_lasts_as_long_as_the_other_says() {
    let (mut world, mut me) = (World::held_by("other"), candidate("me"));
    world.lock.edit(|lease| lease.spec.lease_duration_seconds = Some(60));
    world.try_once(&mut me);
    world.wait(59_999);
    assert_eq!(world.try_once(&mut me), held_by("other"));
    world.wait(1);
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.spec()["leaseDurationSeconds"], 15);
}

#[test]
fn standby_is_not_moved_by_a_wall_clock_that_jumps() {
    let (mut world, mut me) = (World::held_by("other"), candidate("me"));
    world.try_once(&mut me);
    world.now.wall = "2099-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(world.try_once(&mut me), held_by("other"));
    world.now.wall = "1999-01-01T00:00:00Z".parse().unwrap();
    world.now.monotonic += Duration::from_secs(15);
    assert_eq!(world.try_once(&mut me), world.leading_now());
}

#[test]
fn lease_that_was_given_back_is_taken_at_once_and_counts_as_a_transition() {
    let (mut world, mut me) = (World::held_by(""), candidate("me"));
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.spec()["leaseTransitions"], 5);
}

#[test]
fn lease_without_a_record_is_taken_at_once() {
    let (mut world, mut me) = (World::new(), candidate("me"));
    world.store(json!({}));
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.spec()["leaseTransitions"], 1);
}

#[test]
fn lease_with_numbers_that_make_no_sense_is_taken_without_breaking_it_for_ever() {
    let (mut world, mut me) = (World::new(), candidate("me"));
    world.store(json!({"holderIdentity": "other", "leaseDurationSeconds": -7, "leaseTransitions": i32::MAX}));
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.spec()["leaseTransitions"], i32::MAX);
}

#[test]
fn taking_a_lease_keeps_what_is_unknown_adds_labels_and_ends_a_coordinators_wishes() {
    let mut world = World::held_by("");
    let labels = Labels::from([("app".to_owned(), "kcm".to_owned())]);
    let mut me = candidate("me").with_labels(labels);
    world.lock.edit(|lease| {
        lease.metadata.labels.insert("kept".to_owned(), "yes".to_owned());
        lease.spec.preferred_holder = Some("other".to_owned());
        lease.spec.strategy = Some("OldestEmulationVersion".to_owned());
        lease.spec.extra.insert("future".to_owned(), json!([1]));
    });
    world.try_once(&mut me);
    let lease = world.lock.lease().unwrap();
    assert_eq!(serde_json::to_value(&lease.metadata.labels).unwrap(), json!({"app": "kcm", "kept": "yes"}));
    assert_eq!((lease.spec.preferred_holder, lease.spec.strategy), (None, None));
    assert_eq!(lease.spec.extra.get("future"), Some(&json!([1])));
}

#[test]
fn leader_whose_lease_was_deleted_creates_it_anew() {
    let (mut world, mut me) = (World::new(), candidate("me"));
    world.try_once(&mut me);
    world.lock.delete();
    world.wait(2_000);
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.asked, ["update", "get", "create"]);
    assert_eq!(world.spec()["leaseTransitions"], 0);
}

#[test]
fn two_that_take_a_lease_at_once_are_told_apart_by_the_resource_version() {
    let mut world = World::new();
    world.store(json!({}));
    let (mut one, mut two) = (candidate("one"), candidate("two"));
    let first = one.try_acquire_or_renew(world.now);
    let read = world.ask(first.request());
    let Step::Ask(first) = one.answer(first, read, world.now) else { panic!("one goes on to write") };
    assert_eq!(world.try_once(&mut two), world.leading_now());
    let refused = world.ask(first.request());
    assert!(matches!(one.answer(*first, refused, world.now), Step::Done(Verdict::Failed)));
    assert!(matches!(&*one.take_notes(), [Note::UpdateFailed(error)] if error.is_conflict()));
    assert!(!one.is_holder() && two.is_holder());
}

#[test]
fn two_that_create_a_lease_at_once_are_told_apart_by_its_name() {
    let mut world = World::new();
    let (mut one, mut two) = (candidate("one"), candidate("two"));
    let first = one.try_acquire_or_renew(world.now);
    let read = world.ask(first.request());
    let Step::Ask(first) = one.answer(first, read, world.now) else { panic!("one goes on to create") };
    world.try_once(&mut two);
    let refused = world.ask(first.request());
    assert!(matches!(one.answer(*first, refused, world.now), Step::Done(Verdict::Failed)));
    assert!(matches!(&*one.take_notes(), [Note::CreateFailed(error)] if error.is_already_exists()));
}

#[test]
fn lease_that_cannot_be_read_ends_the_try() {
    for error in [
        ApiError::status(401, "Unauthorized", "Unauthorized"),
        ApiError::status(403, reason::FORBIDDEN, "no"),
        ApiError::status(500, "InternalError", "oh"),
        ApiError::Decode("garbage".to_owned()),
        ApiError::Transport("refused".to_owned()),
    ] {
        let (world, mut me) = (World::new(), candidate("me"));
        let attempt = me.try_acquire_or_renew(world.now);
        let step = me.answer(attempt, Err(error), world.now);
        assert!(matches!(step, Step::Done(Verdict::Failed)));
        assert!(matches!(*me.take_notes(), [Note::ReadFailed(_)]));
        assert!(!me.is_holder());
    }
}

#[test]
fn leadership_counts_from_when_the_write_was_sent_that_succeeded() {
    let (mut world, mut me) = (World::new(), candidate("me"));
    let get = me.try_acquire_or_renew(world.now);
    let read = world.ask(get.request());
    world.wait(3_000);
    let sent = world.now.monotonic;
    let Step::Ask(create) = me.answer(get, read, world.now) else { panic!("it goes on to create") };
    let created = world.ask(create.request());
    world.wait(4_000);
    let step = me.answer(*create, created, world.now);
    assert!(matches!(step, Step::Done(Verdict::Leading { since }) if since == sent), "{step:?}");
    assert_eq!(world.spec()["renewTime"], "2026-01-02T03:04:08.678901Z");
    assert_eq!(me.observed_at(), world.now.monotonic);
}

#[test]
fn write_after_one_whose_answer_was_lost_is_seen_by_others_as_a_renewal() {
    let (mut world, mut me, mut other) = (World::new(), candidate("me"), candidate("other"));
    world.try_once(&mut me);
    world.wait(2_000);
    let update = me.try_acquire_or_renew(world.now);
    world.ask(update.request()).unwrap();
    world.wait(1_000);
    assert_eq!(world.try_once(&mut other), held_by("me"));
    world.wait(4_000);
    let lost = ApiError::Timeout("update".to_owned());
    let Step::Ask(get) = me.answer(update, Err(lost), world.now) else { panic!("it goes on to read") };
    assert_eq!(world.finish(&mut me, *get), world.leading_now());
    assert_eq!(world.try_once(&mut other), held_by("me"));
    assert_eq!(other.observed_at(), world.now.monotonic, "counted anew");
}

#[test]
fn lease_got_by_a_write_whose_answer_was_lost_is_recognised() {
    let (mut world, mut me) = (World::held_by(""), candidate("me").with_unique_identity(true));
    let get = me.try_acquire_or_renew(world.now);
    let read = world.ask(get.request());
    let Step::Ask(update) = me.answer(get, read, world.now) else { panic!("it goes on to write") };
    world.ask(update.request()).unwrap();
    let lost = ApiError::Timeout("update".to_owned());
    assert!(matches!(me.answer(*update, Err(lost), world.now), Step::Done(Verdict::Failed)));
    me.take_notes();
    assert!(!me.is_holder() && me.may_be_holder());
    world.wait(2_000);
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.asked, ["get", "update"]);
    assert!(matches!(*me.take_notes(), [Note::SlowPath]));
    assert_eq!(world.spec()["leaseTransitions"], 5, "it was got once");
}

#[test]
fn lease_in_ones_own_name_from_before_a_restart_is_taken_and_told() {
    let (mut world, mut me) = (World::held_by("me"), candidate("me"));
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.spec()["leaseTransitions"], 4);
    assert!(is_told_shared(&mut me));
}

#[test]
fn two_of_one_identity_both_lead_and_tell() {
    let (mut world, mut one, mut two) = (World::new(), candidate("twin"), candidate("twin"));
    world.try_once(&mut one);
    world.wait(1_000);
    assert_eq!(world.try_once(&mut two), world.leading_now());
    assert!(is_told_shared(&mut two));
    world.wait(1_000);
    assert_eq!(world.try_once(&mut one), world.leading_now());
    assert!(is_told_shared(&mut one));
}

#[test]
fn two_of_one_identity_that_is_to_be_unique_do_not_both_lead() {
    let twin = || candidate("twin").with_unique_identity(true);
    let (mut world, mut one, mut two) = (World::new(), twin(), twin());
    world.try_once(&mut one);
    for _ in 0..20 {
        world.wait(2_000);
        assert_eq!(world.try_once(&mut one), world.leading_now());
        assert_eq!(world.try_once(&mut two), held_by("twin"));
    }
    assert!(!is_told_shared(&mut one) && is_told_shared(&mut two));
    world.wait(15_000);
    assert_eq!(world.try_once(&mut two), world.leading_now());
    assert_eq!(world.try_once(&mut one), held_by("twin"), "what it finds is not its own");
}

#[test]
fn lease_restored_from_before_ones_own_writes_is_not_taken_for_ones_own() {
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
fn lease_given_back_is_empty_lasts_a_second_and_keeps_its_transitions() {
    let (mut world, mut me) = (World::new(), candidate("me"));
    world.store(json!({"leaseTransitions": 2}));
    world.try_once(&mut me);
    world.wait(5_000);
    assert_eq!(world.release(&mut me), Verdict::Released);
    assert_eq!(world.asked, ["get", "update"]);
    assert_eq!(
        world.spec(),
        json!({
            "holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": "2026-01-02T03:04:10.678901Z",
            "renewTime": "2026-01-02T03:04:10.678901Z", "leaseTransitions": 3,
        })
    );
    assert!(!me.is_holder() && !me.may_be_holder());
    assert_eq!(world.release(&mut me), Verdict::NothingToRelease);
}

#[test]
fn lease_of_another_is_not_given_back() {
    let (mut world, mut me) = (World::held_by("other"), candidate("me"));
    assert_eq!(world.release(&mut me), Verdict::NothingToRelease);
    assert_eq!(world.asked, ["get"]);
    world.wait(15_000);
    world.try_once(&mut me);
    world.wait(15_000);
    world.try_once(&mut me);
    // Taken over in between, which it has not seen.
    world.lock.edit(|lease| lease.spec.holder_identity = Some("other".to_owned()));
    assert!(me.is_holder());
    assert_eq!(world.release(&mut me), Verdict::NothingToRelease);
    assert_eq!(world.spec()["holderIdentity"], "other");
    world.lock.delete();
    assert_eq!(world.release(&mut me), Verdict::NothingToRelease);
}

#[test]
fn giving_back_against_a_write_in_between_can_be_repeated() {
    let (mut world, mut me) = (World::new(), candidate("me"));
    world.try_once(&mut me);
    let get = me.release(world.now);
    let read = world.ask(get.request());
    let Step::Ask(release) = me.answer(get, read, world.now) else { panic!("it goes on to write") };
    world.lock.edit(|lease| _ = lease.metadata.labels.insert("a".to_owned(), "b".to_owned()));
    let refused = world.ask(release.request());
    assert!(matches!(me.answer(*release, refused, world.now), Step::Done(Verdict::ReleaseConflict)));
    assert_eq!(world.release(&mut me), Verdict::Released);
}

#[test]
fn renewals_differ_by_seconds_even_when_the_wall_clock_stands_still() {
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
fn renewals_differ_by_seconds_when_the_wall_clock_is_set_back_and_otherwise_follow_it() {
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
