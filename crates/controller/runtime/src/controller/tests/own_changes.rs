use kcm_expectations::{DeletedObject, GroupResource, OwnWrites, ReadVersion};

use super::*;

/// Begins a sync with the records of own writes, and waits until expectations expire.
struct Expecting(Arc<OwnWrites>);

impl Reconciler for Expecting {
    type Error = kcm_expectations::NotReady;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Self::Error> {
        self.0.begin(key, |_| false)?;
        Ok(self.0.expectations.expires_in(key).map_or(Requeue::Done, Requeue::After))
    }

    fn classify(_: &Self::Error) -> ErrorClass {
        ErrorClass::StaleCache
    }
}

/// A controller with the primary object `a` that owns `pod`.
async fn controller_of_a(env: &TestEnv) -> (Controller<Expecting>, Arc<OwnWrites>, ObjectKey) {
    env.primaries.apply(thing("a", "uid-a"));
    env.secondaries.apply(owned("pod", ("a", "uid-a")));
    env.settle().await;
    let store = env.secondary_informer.store();
    let read: ReadVersion = Arc::new(move || store.last_sync_resource_version());
    let own_writes = Arc::new(OwnWrites::new(Arc::new(env.clock.clone()), [(GroupResource::PODS, read)]));
    let controller = env
        .builder()
        .reconciles(&env.primary_informer)
        .owns(&env.secondary_informer)
        .own_writes(Arc::clone(&own_writes))
        .build(Expecting(Arc::clone(&own_writes)));
    controller.drain().await;
    (controller, own_writes, ObjectKey::new("default", "a"))
}

