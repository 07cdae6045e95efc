//! Status writes that wait for the events of the pods that the sync has created or deleted.

use super::*;

/// Returns a ReplicaSet with a new generation and a status that counts `counted` pods.
fn changed(replicas: i32, counted: i32) -> ReplicaSet {
    let status = json!({"replicas": counted, "fullyLabeledReplicas": counted, "terminatingReplicas": 0,
        "observedGeneration": 1});
    changed_replica_set("web", replicas, &json!({"metadata": {"generation": 2}, "status": status}))
}

#[tokio::test]
async fn new_generation_is_written_with_the_pods_that_it_creates() {
    let mut world = World::new();
    let subject = changed(2, 0);
    let key = world.add_replica_set(&subject);
    assert_eq!(sync(&world, &key).await, (Ok(Requeue::Done), "create x2".to_owned()));
    world.add_pods(pods_of(&subject, 2));
    world.catch_up();
    assert_eq!(sync(&world, &key).await.1, "status");
    let [written] = &world.cluster.take_statuses()[..] else { panic!("one write") };
    assert_eq!((written.status.replicas, written.status.observed_generation), (2, 2));
}

/// It shows that a controller manages the ReplicaSet.
#[tokio::test]
async fn first_generation_is_written_at_once() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 2));
    assert_eq!(sync(&world, &key).await.1, "create x2, status");
}

#[tokio::test]
async fn new_generation_is_written_without_the_pods_that_it_deletes() {
    let mut world = World::new();
    let subject = changed(1, 3);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 3));
    assert_eq!(sync(&world, &key).await, (Ok(Requeue::Done), "delete pod-2, delete pod-1".to_owned()));
    for pod in pods_of(&subject, 3).into_iter().skip(1) {
        world.pods.lock().remove(&pod.key, None);
        world.own_writes.expectations.deletion_observed(&key, &*pod.uid);
    }
    world.catch_up();
    sync(&world, &key).await.0.unwrap();
    let written = world.cluster.take_statuses().pop().unwrap();
    assert_eq!((written.status.replicas, written.status.observed_generation), (1, 2));
}

#[tokio::test]
async fn new_counts_are_written_at_once() {
    let mut world = World::new();
    let subject = changed(3, 0);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 1));
    assert_eq!(sync(&world, &key).await.1, "create x2, status");
}

#[tokio::test]
async fn new_generation_without_creations_is_written_at_once() {
    let mut world = World::new();
    let subject = changed(1, 1);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 1));
    assert_eq!(sync(&world, &key).await.1, "status");
}

/// The pods of this sync that were created have events, but the failure is reported at once.
#[tokio::test]
async fn failure_is_written_at_once() {
    let mut world = World::new();
    let key = world.add_replica_set(&changed(2, 0));
    *world.cluster.refuse_creates.lock() = Some((1, ApiError::Transport("POST: connection broken".into())));
    let (outcome, requests) = sync(&world, &key).await;
    assert!(outcome.is_err());
    assert_eq!(requests, "create x2, status");
}

/// A namespace that is being deleted accepts no pods, and no event follows.
#[tokio::test]
async fn new_generation_is_written_at_once_if_no_pod_was_created() {
    let mut world = World::new();
    let key = world.add_replica_set(&changed(1, 0));
    world.cluster.create_errors.lock().push_back(namespace_terminating());
    assert_eq!(sync(&world, &key).await.1, "create, status");
}

#[tokio::test]
async fn is_disabled_as_upstream() {
    let mut world = World::new();
    world.syncer.coalesce_status_writes = false;
    let key = world.add_replica_set(&changed(2, 0));
    assert_eq!(sync(&world, &key).await.1, "create x2, status");
}
