//! Upstream's tests of the event handlers (US-5.2).

use std::sync::Arc;

use kcm_api::PodControllerRef;
use kcm_expectations::DeletedObject;
use kcm_informer::Deleted;
use serde_json::json;

use super::*;
use crate::testing::*;

/// Returns a world with ReplicaSets `web` and `other`. Pods of [`pod`] match `web`. Each expects one creation and the
/// deletion of `p`.
fn world() -> (World, ReplicaSet, ReplicaSet) {
    let mut world = World::new();
    let web = replica_set("web", 1);
    let other =
        changed_replica_set("other", 1, &json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}}));
    for replica_set in [&web, &other] {
        let key = world.add_replica_set(replica_set);
        world.own_writes.expectations.expect_deletions(&key, [DeletedObject::of(&pod("p"))]);
        world.own_writes.expectations.lower(&key, -1, 0);
    }
    (world, web, other)
}

/// Returns the enqueued keys, and the expectations of `web` and `other`.
async fn outcome(world: &World) -> (Vec<String>, (i64, i64), (i64, i64)) {
    let expectations =
        |name: &str| world.own_writes.expectations.get(&ObjectKey::new("default", name)).unwrap_or_default();
    (world.take_queued().await, expectations("web"), expectations("other"))
}

fn queued(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn added(world: &World, pod: Pod) {
    world.pod_handler.on_add(&Arc::new(pod), false);
}

fn updated(world: &World, old: Pod, new: Pod) {
    world.pod_handler.on_update(&Arc::new(old), &Arc::new(new));
}

fn deleted(world: &World, pod: Pod) {
    world.pod_handler.on_delete(&Deleted::FinalState(Arc::new(pod)));
}

#[tokio::test]
async fn added_pod_lowers_creations_and_enqueues_its_owner() {
    let (world, web, _) = world();
    added(&world, owned_by(&web, pod("p")));
    assert_eq!(outcome(&world).await, (queued(&["web"]), (0, 1), (1, 1)));
}

/// Upstream: TestOverlappingRSs. Selectors of other ReplicaSets are not compared.
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
async fn added_orphan_enqueues_all_matching_replica_sets() {
    let (mut world, _, _) = world();
    world.add_replica_set(&replica_set("twin", 1));
    added(&world, pod("p"));
    assert_eq!(outcome(&world).await, (queued(&["twin", "web"]), (1, 1), (1, 1)));
}

/// Upstream: TestPodControllerLookup, its three cases and further selectors.
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
        // These selectors match nothing.
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
async fn orphan_without_labels_enqueues_nothing() {
    let mut world = World::new();
    let selector =
        json!({"matchLabels": null, "matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]});
    world.add_replica_set(&changed_replica_set("a", 1, &json!({"spec": {"selector": selector}})));
    added(&world, Pod { labels: Arc::default(), ..pod("p") });
    assert_eq!(world.take_queued().await, [""; 0]);
}

#[tokio::test]
async fn pod_of_an_owner_with_another_uid_or_name_enqueues_nothing() {
    let (world, web, _) = world();
    let with = |change: fn(&mut PodControllerRef)| {
        let mut reference = (**owned_by(&web, pod("p")).controller.as_ref().unwrap()).clone();
        change(&mut reference);
        Pod { controller: Some(Arc::new(reference)), ..pod("p") }
    };
    added(&world, with(|reference| reference.uid = "an-earlier-one".into()));
    added(&world, with(|reference| reference.name = "unknown".into()));
    assert_eq!(outcome(&world).await, (queued(&[]), (1, 1), (1, 1)));
    // The group is not compared.
    added(&world, with(|reference| reference.api_version = "example.org/v1".into()));
    assert_eq!(outcome(&world).await, (queued(&["web"]), (0, 1), (1, 1)));
}

/// Upstream: TestDeletionTimestamp.
#[tokio::test]
async fn test_deletion_timestamp() {
    let (world, web, _) = world();
    let mine = owned_by(&web, pod("p"));

    // Added while it is being deleted: a deletion.
    added(&world, going(mine.clone()));
    assert_eq!(outcome(&world).await, (queued(&["web"]), (1, 0), (1, 1)));

    // Updated and deleted: counted once.
    updated(&world, mine.clone(), newer(going(mine.clone())));
    deleted(&world, going(mine.clone()));
    assert_eq!(outcome(&world).await, (queued(&["web"]), (1, 0), (1, 1)));

    // A deletion that is not expected enqueues the owner.
    world.own_writes.expectations.expect_deletions(&web.metadata.key(), [DeletedObject::of(&mine)]);
    let second = owned_by(&web, pod("second"));
    updated(&world, second.clone(), newer(going(second)));
    assert_eq!(outcome(&world).await, (queued(&["web"]), (0, 1), (1, 1)));
    deleted(&world, mine);
    assert_eq!(outcome(&world).await, (queued(&["web"]), (0, 0), (1, 1)));
}

#[tokio::test]
async fn terminating_pod_with_changed_labels_lowers_deletions_of_both_owners() {
    let (world, web, other) = world();
    let old = owned_by(&web, pod("p"));
    let new = newer(going(owned_by(&other, relabelled(pod("p")))));
    updated(&world, old, new);
    assert_eq!(outcome(&world).await, (queued(&["other", "web"]), (1, 0), (1, 0)));
}

/// Upstream: TestDeleteFinalStateUnknown.
#[tokio::test]
async fn test_delete_final_state_unknown() {
    let (world, web, _) = world();
    let gone = Deleted::FinalStateUnknown(Arc::new(owned_by(&web, pod("p"))));
    world.pod_handler.on_delete(&gone);
    assert_eq!(outcome(&world).await, (queued(&["web"]), (1, 0), (1, 1)));
}

#[tokio::test]
async fn deleted_orphan_enqueues_nothing() {
    let (world, _, _) = world();
    deleted(&world, pod("p"));
    assert_eq!(outcome(&world).await, (queued(&[]), (1, 1), (1, 1)));
}

/// Upstream: TestUpdatePods, its four cases and three more.
#[tokio::test]
async fn test_update_pods() {
    let (world, web, other) = world();
    let (mine, its) = (owned_by(&web, pod("p")), owned_by(&other, pod("p")));
    let mut reference = (**mine.controller.as_ref().unwrap()).clone();
    reference.block_owner_deletion = None;
    let other_reference = Pod { controller: Some(Arc::new(reference)), ..pod("p") };
    struct Case {
        name: &'static str,
        old: Pod,
        new: Pod,
        queued: &'static [&'static str],
        /// Expected deletions of `web` after the update.
        deletions: i64,
    }
    let cases = [
        Case {
            name: "orphan with new labels: the ReplicaSets that match now",
            old: pod("p"),
            new: relabelled(pod("p")),
            queued: &["other"],
            deletions: 1,
        },
        Case {
            name: "another controllerRef: the old owner and the new",
            old: mine.clone(),
            new: its,
            queued: &["other", "web"],
            deletions: 0,
        },
        Case {
            name: "controllerRef removed and labels changed: the old owner and the ReplicaSets that match now",
            old: mine.clone(),
            new: relabelled(pod("p")),
            queued: &["other", "web"],
            deletions: 0,
        },
        Case {
            name: "controllerRef removed, labels as before: the old owner",
            old: mine.clone(),
            new: pod("p"),
            queued: &["web"],
            deletions: 0,
        },
        Case {
            name: "adopted: the new owner",
            old: pod("p"),
            new: mine.clone(),
            queued: &["web"],
            deletions: 1,
        },
        Case {
            name: "orphan with a change of its readiness: nothing",
            old: pod("p"),
            new: ready(pod("p"), ago(0)),
            queued: &[],
            deletions: 1,
        },
        Case {
            name: "another reference to the same owner: once",
            old: mine,
            new: other_reference,
            queued: &["web"],
            deletions: 1,
        },
    ];
    for Case { name, old, new, queued, deletions } in cases {
        updated(&world, old, newer(new));
        let (now_queued, web, other) = outcome(&world).await;
        assert_eq!(now_queued, queued, "{name}");
        assert_eq!((web, other), ((1, deletions), (1, 1)), "{name}");
        world
            .own_writes
            .expectations
            .expect_deletions(&ObjectKey::new("default", "web"), [DeletedObject::of(&pod("p"))]);
        world.own_writes.expectations.lower(&ObjectKey::new("default", "web"), -1, 0);
    }
}

#[tokio::test]
async fn pod_of_the_same_name_is_a_deletion_and_a_creation() {
    let (world, web, other) = world();
    let new = Pod { uid: "another".into(), ..newer(owned_by(&other, pod("p"))) };
    updated(&world, owned_by(&web, pod("p")), new);
    assert_eq!(outcome(&world).await, (queued(&["other", "web"]), (1, 0), (0, 1)));
}

#[tokio::test]
async fn relist_enqueues_unfulfilled_expectations() {
    let (world, _, _) = world();
    world.own_writes.expectations.delete(&ObjectKey::new("default", "other"));
    world.pod_handler.on_replace();
    assert_eq!(world.take_queued().await, ["web"]);
}

#[tokio::test]
async fn relist_lowers_expected_deletions_of_pods_that_it_lacks() {
    let (mut world, web, _) = world();
    let web = web.metadata.key();
    let deletions = |world: &World| world.own_writes.expectations.get(&web).map(|(_, deletions)| deletions);
    world.add_pods([pod("p")]);
    world.pod_handler.on_replace();
    assert_eq!(deletions(&world), Some(1));

    world.pods.lock().remove(&pod("p").key, None);
    world.pod_handler.on_replace();
    assert_eq!(deletions(&world), Some(0));
    assert_eq!(world.take_queued().await, ["other", "web"]);
}

#[tokio::test]
async fn pod_update_of_the_same_version_is_ignored() {
    let (world, web, _) = world();
    let mine = owned_by(&web, pod("p"));
    updated(&world, mine.clone(), going(mine));
    assert_eq!(outcome(&world).await, (queued(&[]), (1, 1), (1, 1)));
}

/// Upstream: TestDeleteControllerAndExpectations.
#[tokio::test]
async fn test_delete_controller_and_expectations() {
    for deleted in [Deleted::FinalState as fn(_) -> _, Deleted::FinalStateUnknown] {
        let (mut world, web, _) = world();
        let key = web.metadata.key();
        world.own_writes.versions.wrote_at(
            &key,
            Arc::clone(&web.metadata.uid),
            kcm_expectations::GroupResource::PODS,
            "999",
        );
        world.add_pods([pod("of-an-older-version")]);
        assert!(world.own_writes.versions.ensure_ready(&key).is_err());
        world.replica_set_handler.on_delete(&deleted(Arc::new(web)));
        assert_eq!(world.own_writes.expectations.get(&key), None);
        assert_eq!(world.own_writes.versions.ensure_ready(&key), Ok(()));
        assert_eq!(world.take_queued().await, ["web"]);
    }
}

/// Upstream: TestExpectationsOnRecreate.
#[tokio::test]
async fn test_expectations_on_recreate() {
    let (mut world, web, _) = world();
    let anew = changed_replica_set("web", 1, &json!({"metadata": {"uid": "anew"}}));
    let key = world.add_replica_set(&anew);
    world.replica_set_handler.on_update(&Arc::new(web), &Arc::new(anew));
    assert_eq!(world.take_queued().await, ["web"]);
    assert_eq!(world.own_writes.expectations.get(&key), None);
    assert!(world.syncer.sync_replica_set(&key).await.is_ok());
    assert_eq!(summary(&world.cluster.take()), "create, status");
}

#[tokio::test]
async fn added_updated_and_resynced_replica_sets_are_enqueued() {
    let (world, web, _) = world();
    let web = Arc::new(web);
    world.replica_set_handler.on_add(&web, true);
    assert_eq!(outcome(&world).await, (queued(&["web"]), (1, 1), (1, 1)));
    world.replica_set_handler.on_update(&web, &web);
    assert_eq!(outcome(&world).await, (queued(&["web"]), (1, 1), (1, 1)));
}

#[tokio::test]
async fn terminating_pod_that_loses_its_owner_wakes_the_owner() {
    let (world, web, _) = world();
    let mine = going(owned_by(&web, pod("p")));
    updated(&world, mine, newer(going(pod("p"))));
    assert_eq!(outcome(&world).await, (queued(&["web"]), (1, 0), (1, 1)));
}

/// The versions of earlier writes may never be reached.
#[tokio::test]
async fn restored_cache_removes_the_records_of_own_writes() {
    for restored in [
        |world: &World| world.pod_handler.on_restore(),
        |world: &World| world.replica_set_handler.on_restore(),
    ] {
        let (world, web, _) = world();
        let (key, uid) = (web.metadata.key(), &web.metadata.uid);
        world.pods.lock().bookmark("5");
        world.own_writes.versions.wrote_at(
            &key,
            Arc::clone(uid),
            kcm_expectations::GroupResource::PODS,
            "999",
        );
        assert!(world.own_writes.versions.ensure_ready(&key).is_err());
        restored(&world);
        assert_eq!(world.own_writes.versions.ensure_ready(&key), Ok(()));
    }
}

/// Returns the first queued key if `other` is queued before a change of a pod of `web`.
fn first_queued(change: impl Fn(&World, Pod)) -> String {
    let (world, web, other) = world();
    world.queue.add(other.metadata.key());
    change(&world, owned_by(&web, pod("p")));
    world.queue.try_get().unwrap().name.to_string()
}

#[test]
fn loss_of_a_ready_pod_is_urgent() {
    let available = |pod: Pod| Pod { resource_version: "6".into(), ..ready(pod, ago(60)) };
    assert_eq!(first_queued(|world, pod| deleted(world, available(pod))), "web");
    assert_eq!(first_queued(|world, pod| updated(world, available(pod.clone()), pod)), "web");
    let terminating = |pod: &Pod| going(ready(pod.clone(), ago(60)));
    assert_eq!(first_queued(|world, pod| updated(world, available(pod.clone()), terminating(&pod))), "web");
    assert_eq!(first_queued(|world, pod| deleted(world, terminating(&pod))), "other");
    assert_eq!(first_queued(|world, pod| updated(world, pod.clone(), available(pod))), "other");
    assert_eq!(first_queued(|world, pod| added(world, available(pod))), "other");
}