fn pod(name: &'static str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// Identity of the object that [`owned`] returns.
fn identity(name: &'static str) -> DeletedObject {
    DeletedObject::of(&thing(name, name))
}

/// A list after a restart may contain an object whose deletion has started.
#[tokio::test]
async fn added_terminating_object_is_a_deletion() {
    let env = TestEnv::new().await;
    let (_controller, own_writes, key) = controller_of_a(&env).await;
    own_writes.expectations.expect_creations(&key, 1);
    let terminating = Thing { is_terminating: true, ..owned("leaving", ("a", "uid-a")) };
    env.secondaries.apply(terminating);
    env.settle().await;
    assert_eq!(own_writes.expectations.get(&key), Some((1, 0)));
}

#[tokio::test]
async fn key_is_reconciled_while_its_expectations_are_pending() {
    let env = TestEnv::new().await;
    let (controller, own_writes, key) = controller_of_a(&env).await;
    own_writes.expectations.expect_creations(&key, 1);
    controller.queue().add(key.clone());
    assert_eq!(controller.step().await.unwrap().result, Ok(Requeue::After(EXPIRY)));
    assert_eq!(own_writes.begin(&key, |_| false), Ok(false));
    env.secondaries.apply(owned("new", ("a", "uid-a")));
    assert_eq!(env.processed(&controller).await, ["a"]);
    assert_eq!(own_writes.begin(&key, |_| false), Ok(true));
    env.primaries.delete(&key);
    env.settle().await;
    assert_eq!(own_writes.expectations.get(&key), None);
}

#[tokio::test]
async fn deletion_is_observed_when_it_starts() {
    let env = TestEnv::new().await;
    let (controller, own_writes, key) = controller_of_a(&env).await;
    let expectations = &own_writes.expectations;
    expectations.expect_deletions(&key, [identity("pod")]);
    // Another object of the same owner.
    env.secondaries.apply(owned("other", ("a", "uid-a")));
    env.secondaries.delete(&pod("other"));
    env.processed(&controller).await;
    assert!(!expectations.satisfied(&key));
    env.secondaries.apply(Thing { is_terminating: true, ..owned("pod", ("a", "uid-a")) });
    assert_eq!(env.processed(&controller).await, ["a"]);
    assert!(expectations.satisfied(&key), "waits for the end of the grace period");
    // The end of the deletion lowers nothing.
    expectations.expect_deletions(&key, [identity("later")]);
    env.secondaries.delete(&pod("pod"));
    env.processed(&controller).await;
    assert_eq!(expectations.get(&key), Some((0, 1)));
}

#[tokio::test]
async fn object_that_is_released_or_replaced_is_not_awaited() {
    let env = TestEnv::new().await;
    let (controller, own_writes, key) = controller_of_a(&env).await;
    let expectations = &own_writes.expectations;
    expectations.expect_deletions(&key, [identity("pod")]);
    env.secondaries.apply(Thing { uid: "pod", ..thing("pod", "pod") });
    env.processed(&controller).await;
    assert!(expectations.satisfied(&key), "released");
    env.secondaries.apply(owned("next", ("a", "uid-a")));
    env.settle().await;
    expectations.expect_deletions(&key, [identity("next")]);
    env.secondaries.apply(Thing { uid: "again", ..owned("next", ("a", "uid-a")) });
    env.processed(&controller).await;
    assert!(expectations.satisfied(&key), "deleted and created again");
}

/// An object can be created and deleted before the cache contains the deletion of the former one of its name.
#[tokio::test]
async fn deletion_of_the_former_object_of_a_name_is_another_one() {
    let env = TestEnv::new().await;
    let (controller, own_writes, key) = controller_of_a(&env).await;
    let expectations = &own_writes.expectations;
    env.secondaries.apply(Thing { uid: "former", ..owned("pod", ("a", "uid-a")) });
    env.processed(&controller).await;
    expectations.expect_deletions(&key, [identity("pod")]);
    env.secondaries.delete(&pod("pod"));
    env.processed(&controller).await;
    assert!(!expectations.satisfied(&key));
    env.secondaries.apply(Thing { is_terminating: true, ..owned("pod", ("a", "uid-a")) });
    env.processed(&controller).await;
    assert!(expectations.satisfied(&key));
}

/// The cache can replace an object between the decision to delete it and the request.
#[tokio::test]
async fn deletion_that_was_handled_before_is_not_awaited() {
    let env = TestEnv::new().await;
    let (controller, own_writes, key) = controller_of_a(&env).await;
    env.secondaries.apply(owned("pod", ("a", "uid-a")));
    env.processed(&controller).await;
    let former = DeletedObject { uid: "former".into(), ..identity("pod") };
    let is_cached = |object: &ObjectKey, uid: &str| *object == identity("pod").key && uid != "former";
    own_writes.expect_deletions(&key, "owner", [former], is_cached);
    assert!(own_writes.expectations.satisfied(&key));
}

/// Time after which expectations have expired.
const EXPIRY: Duration = EXPECTATIONS_TIMEOUT.saturating_add(Duration::from_nanos(1));

#[tokio::test]
async fn key_is_reconciled_when_its_expectations_expire() {
    let env = TestEnv::new().await;
    let (controller, own_writes, key) = controller_of_a(&env).await;
    own_writes.expectations.expect_creations(&key, 1);
    env.clock.step(Duration::from_secs(100));
    controller.queue().add(key.clone());
    assert_eq!(controller.drain().await.len(), 1);
    env.clock.step(EXPECTATIONS_TIMEOUT - Duration::from_secs(100));
    assert!(controller.step().await.is_none());
    env.clock.step(Duration::from_nanos(1));
    assert_eq!(controller.drain().await.len(), 1);
    assert!(own_writes.expectations.satisfied(&key));
    env.clock.step(EXPECTATIONS_TIMEOUT * 2);
    assert!(controller.step().await.is_none(), "is reconciled once");
}

#[tokio::test]
async fn key_waits_until_the_caches_contain_its_writes() {
    let env = TestEnv::new().await;
    let (controller, own_writes, key) = controller_of_a(&env).await;
    let written = env.secondaries.version() + 1;
    own_writes.versions.wrote_at(&key, "uid-a", GroupResource::PODS, &written.to_string());
    controller.queue().add(key.clone());
    assert!(controller.step().await.unwrap().result.is_err());
    // Retried with back-off.
    assert!(controller.step().await.is_none());
    env.secondaries.apply(owned("other", ("b", "uid-b")));
    env.settle().await;
    env.clock.step(Duration::from_millis(5));
    assert_eq!(controller.step().await.unwrap().result, Ok(Requeue::Done));
}
