//! Statuses that wait for the rate limit.

use kcm_controller_util::StatusUrgency;

use super::*;

/// Rate limit that permits a status if `is_free`. Records the calls.
#[derive(Default)]
struct FakeTurns {
    is_free: bool,
    calls: Mutex<Vec<&'static str>>,
}

impl StatusTurns for FakeTurns {
    fn take(&self, _: &ObjectKey, urgency: StatusUrgency) -> bool {
        self.calls.lock().push(match urgency {
            StatusUrgency::FewerPods => "take first",
            StatusUrgency::Awaited => "take awaited",
            StatusUrgency::Other => "take",
        });
        self.is_free
    }

    fn give_back(&self, _: &ObjectKey) {
        self.calls.lock().push("give back");
    }
}

/// Syncs with a rate limit that permits a status if `is_free`. Returns the calls of the rate limit, too.
async fn sync_with(
    world: &mut World,
    key: &ObjectKey,
    is_free: bool,
) -> (Result<Requeue, String>, String, Vec<&'static str>) {
    let turns = Arc::new(FakeTurns { is_free, ..FakeTurns::default() });
    world.syncer.status_turns = turns.clone();
    let (result, requests) = sync(world, key).await;
    let calls = std::mem::take(&mut *turns.calls.lock());
    (result, requests, calls)
}

#[tokio::test]
async fn pods_are_written_before_the_turn_of_the_status() {
    let mut world = World::new();
    let subject = replica_set("web", 3);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 1));
    let waits = sync_with(&mut world, &key, false).await;
    assert_eq!(waits, (Ok(Requeue::Done), "create x2".to_owned(), vec!["take"]));
}

#[tokio::test]
async fn status_is_written_at_its_turn() {
    let mut world = World::new();
    let subject = replica_set("web", 3);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 3));
    let turn = sync_with(&mut world, &key, true).await;
    assert_eq!(turn, (Ok(Requeue::Done), "status".to_owned(), vec!["take"]));
}

#[tokio::test]
async fn unchanged_status_gives_the_turn_back() {
    let mut world = World::new();
    let subject = settled(2);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 2));
    let synced = sync_with(&mut world, &key, true).await;
    assert_eq!(synced, (Ok(Requeue::Done), String::new(), vec!["give back"]));
}

#[tokio::test]
async fn deleted_replica_set_gives_the_turn_back() {
    let mut world = World::new();
    let key = replica_set("web", 1).metadata.key();
    let synced = sync_with(&mut world, &key, true).await;
    assert_eq!(synced, (Ok(Requeue::Done), String::new(), vec!["give back"]));
}

#[tokio::test]
async fn status_with_more_available_replicas_is_awaited() {
    let mut world = World::new();
    let subject = settled(1);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 1).into_iter().map(|pod| ready(pod, ago(60))));
    let synced = sync_with(&mut world, &key, false).await;
    assert_eq!(synced, (Ok(Requeue::Done), String::new(), vec!["take awaited"]));
}

#[tokio::test]
async fn status_with_fewer_ready_replicas_is_first() {
    for (ready, is_available) in [(0, false), (1, true)] {
        let mut world = World::new();
        let mut subject = settled(2);
        subject.status.ready_replicas = 2;
        subject.status.available_replicas = if is_available { 2 } else { 0 };
        let key = world.add_replica_set(&subject);
        let pods = pods_of(&subject, 2).into_iter().enumerate();
        world.add_pods(pods.map(|(index, pod)| if index < ready { super::ready(pod, ago(60)) } else { pod }));
        let synced = sync_with(&mut world, &key, false).await;
        assert_eq!(synced, (Ok(Requeue::Done), String::new(), vec!["take first"]));
    }
}

/// At a later turn, the sync would send the refused request again.
#[tokio::test]
async fn status_of_a_failed_creation_takes_no_turn() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 1));
    world.cluster.create_errors.lock().push_back(refusal("quota exceeded"));
    let (result, requests, calls) = sync_with(&mut world, &key, false).await;
    assert!(result.unwrap_err().contains("quota exceeded"));
    assert_eq!((&*requests, calls), ("create, status", vec!["give back"]));
}
