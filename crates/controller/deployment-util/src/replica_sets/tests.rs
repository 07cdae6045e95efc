use kcm_api::{PodTemplate, Time};
use serde_json::json;

use super::*;
use crate::fixtures::{count, deployment, recreate, replica_set, rolling, template};

fn set(name: &str, created: i64, template: &PodTemplate) -> Arc<ReplicaSet> {
    let mut set = replica_set(name, 1);
    set.metadata.creation_timestamp = Some(Time::from_unix(created));
    set.spec.template = template.clone();
    Arc::new(set)
}

fn hashed(template: &PodTemplate, hash: &str) -> PodTemplate {
    template.with_label(kcm_api::POD_TEMPLATE_HASH_LABEL, Some(hash)).unwrap()
}

fn names<'a>(sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>) -> Vec<&'a str> {
    sets.into_iter().map(|set| &*set.metadata.name).collect()
}

/// `TestEqualIgnoreHash`, in both orders.
#[test]
fn equal_ignore_hash_upstream_cases() {
    const HASH: &str = kcm_api::POD_TEMPLATE_HASH_LABEL;
    type Pairs = [(&'static str, &'static str)];
    let of = |name: &str, node: &str, annotations: &Pairs, labels: &Pairs| {
        let map = |pairs: &Pairs| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect::<serde_json::Map<_, _>>()
        };
        let metadata = json!({"name": name, "annotations": map(annotations), "labels": map(labels)});
        PodTemplate::from_value(&json!({"metadata": metadata, "spec": {"nodeName": node}})).unwrap()
    };
    let plain = |labels: &Pairs| of("foo", "foo-node", &[], labels);
    let one: &Pairs = &[(HASH, "value-1"), ("something", "else")];
    let two: &Pairs = &[(HASH, "value-2"), ("something", "else")];
    let neither: &Pairs = &[("something", "else")];
    let cases = [
        ("Same spec, same labels", plain(one), plain(one), true),
        ("Same spec, only pod-template-hash label value is different", plain(one), plain(two), true),
        ("Same spec, the former doesn't have pod-template-hash label", plain(neither), plain(two), true),
        (
            "Same spec, the label is different, the former doesn't have pod-template-hash label",
            plain(neither),
            plain(&[(HASH, "value-2")]),
            false,
        ),
        (
            "Same spec, the label is different, the latter doesn't have pod-template-hash label",
            plain(&[(HASH, "value-1")]),
            plain(neither),
            false,
        ),
        (
            "Same spec, the label is different, and the pod-template-hash label value is the same",
            plain(&[(HASH, "value-1")]),
            plain(one),
            false,
        ),
        (
            "Different spec, same labels",
            of("foo", "foo-node", &[("former", "value")], one),
            of("foo", "foo-node", &[("latter", "value")], one),
            false,
        ),
        (
            "Different spec, different pod-template-hash label value",
            of("foo-1", "foo-node", &[], one),
            of("foo-2", "foo-node", &[], two),
            false,
        ),
        (
            "Different spec, the former doesn't have pod-template-hash label",
            of("foo-1", "foo-node-1", &[], neither),
            of("foo-2", "foo-node-2", &[], two),
            false,
        ),
        (
            "Different spec, different labels",
            of("foo", "foo-node-1", &[], neither),
            of("foo", "foo-node-2", &[], &[("nothing", "else")]),
            false,
        ),
    ];
    for (name, former, latter, equal) in cases {
        assert_eq!(former.equal_ignore_hash(&latter), equal, "{name}");
        assert_eq!(latter.equal_ignore_hash(&former), equal, "{name}, reversed");
    }
}

