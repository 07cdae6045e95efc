//! Upstream's tests of related pods.

use serde_json::json;

use super::*;

/// A ReplicaSet of the Deployment with this UID that selects pods of `app`.
fn controlled(name: &str, deployment: &str, app: &str) -> ReplicaSet {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "name": deployment, "uid": deployment, "controller": true,
    });
    let change = json!({
        "metadata": {"ownerReferences": [owner]}, "spec": {"selector": {"matchLabels": {"app": app}}},
    });
    changed_replica_set(name, 1, &change)
}

fn going_set(mut replica_set: ReplicaSet) -> ReplicaSet {
    replica_set.metadata.deletion_timestamp = ago(60);
    replica_set
}

fn of_app(name: &str, app: &str) -> Pod {
    Pod { labels: Arc::new(kcm_api::Labels::from([("app".to_owned(), app.to_owned())])), ..pod(name) }
}

/// Returns the related pods of `subject`, given all ReplicaSets and pods.
fn related(subject: &ReplicaSet, sets: &[&ReplicaSet], pods: Vec<Pod>) -> Vec<String> {
    let mut world = World::new();
    for replica_set in sets {
        world.cache_replica_set(replica_set);
    }
    world.add_pods(pods);
    let found =
        related_pods(&REPLICA_SET, subject, &world.syncer.replica_sets, &world.syncer.executor.pods.cache);
    let mut names: Vec<_> = found.iter().map(|pod| pod.key.name.to_string()).collect();
    names.sort();
    names
}

/// Upstream: TestGetReplicaSetsWithSameController, all three, by the pods that are found through them.
#[test]
fn test_get_replica_sets_with_same_controller() {
    struct Case<'a> {
        name: &'static str,
        subject: &'a ReplicaSet,
        replica_sets: &'a [&'a ReplicaSet],
        expected: &'a [&'a str],
    }

    let (some, sibling) = (controlled("rs1", "d", "one"), controlled("rs2", "d", "two"));
    let (unrelated, going) = (controlled("rs3", "o", "three"), going_set(controlled("rs4", "p", "four")));
    let pods = || ["one", "two", "three", "four"].map(|app| of_app(&format!("of-{app}"), app)).into();
    let cases = [
        Case {
            name: "expect to get back a ReplicaSet that is pending deletion",
            subject: &going,
            replica_sets: &[&going, &unrelated],
            expected: &["of-four"],
        },
        Case {
            name: "expect to get back only the given ReplicaSet if there is no related ReplicaSet",
            subject: &some,
            replica_sets: &[&some, &unrelated],
            expected: &["of-one"],
        },
        Case {
            name: "expect to get back the given ReplicaSet as well as any related ReplicaSet but not an unrelated ReplicaSet",
            subject: &some,
            replica_sets: &[&some, &sibling, &unrelated],
            expected: &["of-one", "of-two"],
        },
    ];
    for Case { name, subject, replica_sets, expected } in cases {
        assert_eq!(related(subject, replica_sets, pods()), expected, "{name}");
    }
}

/// Upstream: TestRelatedPodsLookup, all three cases, and unrelated pods.
#[test]
fn test_related_pods_lookup() {
    struct Case<'a> {
        name: &'static str,
        subject: &'a ReplicaSet,
        replica_sets: &'a [&'a ReplicaSet],
        expected: &'a [&'a str],
    }

    let (one, two) = (controlled("one", "d", "one"), controlled("two", "d", "two"));
    let (foreign, twin) = (controlled("foreign", "o", "three"), controlled("twin", "d", "one"));
    let going = going_set(controlled("one", "d", "one"));
    // Only labels are compared, not owners.
    let pods = || vec![of_app("a", "one"), owned_by(&foreign, of_app("b", "two")), of_app("c", "three")];
    let alone = changed_replica_set("alone", 1, &json!({}));
    let cases = [
        Case {
            name: "pods of a ReplicaSet that is pending deletion",
            subject: &going,
            replica_sets: &[&going, &foreign],
            expected: &["a"],
        },
        Case {
            name: "only the pods of the given ReplicaSet if there is no related one",
            subject: &foreign,
            replica_sets: &[&one, &foreign],
            expected: &["c"],
        },
        Case {
            name: "pods of the given ReplicaSet and of a related one but not of an unrelated one",
            subject: &one,
            replica_sets: &[&one, &two, &foreign],
            expected: &["a", "b"],
        },
        // Not upstream's.
        Case {
            name: "none is counted twice",
            subject: &one,
            replica_sets: &[&one, &two, &twin],
            expected: &["a", "b"],
        },
        Case {
            name: "without a controller there are none",
            subject: &alone,
            replica_sets: &[&one, &two],
            expected: &[],
        },
    ];
    for Case { name, subject, replica_sets, expected } in cases {
        assert_eq!(related(subject, replica_sets, pods()), expected, "{name}");
    }
}

#[tokio::test]
async fn node_with_more_related_pods_loses_one_first() {
    let mut world = World::new();
    let references =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true}]);
    let subject = changed_replica_set("web", 1, &json!({"metadata": {"ownerReferences": references}}));
    let key = world.add_replica_set(&subject);
    let on = |node: &str, pod: Pod| Pod { node_name: Some(node.into()), ..pod };
    let other = replica_set("other", 1);
    let sibling = owned_by(&other, on("crowded", pod("sibling")));
    world.add_pods([
        owned_by(&subject, on("empty", pod("a"))),
        owned_by(&subject, on("crowded", pod("b"))),
        sibling,
    ]);
    assert_eq!(sync(&world, &key).await.1, "delete b, status");
}
