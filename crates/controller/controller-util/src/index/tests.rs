use kcm_api::{LabelSelector, Pod};
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
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
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
    let pods = pods.read();
    let of = |namespace: &str, uid: &str| -> Vec<_> {
        pods_of(&pods, &owner(namespace, "web", uid)).cloned().collect()
    };
    let orphans = orphan_pods(&pods, "default").cloned().collect();
    let cases = [
        ("owned by UID, name and kind", of("default", "u"), vec!["default/ours"]),
        ("owned, in another namespace", of("elsewhere", "u"), vec!["elsewhere/elsewhere"]),
        ("owned by another owner", of("default", "unknown"), vec![]),
        ("orphans of the namespace", orphans, vec!["default/orphan"]),
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
    let found: Vec<_> = pods_of(&pods.read(), &owner("default", "web", "u")).cloned().collect();
    assert_eq!(names(&found), ["default/p"]);
}

#[test]
fn pods_matching_with_and_without_hash() {
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
    // The selector requires no single value, so all pods of the namespace are compared.
    assert_eq!(matching(json!({"matchLabels": {"app": "web"}})), ["default/app-only", "default/both"]);
    let either = json!({"matchExpressions": [
        {"key": "pod-template-hash", "operator": "In", "values": ["abc", "xyz"]},
    ]});
    assert_eq!(matching(either), ["default/both", "default/hash-only", "default/other-hash"]);
}

#[test]
fn finds_replica_sets_by_owner_and_orphans_by_namespace() {
    let mut writer = StoreWriter::new(replica_set_indexers());
    let replica_set = |name: &str, namespace: &str, references: serde_json::Value| {
        let metadata = json!({"name": name, "namespace": namespace, "ownerReferences": references});
        Arc::new(serde_json::from_value::<ReplicaSet>(json!({"metadata": metadata})).unwrap())
    };
    let managed = json!([{"kind": "Deployment", "name": "d", "uid": "d-uid", "controller": true}]);
    // An owner reference without `controller` does not make it owned.
    let plain = json!([{"kind": "Deployment", "name": "d", "uid": "d-uid"}]);
    writer.apply(replica_set("managed", "default", managed));
    writer.apply(replica_set("plain", "default", plain));
    writer.apply(replica_set("orphan", "elsewhere", json!([])));
    let store = writer.reader();
    let store = store.read();
    let names = |found: &mut dyn Iterator<Item = &Arc<ReplicaSet>>| -> Vec<String> {
        found.map(|replica_set| replica_set.metadata.name.to_string()).collect()
    };
    assert_eq!(names(&mut replica_sets_of(&store, "d-uid")), ["managed"]);
    let claimable = |namespace, uid| names(&mut claimable_replica_sets(&store, &owner(namespace, "d", uid)));
    assert_eq!(claimable("default", "d-uid"), ["managed", "plain"]);
    assert_eq!(claimable("elsewhere", "d-uid"), ["orphan"], "an owner claims nothing in another namespace");
    assert_eq!(claimable("default", "other"), ["plain"]);
}

mod may_select {
    use std::collections::BTreeMap;

    use kcm_api::Labels;

    use super::*;

    fn labels(of: &[(&str, &str)]) -> Labels {
        of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// A store of Deployments, each with one of the selectors.
    fn deployments(selectors: impl IntoIterator<Item = (String, serde_json::Value)>) -> Store<Deployment> {
        let mut writer = StoreWriter::new(deployment_indexers());
        for (name, selector) in selectors {
            let (namespace, name) = name.split_once('/').unwrap_or(("default", &name));
            let object = json!({
                "metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector},
            });
            writer.apply(Arc::new(serde_json::from_value(object).unwrap()));
        }
        writer.reader()
    }

    fn candidates(store: &Store<Deployment>, labels: &Labels) -> Vec<String> {
        let store = store.read();
        let found = may_select(&store, deployment_index::SELECTOR, "default", labels);
        let mut names: Vec<_> = found.map(|deployment| deployment.metadata.name.to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn returns_each_match_once() {
        let selectors = [
            ("one-label", json!({"matchLabels": {"app": "web"}})),
            ("two-labels", json!({"matchLabels": {"app": "web", "tier": "front"}})),
            ("hash", json!({"matchLabels": {"app": "web", "pod-template-hash": "abc"}})),
            (
                "in",
                json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db", "web"]}]}),
            ),
            ("exists", json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]})),
            ("not-in", json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]})),
            ("empty", json!({})),
            ("missing", json!(null)),
            ("elsewhere/other", json!({"matchLabels": {"app": "web"}})),
        ];
        let selectors = BTreeMap::from(selectors);
        let store = deployments(selectors.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        for labels in [
            labels(&[("app", "web")]),
            labels(&[("app", "web"), ("tier", "front")]),
            labels(&[("app", "web"), ("pod-template-hash", "abc")]),
            labels(&[("app", "db"), ("tier", "front")]),
            labels(&[("other", "label")]),
        ] {
            let found = candidates(&store, &labels);
            let selects = |selector: &serde_json::Value| {
                let selector: Option<LabelSelector> = serde_json::from_value(selector.clone()).unwrap();
                let selector = Selector::new(selector.as_ref()).unwrap();
                !selector.is_empty() && selector.matches(&labels)
            };
            for (name, selector) in &selectors {
                let times = found.iter().filter(|found| *found == name).count();
                assert!(times <= 1, "{name} is found {times} times for {labels:?}");
                if selects(selector) && !name.contains('/') {
                    assert_eq!(times, 1, "{name} for {labels:?}");
                }
            }
            assert!(!found.iter().any(|name| name == "other"), "{labels:?}");
        }
    }

    #[test]
    fn cost_does_not_depend_on_the_size_of_the_namespace() {
        for size in [100, 1000] {
            let selector = |n| json!({"matchLabels": {"app": format!("web-{n}"), "team": "shop"}});
            let store = deployments((0..size).map(|n| (format!("web-{n}"), selector(n))));
            let found = candidates(&store, &labels(&[("app", "web-7"), ("team", "shop"), ("more", "x")]));
            assert_eq!(found, ["web-7"], "of {size}");
        }
    }
}
