//! Upstream's tests of the event handlers (US-5.2).

use serde_json::json;

use super::*;
use crate::testing::*;

/// A world with ReplicaSets `web` and `other`, of which `web` selects what [`pod`] makes, both waiting for one
/// creation and the deletion of `p`.
fn world() -> (World, ReplicaSet, ReplicaSet) {
    let mut world = World::new();
    let web = replica_set("web", 1);
    let other =
        changed_replica_set("other", 1, &json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}}));
    for replica_set in [&web, &other] {
        let key = world.add_replica_set(replica_set);
        world.own_writes.expectations.expect_deletions(&key, [pod("p").key]);
        world.own_writes.expectations.lower(&key, -1, 0);
    }
    (world, web, other)
}

/// What an event woke, and what `web` and `other` still wait for.
async fn outcome(world: &World) -> (Vec<String>, (i64, i64), (i64, i64)) {
    let expectations =
        |name: &str| world.own_writes.expectations.get(&ObjectKey::new("default", name)).unwrap_or_default();
    (world.take_queued().await, expectations("web"), expectations("other"))
}

fn woken(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn added(world: &World, pod: Pod) {
    EventHandler::<Pod>::on_add(&world.handlers, &Arc::new(pod), false);
}

fn updated(world: &World, old: Pod, new: Pod) {
    EventHandler::<Pod>::on_update(&world.handlers, &Arc::new(old), &Arc::new(new));
}

fn deleted(world: &World, pod: Pod) {
    EventHandler::<Pod>::on_delete(&world.handlers, &Deleted::FinalState(Arc::new(pod)));
}

#[tokio::test]
async fn pod_added_with_an_owner_counts_as_its_creation_and_wakes_it_alone() {
    let (world, web, _) = world();
    added(&world, owned_by(&web, pod("p")));
    assert_eq!(outcome(&world).await, (woken(&["web"]), (0, 1), (1, 1)));
}

/// Upstream: TestOverlappingRSs. Labels that another ReplicaSet selects, too, do not matter.
#[tokio::test]
async fn test_overlapping_rss() {
    let (mut world, web, _) = world();
    let overlapping = ["a", "b", "c"].map(|name| replica_set(name, 1));
    for replica_set in &overlapping {
        world.add_replica_set(replica_set);
    }
    added(&world, owned_by(&web, pod("p")));
    assert_eq!(world.take_queued().await, ["web"]);
    deleted(&world, owned_by(&web, pod("p")));
    assert_eq!(world.take_queued().await, ["web"]);
}

#[tokio::test]
async fn orphan_added_wakes_all_that_select_it_and_counts_as_no_creation() {
    let (mut world, _, _) = world();
    world.add_replica_set(&replica_set("twin", 1));
    added(&world, pod("p"));
    assert_eq!(outcome(&world).await, (woken(&["twin", "web"]), (1, 1), (1, 1)));
}

/// Upstream: TestPodControllerLookup, its three cases and some more.
#[tokio::test]
async fn test_pod_controller_lookup() {
    let selecting = |name: &str, selector| {
        let namespace = if name == "elsewhere" { "elsewhere" } else { "default" };
        changed_replica_set(
            name,
            1,
            &json!({"metadata": {"namespace": namespace}, "spec": {"selector": selector}}),
        )
    };
    let bad = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
    let several = vec![
        replica_set("matches", 1),
        selecting("elsewhere", json!({"matchLabels": {"app": "web"}})),
        selecting("differs", json!({"matchLabels": {"app": "db"}})),
        // None of these may select anything.
        selecting("empty", json!({"matchLabels": null})),
        selecting("none", json!(null)),
        selecting("broken", bad),
    ];
    let cases: [(&str, Vec<ReplicaSet>, &[&str]); 3] = [
        ("no ReplicaSet", vec![], &[]),
        ("one ReplicaSet", vec![replica_set("a", 1)], &["a"]),
        ("different selectors and namespaces", several, &["matches"]),
    ];
    for (name, sets, expected) in cases {
        let mut world = World::new();
        for replica_set in sets {
            world.add_replica_set(&replica_set);
        }
        added(&world, pod("p"));
        assert_eq!(world.take_queued().await, expected, "{name}");
    }
}

#[tokio::test]
async fn orphan_without_labels_wakes_nobody() {
    let mut world = World::new();
    let selector =
        json!({"matchLabels": null, "matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]});
    world.add_replica_set(&changed_replica_set("a", 1, &json!({"spec": {"selector": selector}})));
    added(&world, Pod { labels: Arc::default(), ..pod("p") });
    assert_eq!(world.take_queued().await, [""; 0]);
}

#[tokio::test]
async fn pod_whose_owner_is_of_another_kind_or_uid_or_unknown_wakes_nobody() {
    let (world, web, _) = world();
    let with = |change: fn(&mut ControllerRef)| {
        let mut reference = (**owned_by(&web, pod("p")).controller.as_ref().unwrap()).clone();
        change(&mut reference);
        Pod { controller: Some(Arc::new(reference)), ..pod("p") }
    };
    added(&world, with(|reference| reference.kind = "StatefulSet".into()));
    added(&world, with(|reference| reference.uid = "an-earlier-one".into()));
    added(&world, with(|reference| reference.name = "unknown".into()));
    assert_eq!(outcome(&world).await, (woken(&[]), (1, 1), (1, 1)));
    // The group is not compared.
    added(&world, with(|reference| reference.api_version = "example.org/v1".into()));
    assert_eq!(outcome(&world).await, (woken(&["web"]), (0, 1), (1, 1)));
}

/// Upstream: TestDeletionTimestamp.
#[tokio::test]
async fn test_deletion_timestamp() {
    let (world, web, _) = world();
    let mine = owned_by(&web, pod("p"));

    // Seen for the first time while it goes: a deletion, no creation.
    added(&world, going(mine.clone()));
    assert_eq!(outcome(&world).await, (woken(&["web"]), (1, 0), (1, 1)));

    // Marked again, and gone at last: counted once.
    updated(&world, mine.clone(), newer(going(mine.clone())));
    deleted(&world, going(mine.clone()));
    assert_eq!(outcome(&world).await, (woken(&["web"]), (1, 0), (1, 1)));

    // One that nobody waits for counts for nothing, and wakes its owner all the same.
    world.own_writes.expectations.expect_deletions(&web.metadata.key(), [mine.key.clone()]);
    let second = owned_by(&web, pod("second"));
    updated(&world, second.clone(), newer(going(second)));
    assert_eq!(outcome(&world).await, (woken(&["web"]), (0, 1), (1, 1)));
    deleted(&world, mine);
    assert_eq!(outcome(&world).await, (woken(&["web"]), (0, 0), (1, 1)));
}

#[tokio::test]
async fn pod_that_goes_with_changed_labels_counts_for_its_old_owner_too() {
    let (world, web, other) = world();
    let old = owned_by(&web, pod("p"));
    let new = newer(going(owned_by(&other, relabelled(pod("p")))));
    updated(&world, old, new);
    assert_eq!(outcome(&world).await, (woken(&["other", "web"]), (1, 0), (1, 0)));
}

/// Upstream: TestDeleteFinalStateUnknown.
#[tokio::test]
async fn test_delete_final_state_unknown() {
    let (world, web, _) = world();
    let gone = Deleted::FinalStateUnknown(Arc::new(owned_by(&web, pod("p"))));
    EventHandler::<Pod>::on_delete(&world.handlers, &gone);
    assert_eq!(outcome(&world).await, (woken(&["web"]), (1, 0), (1, 1)));
}

#[tokio::test]
async fn orphan_deleted_wakes_nobody() {
    let (world, _, _) = world();
    deleted(&world, pod("p"));
    assert_eq!(outcome(&world).await, (woken(&[]), (1, 1), (1, 1)));
}

/// Upstream: TestUpdatePods, its four cases, and those that it leaves out.
#[tokio::test]
async fn test_update_pods() {
    let (world, web, other) = world();
    let (mine, its) = (owned_by(&web, pod("p")), owned_by(&other, pod("p")));
    // The reference itself changed, but not whom it means.
    let mut reference = (**mine.controller.as_ref().unwrap()).clone();
    reference.block_owner_deletion = None;
    let reworded = Pod { controller: Some(Arc::new(reference)), ..pod("p") };
    // Name, old and new pod, keys queued, and whether the pod has left `web`.
    let (kept, left) = (false, true);
    let cases: [(&str, Pod, Pod, &[&str], bool); 7] = [
        (
            "an orphan with new labels: those that select it now",
            pod("p"),
            relabelled(pod("p")),
            &["other"],
            kept,
        ),
        ("another controllerRef: the old owner and the new", mine.clone(), its, &["other", "web"], left),
        (
            "controllerRef removed and labels changed: the old owner and whoever selects it now",
            mine.clone(),
            relabelled(pod("p")),
            &["other", "web"],
            left,
        ),
        ("controllerRef removed, labels as before: the old owner", mine.clone(), pod("p"), &["web"], left),
        ("adopted: the new owner", pod("p"), mine.clone(), &["web"], kept),
        (
            "an orphan in whom nothing changed that matters: nobody",
            pod("p"),
            ready(pod("p"), ago(0)),
            &[],
            kept,
        ),
        ("the same owner in other words: once", mine, reworded, &["web"], kept),
    ];
    for (name, old, new, expected, has_left) in cases {
        updated(&world, old, newer(new));
        let (queued, web, other) = outcome(&world).await;
        assert_eq!(queued, expected, "{name}");
        assert_eq!((web, other), ((1, if has_left { 0 } else { 1 }), (1, 1)), "{name}");
        world.own_writes.expectations.expect_deletions(&ObjectKey::new("default", "web"), [pod("p").key]);
        world.own_writes.expectations.lower(&ObjectKey::new("default", "web"), -1, 0);
    }
}

#[tokio::test]
async fn pod_of_the_same_name_is_a_deletion_and_a_creation() {
    let (world, web, other) = world();
    let new = Pod { uid: "another".into(), ..newer(owned_by(&other, pod("p"))) };
    updated(&world, owned_by(&web, pod("p")), new);
    assert_eq!(outcome(&world).await, (woken(&["other", "web"]), (1, 0), (0, 1)));
}

#[tokio::test]
async fn relist_wakes_those_that_wait_for_an_event() {
    let (world, _, _) = world();
    world.own_writes.expectations.delete(&ObjectKey::new("default", "other"));
    EventHandler::<Pod>::on_replace(&world.handlers);
    assert_eq!(world.take_queued().await, ["web"]);
}

#[tokio::test]
async fn pod_update_of_the_same_version_is_ignored() {
    let (world, web, _) = world();
    let mine = owned_by(&web, pod("p"));
    updated(&world, mine.clone(), going(mine));
    assert_eq!(outcome(&world).await, (woken(&[]), (1, 1), (1, 1)));
}

#[tokio::test]
async fn pod_that_became_ready_is_looked_at_again_exactly_when_it_may_be_available() {
    let mut world = World::new();
    let web = changed_replica_set("web", 1, &json!({"spec": {"minReadySeconds": 5}}));
    world.add_replica_set(&web);
    let mine = owned_by(&web, pod("p"));
    updated(&world, mine.clone(), newer(ready(mine.clone(), ago(0))));
    assert_eq!(world.take_queued().await, ["web"]);

    let again = tokio::spawn({
        let queue = world.handlers.queue.clone();
        async move { queue.get().await.map(|key| key.name.to_string()) }
    });
    tokio::task::yield_now().await;
    world.clock.step(Duration::from_millis(4999));
    tokio::task::yield_now().await;
    assert!(!again.is_finished());
    world.clock.step(Duration::from_millis(1));
    assert_eq!(again.await.unwrap().as_deref(), Some("web"));

    // Ready it was already, or still is not: no second look.
    let key = web.metadata.key();
    world.handlers.queue.done(&key);
    updated(&world, ready(mine.clone(), ago(9)), newer(ready(mine.clone(), ago(0))));
    updated(&world, mine.clone(), newer(mine));
    assert_eq!(world.take_queued().await, ["web"]);
    assert_eq!(world.clock.sleepers(), 0);
}

/// Upstream: TestDeleteControllerAndExpectations.
#[tokio::test]
async fn test_delete_controller_and_expectations() {
    for deleted in [Deleted::FinalState as fn(_) -> _, Deleted::FinalStateUnknown] {
        let (mut world, web, _) = world();
        let key = web.metadata.key();
        world.own_writes.consistency.wrote_at(
            &key,
            web.uid(),
            kcm_controller_util::GroupResource::PODS,
            "999",
        );
        world.add_pods([pod("of-an-older-version")]);
        assert!(world.own_writes.consistency.ensure_ready(&key).is_err());
        EventHandler::<ReplicaSet>::on_delete(&world.handlers, &deleted(Arc::new(web)));
        assert_eq!(world.own_writes.expectations.get(&key), None);
        assert_eq!(world.own_writes.consistency.ensure_ready(&key), Ok(()));
        assert_eq!(world.take_queued().await, ["web"]);
    }
}

/// Upstream: TestExpectationsOnRecreate.
#[tokio::test]
async fn test_expectations_on_recreate() {
    let (mut world, web, _) = world();
    let anew = changed_replica_set("web", 1, &json!({"metadata": {"uid": "anew"}}));
    let key = world.add_replica_set(&anew);
    EventHandler::<ReplicaSet>::on_update(&world.handlers, &Arc::new(web), &Arc::new(anew));
    assert_eq!(world.take_queued().await, ["web"]);
    assert_eq!(world.own_writes.expectations.get(&key), None);
    assert!(world.syncer.sync_replica_set(&key).await.is_ok());
    assert_eq!(summary(&world.cluster.take()), "create, status");
}

#[tokio::test]
async fn replica_set_added_or_updated_is_enqueued_even_by_a_resync() {
    let (world, web, _) = world();
    let web = Arc::new(web);
    EventHandler::<ReplicaSet>::on_add(&world.handlers, &web, true);
    assert_eq!(outcome(&world).await, (woken(&["web"]), (1, 1), (1, 1)));
    EventHandler::<ReplicaSet>::on_update(&world.handlers, &web, &web);
    assert_eq!(outcome(&world).await, (woken(&["web"]), (1, 1), (1, 1)));
}

#[tokio::test]
async fn terminating_pod_that_loses_its_owner_wakes_the_owner() {
    let (world, web, _) = world();
    let mine = going(owned_by(&web, pod("p")));
    updated(&world, mine, newer(going(pod("p"))));
    assert_eq!(outcome(&world).await, (woken(&["web"]), (1, 0), (1, 1)));
}
