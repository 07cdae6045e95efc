use super::*;

#[test]
fn creates_missing_lease() {
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
fn waits_for_expiry_since_first_observed() {
    let (mut world, mut me) = (World::held_by("other"), candidate("me"));
    assert_eq!(world.try_once(&mut me), held_by("other"));
    assert_eq!(me.expires_at(), Some(world.now.monotonic + Duration::from_secs(15)));
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
    assert!(me.take_notices().is_empty(), "taking over is no slow path");
}

#[test]
fn waits_again_after_each_renewal() {
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
fn duration_is_read_from_the_record() {
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
fn ignores_wall_clock() {
    let (mut world, mut me) = (World::held_by("other"), candidate("me"));
    world.try_once(&mut me);
    world.now.wall = "2099-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(world.try_once(&mut me), held_by("other"));
    world.now.wall = "1999-01-01T00:00:00Z".parse().unwrap();
    world.now.monotonic += Duration::from_secs(15);
    assert_eq!(world.try_once(&mut me), world.leading_now());
}

#[test]
fn acquires_released_lease_at_once() {
    let (mut world, mut me) = (World::held_by(""), candidate("me"));
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.spec()["leaseTransitions"], 5);
}

#[test]
fn acquires_empty_lease_at_once() {
    let (mut world, mut me) = (World::new(), candidate("me"));
    world.store(json!({}));
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.spec()["leaseTransitions"], 1);
}

#[test]
fn saturates_invalid_numbers() {
    let (mut world, mut me) = (World::new(), candidate("me"));
    world.store(json!({"holderIdentity": "other", "leaseDurationSeconds": -7, "leaseTransitions": i32::MAX}));
    assert_eq!(world.try_once(&mut me), world.leading_now());
    assert_eq!(world.spec()["leaseTransitions"], i32::MAX);
}

#[test]
fn keeps_unknown_fields_and_adds_labels() {
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
fn concurrent_updates_conflict() {
    let mut world = World::new();
    world.store(json!({}));
    let (mut one, mut two) = (candidate("one"), candidate("two"));
    let first = one.try_acquire_or_renew(world.now);
    let read = world.send(first.request());
    let NextStep::Send(first) = one.handle_response(first, read, world.now) else { panic!("no update") };
    assert_eq!(world.try_once(&mut two), world.leading_now());
    let refused = world.send(first.request());
    assert!(matches!(one.handle_response(*first, refused, world.now), NextStep::Done(AttemptResult::Failed)));
    assert!(matches!(&*one.take_notices(), [AttemptNotice::UpdateFailed(error)] if error.is_conflict()));
    assert!(!one.is_holder() && two.is_holder());
}

#[test]
fn concurrent_creates_conflict() {
    let mut world = World::new();
    let (mut one, mut two) = (candidate("one"), candidate("two"));
    let first = one.try_acquire_or_renew(world.now);
    let read = world.send(first.request());
    let NextStep::Send(first) = one.handle_response(first, read, world.now) else { panic!("no create") };
    world.try_once(&mut two);
    let refused = world.send(first.request());
    assert!(matches!(one.handle_response(*first, refused, world.now), NextStep::Done(AttemptResult::Failed)));
    assert!(
        matches!(&*one.take_notices(), [AttemptNotice::CreateFailed(error)] if error.is_already_exists())
    );
}

#[test]
fn read_error_ends_the_attempt() {
    for error in [
        ApiError::status(401, "Unauthorized", "Unauthorized"),
        ApiError::status(403, reason::FORBIDDEN, "no"),
        ApiError::status(500, "InternalError", "oh"),
        ApiError::Decode("garbage".into()),
        ApiError::Transport("refused".into()),
    ] {
        let (world, mut me) = (World::new(), candidate("me"));
        let attempt = me.try_acquire_or_renew(world.now);
        let step = me.handle_response(attempt, Err(error), world.now);
        assert!(matches!(step, NextStep::Done(AttemptResult::Failed)));
        assert!(matches!(*me.take_notices(), [AttemptNotice::ReadFailed(_)]));
        assert!(!me.is_holder());
    }
}
