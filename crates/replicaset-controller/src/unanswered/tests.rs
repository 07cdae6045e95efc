use kcm_api::{ApiError, error::reason};

use super::*;
use crate::testing::*;

fn lost() -> ApiError {
    ApiError::Transport("POST: the connection broke".to_owned())
}

/// A ReplicaSet that wants one pod, whose creation has just gone unanswered.
async fn unanswered(error: ApiError) -> (World, ObjectKey) {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 1));
    *world.cluster.refuse_creates.lock() = Some((0, error));
    world.syncer.sync(&key).await.unwrap_err();
    assert_eq!(summary(&world.cluster.take()), "create, status");
    assert_eq!(world.syncer.expectations.get(&key), Some((0, 0)));
    *world.cluster.refuse_creates.lock() = None;
    world.catch_up();
    (world, key)
}

/// One sync: how it went, and what it asked.
async fn sync(world: &World, key: &ObjectKey) -> (String, String) {
    let outcome = world.syncer.sync(key).await;
    (outcome.map_or_else(|error| error.to_string(), |_| String::new()), summary(&world.cluster.take()))
}

const LOOK: &str = "list default app=web";

#[tokio::test]
async fn outcome_of_an_unanswered_create_is_not_looked_for_before_it_has_settled() {
    let (world, key) = unanswered(lost()).await;
    world.clock.step(SETTLING / 4);
    let error = world.syncer.sync(&key).await.unwrap_err();
    assert!(matches!(error, SyncError::Unanswered { wait } if wait == SETTLING * 3 / 4), "{error:?}");
    assert!(world.cluster.take().is_empty());
}

#[tokio::test]
async fn pod_that_was_not_created_is_created_after_one_look() {
    let (world, key) = unanswered(lost()).await;
    world.clock.step(SETTLING);
    let (error, requests) = sync(&world, &key).await;
    assert_eq!((error.as_str(), requests), ("", format!("{LOOK}, create, status")));
}

#[tokio::test]
async fn pod_that_was_created_is_waited_for_and_not_created_again() {
    let (mut world, key) = unanswered(lost()).await;
    let made = Pod { resource_version: "1000007".into(), ..owned_by(&replica_set("web", 1), pod("made")) };
    world.cluster.lists.lock().push_back(Ok(vec![made.clone(), pod("of-nobody")]));
    world.clock.step(SETTLING);
    let (error, requests) = sync(&world, &key).await;
    assert!(error.starts_with("read version: 1000000 is not as new as"), "{error}");
    assert_eq!(requests, LOOK);
    // It need not be looked for again, only waited for.
    assert_eq!(sync(&world, &key).await.1, "");
    world.add_pods([made]);
    let (error, requests) = sync(&world, &key).await;
    assert_eq!((error.as_str(), requests.as_str()), ("", "status"));
}

#[tokio::test]
async fn look_that_fails_is_repeated_by_the_next_sync() {
    let (world, key) = unanswered(lost()).await;
    world.clock.step(SETTLING);
    world.cluster.lists.lock().extend([Err(lost()), Err(lost())]);
    for _ in 0..2 {
        let (error, requests) = sync(&world, &key).await;
        let expected = "unable to find out whether a pod was created: POST: the connection broke";
        assert_eq!((error.as_str(), requests.as_str()), (expected, LOOK));
    }
    assert_eq!(sync(&world, &key).await.1, format!("{LOOK}, create, status"));
}

#[tokio::test]
async fn create_that_cannot_have_taken_effect_needs_no_look() {
    for error in [
        ApiError::status(403, reason::FORBIDDEN, "exceeded quota"),
        ApiError::NotSent("connection refused".to_owned()),
    ] {
        let (world, key) = unanswered(error).await;
        assert_eq!(sync(&world, &key).await.1, "create, status");
    }
}

#[tokio::test]
async fn create_that_may_have_taken_effect_needs_one_whatever_was_said() {
    for error in [
        ApiError::Timeout("POST".to_owned()),
        ApiError::Decode("POST: the answer cannot be decoded".to_owned()),
        ApiError::NotLeading("POST".to_owned()),
        ApiError::status(504, reason::TIMEOUT, "etcd"),
        ApiError::status(500, "InternalError", "proxy"),
    ] {
        let (world, key) = unanswered(error).await;
        world.clock.step(SETTLING);
        assert_eq!(sync(&world, &key).await.1, format!("{LOOK}, create, status"));
    }
}

#[tokio::test]
async fn owner_that_is_gone_or_going_or_another_of_that_name_is_not_looked_for() {
    let (mut world, key) = unanswered(lost()).await;
    world.replica_sets.remove(&key, None);
    assert_eq!(sync(&world, &key).await, (String::new(), String::new()));
    assert!(world.syncer.unanswered.get(&key).is_none());

    let (mut world, key) = unanswered(lost()).await;
    let change = serde_json::json!({"metadata": {"uid": "other", "resourceVersion": "11"}});
    world.cache_replica_set(&changed_replica_set("web", 1, &change));
    world.catch_up();
    assert_eq!(sync(&world, &key).await.1, "create, status");

    let (mut world, key) = unanswered(lost()).await;
    let change = serde_json::json!({"metadata":
        {"deletionTimestamp": "2026-01-01T12:00:00Z", "finalizers": ["a/b"], "resourceVersion": "11"}});
    world.cache_replica_set(&changed_replica_set("web", 1, &change));
    assert!(!sync(&world, &key).await.1.contains("list"));
}

#[test]
fn newest_of_an_owner_is_by_number_and_of_its_own_pods_alone() {
    let owner = replica_set("web", 1);
    let of = |owner: &kcm_api::ReplicaSet, version: &str| Pod {
        resource_version: version.into(),
        ..owned_by(owner, pod(version))
    };
    let pods = [of(&owner, "9"), of(&owner, "10"), of(&replica_set("api", 1), "99"), pod("of-nobody")];
    assert_eq!(newest_of("web-uid", &pods), Some("10"));
    assert_eq!(newest_of("db-uid", &pods), None);
}