/// `TestFindNewReplicaSet`.
#[test]
fn find_new_replica_set_upstream_cases() {
    let d = deployment(1);
    let (same, other) = (&d.spec.template, template("other"));
    let old = set("old", 5, &other);
    let new = set("new", 9, &hashed(same, "hash"));
    let older = set("older", 7, &hashed(same, "different-hash"));
    let cases = [
        (
            "Get new ReplicaSet with the same template as Deployment spec but different pod-template-hash value",
            vec![new.clone(), old.clone()],
            Some("new"),
        ),
        (
            "Get the oldest new ReplicaSet when there are more than one ReplicaSet with the same template",
            vec![new, old.clone(), older],
            Some("older"),
        ),
        ("Get nil new ReplicaSet", vec![old], None),
    ];
    for (name, sets, expected) in cases {
        assert_eq!(
            ReplicaSetSplit::find(&d, &sets).new.as_ref().map(|set| &*set.metadata.name),
            expected,
            "{name}"
        );
    }
}

/// `TestFindOldReplicaSets`.
#[test]
fn find_old_replica_sets_upstream_cases() {
    let d = deployment(1);
    let (same, other) = (&d.spec.template, template("other"));
    let (old, new, older) = (set("old", 5, &other), set("new", 9, same), set("older", 7, same));
    let cases = [
        ("Get old ReplicaSets", vec![new.clone(), old.clone()], vec!["old"]),
        ("Get old ReplicaSets with no new ReplicaSet", vec![old.clone()], vec!["old"]),
        (
            "Get old ReplicaSets with two new ReplicaSets, only the oldest new ReplicaSet is seen as new",
            vec![old, new.clone(), older],
            vec!["old", "new"],
        ),
        ("Get empty old ReplicaSets", vec![new], vec![]),
    ];
    for (name, sets, expected) in cases {
        assert_eq!(names(&ReplicaSetSplit::find(&d, &sets).old), expected, "{name}");
    }
}

fn counted(size: i32, actual: i32, terminating: Option<i32>, observed_generation: i64) -> Arc<ReplicaSet> {
    let mut set = replica_set("rs", size);
    set.status.replicas = actual;
    set.status.terminating_replicas = terminating;
    set.status.observed_generation = observed_generation;
    Arc::new(set)
}

