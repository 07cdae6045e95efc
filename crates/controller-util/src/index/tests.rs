use kcm_api::LabelSelector;
use kcm_informer::StoreWriter;
use serde_json::json;

use super::*;
use crate::testing::{labelled, owned, pod};

fn store(pods: Vec<Pod>) -> Store<Pod> {
    let mut writer = StoreWriter::new(pod_indexers());
    for pod in pods {
        writer.apply(Arc::new(pod));
    }
    writer.reader()
}

fn owner(namespace: &str, name: &str, uid: &str) -> OwnerIdentity {
    OwnerIdentity {
        api_version: "apps/v1",
        kind: "ReplicaSet",
        namespace: namespace.into(),
        name: name.into(),
        uid: uid.into(),
        deleting: false,
    }
}

fn names(pods: &[Arc<Pod>]) -> Vec<String> {
    let mut names: Vec<_> = pods.iter().map(|pod| pod.key.to_string()).collect();
    names.sort();
    names
}

fn elsewhere(pod: Pod) -> Pod {
    Pod { key: kcm_api::ObjectKey::new("elsewhere", &*pod.key.name), ..pod }
}

/// Upstream: TestFilterPodsByOwner, its four cases and some more; upstream has one function for owned pods and
/// orphans together.
#[test]
fn test_filter_pods_by_owner() {
    let other_kind = |pod: Pod| {
        let mut reference = (**pod.controller.as_ref().unwrap()).clone();
        reference.kind = "StatefulSet".into();
        Pod { controller: Some(Arc::new(reference)), ..pod }
    };
    let pods = store(vec![
        owned(pod("ours"), "web", "u"),
        owned(pod("of-an-earlier-one-of-that-name"), "web", "u-earlier"),
        owned(pod("our-uid-another-name"), "other", "u"),
        other_kind(owned(pod("our-uid-another-kind"), "web", "u")),
        elsewhere(owned(pod("elsewhere"), "web", "u")),
        pod("orphan"),
        elsewhere(pod("orphan-elsewhere")),
    ]);
    let of = |namespace: &str, uid: &str| pods_of(&pods, &owner(namespace, "web", uid));
    let cases = [
        ("owned by UID, name and kind", of("default", "u"), vec!["default/ours"]),
        ("owned, in another namespace", of("elsewhere", "u"), vec!["elsewhere/elsewhere"]),
        ("owned by nobody we know", of("default", "unknown"), vec![]),
        ("orphans of the namespace", orphan_pods(&pods, "default"), vec!["default/orphan"]),
    ];
    for (name, found, expected) in cases {
        assert_eq!(names(&found), expected, "{name}");
    }
}

#[test]
fn group_of_the_owner_is_not_compared() {
    let mut reference = (**owned(pod("p"), "web", "u").controller.as_ref().unwrap()).clone();
    reference.api_version = "example.org/v7".into();
    let pods = store(vec![Pod { controller: Some(Arc::new(reference)), ..pod("p") }]);
    assert_eq!(names(&pods_of(&pods, &owner("default", "web", "u"))), ["default/p"]);
}

#[test]
fn pods_matching_finds_the_same_with_and_without_the_hash_index() {
    let mut both = labelled(pod("both"), POD_TEMPLATE_HASH_LABEL, "abc");
    Arc::make_mut(&mut both.labels).insert("app".to_owned(), "web".to_owned());
    let pods = store(vec![
        labelled(pod("hash-only"), POD_TEMPLATE_HASH_LABEL, "abc"),
        both,
        labelled(pod("app-only"), "app", "web"),
        labelled(pod("other-hash"), POD_TEMPLATE_HASH_LABEL, "xyz"),
        labelled(elsewhere(pod("elsewhere")), POD_TEMPLATE_HASH_LABEL, "abc"),
    ]);
    let matching = |selector| {
        let selector: LabelSelector = serde_json::from_value(selector).unwrap();
        names(&pods_matching(&pods, "default", &Selector::new(Some(&selector)).unwrap()))
    };
    assert_eq!(
        matching(json!({"matchLabels": {"pod-template-hash": "abc"}})),
        ["default/both", "default/hash-only"]
    );
    assert_eq!(
        matching(json!({"matchLabels": {"pod-template-hash": "abc", "app": "web"}})),
        ["default/both"]
    );
    // No one value is asked for, so all pods of the namespace are tried.
    assert_eq!(matching(json!({"matchLabels": {"app": "web"}})), ["default/app-only", "default/both"]);
    let either = json!({"matchExpressions": [
        {"key": "pod-template-hash", "operator": "In", "values": ["abc", "xyz"]},
    ]});
    assert_eq!(matching(either), ["default/both", "default/hash-only", "default/other-hash"]);
}

#[test]
fn replica_sets_are_found_by_owner_and_orphans_by_namespace() {
    let mut writer = StoreWriter::new(replica_set_indexers());
    let replica_set = |name: &str, namespace: &str, references: serde_json::Value| {
        let metadata = json!({"name": name, "namespace": namespace, "ownerReferences": references});
        Arc::new(serde_json::from_value::<ReplicaSet>(json!({"metadata": metadata})).unwrap())
    };
    let managed = json!([{"kind": "Deployment", "name": "d", "uid": "d-uid", "controller": true}]);
    // An owner that does not manage it leaves it an orphan.
    let plain = json!([{"kind": "Deployment", "name": "d", "uid": "d-uid"}]);
    writer.apply(replica_set("managed", "default", managed));
    writer.apply(replica_set("plain", "default", plain));
    writer.apply(replica_set("orphan", "elsewhere", json!([])));
    let store = writer.reader();
    let names = |found: Vec<Arc<ReplicaSet>>| -> Vec<String> {
        found.iter().map(|replica_set| replica_set.metadata.name.to_string()).collect()
    };
    assert_eq!(names(replica_sets_of(&store, "d-uid")), ["managed"]);
    assert_eq!(names(orphan_replica_sets(&store, "default")), ["plain"]);
    assert_eq!(names(orphan_replica_sets(&store, "elsewhere")), ["orphan"]);
}