/// `TestGetReplicaCountForReplicaSets`: desired, actual and terminating replicas.
#[test]
fn replica_count_upstream_cases() {
    let rs1 = counted(1, 2, Some(3), 1);
    let rs2 = counted(2, 3, Some(1), 0);
    let rs3 = counted(3, 0, None, 0);
    let rs4 = counted(1, 1, None, 1);
    let cases = [
        ("scaling down rs1", vec![&rs1], (1, 2, Some(3))),
        ("scaling down rs1 and rs2", vec![&rs1, &rs2], (3, 5, Some(4))),
        ("scaling up rs3", vec![&rs3], (3, 0, Some(0))),
        ("scaling down rs1 and rs2 and scaling up rs3", vec![&rs1, &rs2, &rs3], (6, 5, Some(4))),
        ("invalid/unknown terminating status for rs4", vec![&rs4], (1, 1, None)),
        (
            "invalid/unknown terminating status for rs4 with rs1, rs2 and rs3",
            vec![&rs1, &rs2, &rs3, &rs4],
            (7, 6, None),
        ),
        ("none at all", vec![], (0, 0, Some(0))),
    ];
    for (name, sets, expected) in cases {
        let sets = sets.into_iter();
        let found = (
            replica_count(sets.clone()),
            actual_replica_count(sets.clone()),
            terminating_replica_count(sets),
        );
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn find_active_or_latest_returns_the_only_active_or_the_newest() {
    let sized = |name: &str, created, size| {
        let mut set = replica_set(name, size);
        set.metadata.creation_timestamp = Some(Time::from_unix(created));
        Arc::new(set)
    };
    let of = |new: Option<Arc<ReplicaSet>>, old: Vec<Arc<ReplicaSet>>| {
        let split = ReplicaSetSplit { new, old };
        find_active_or_latest(&split).map(|set| set.metadata.name.to_string())
    };
    let old = |a, b| vec![sized("old-a", 1, a), sized("old-b", 2, b)];
    assert_eq!(of(None, vec![]), None);
    assert_eq!(of(None, old(0, 0)).as_deref(), Some("old-b"));
    assert_eq!(of(Some(sized("new", 3, 0)), old(0, 0)).as_deref(), Some("new"));
    assert_eq!(of(Some(sized("new", 3, 0)), old(2, 0)).as_deref(), Some("old-a"));
    assert_eq!(of(Some(sized("new", 3, 1)), old(2, 0)), None);
}

/// `TestAnnotationUtils`: "IsSaturated".
#[test]
fn is_saturated_requires_size_annotation_and_availability() {
    let d = rolling(1, count(0), count(0));
    let mut set = replica_set("rs", 1);
    set.status.available_replicas = 1;
    let annotated = |set: &ReplicaSet, desired_replicas: &str| {
        let mut set = set.clone();
        set.metadata.annotations.insert(DESIRED_REPLICAS.to_owned(), desired_replicas.to_owned());
        set
    };
    assert!(is_saturated(&d, Some(&annotated(&set, "1"))));
    assert!(!is_saturated(&d, None));
    assert!(!is_saturated(&d, Some(&set)), "no annotation");
    assert!(!is_saturated(&d, Some(&annotated(&set, "2"))), "scaled for another size");
    set.status.available_replicas = 0;
    assert!(!is_saturated(&d, Some(&annotated(&set, "1"))), "not available");
}

/// `TestGetDeploymentsForReplicaSet`.
#[test]
fn deployments_for_replica_set_upstream_cases() {
    let selecting = |name: &str, selector: serde_json::Value| {
        let mut d = recreate(1);
        d.metadata.name = name.into();
        d.spec.selector = serde_json::from_value(selector).unwrap();
        Arc::new(d)
    };
    let deployments = [
        selecting("deployment-0", json!({"matchLabels": {"app": "test-0"}})),
        selecting("deployment-1", json!({"matchLabels": {"app": "test-1"}})),
        selecting("deployment-2", json!({"matchLabels": {"app": "test-2"}})),
        selecting("empty", json!({})),
        selecting("missing", json!(null)),
        selecting("broken", json!({"matchExpressions": [{"key": "app", "operator": "Near"}]})),
    ];
    let cases = [
        (
            "GetDeploymentsForReplicaSet for rs-0",
            vec![("app", "test-0"), ("label", "0")],
            vec!["deployment-0"],
        ),
        (
            "GetDeploymentsForReplicaSet for rs-1",
            vec![("app", "test-1"), ("label", "1")],
            vec!["deployment-1"],
        ),
        (
            "GetDeploymentsForReplicaSet for rs-2",
            vec![("app", "test-2"), ("label", "2")],
            vec!["deployment-2"],
        ),
        ("GetDeploymentsForReplicaSet for rs-3", vec![("app", "test-3"), ("label", "3")], vec![]),
        ("GetDeploymentsForReplicaSet for rs-4", vec![("app", "test-4"), ("label", "4")], vec![]),
        ("no labels", vec![], vec![]),
    ];
    for (name, labels, expected) in cases {
        let mut set = replica_set("rs", 1);
        set.metadata.labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let found = deployments_for_replica_set(&deployments, &set);
        assert_eq!(found.iter().map(|d| &*d.metadata.name).collect::<Vec<_>>(), expected, "{name}");
    }
    assert!(selects_everything(deployments[3].spec.selector.as_ref()));
    assert!(!selects_everything(deployments[4].spec.selector.as_ref()), "a missing selector");
}

/// Upstream: TestActiveReplicaSetsFiltering.
#[test]
fn active_replica_sets_filtering() {
    let old = vec![Arc::new(replica_set("none", 0)), Arc::new(replica_set("some", 2))];
    let replica_sets = ReplicaSetSplit { old, new: None };
    assert_eq!(names(replica_sets.active_old()), ["some"]);
    // The API server sets one replica by default.
    assert!(is_active(&ReplicaSet::default()));
}
