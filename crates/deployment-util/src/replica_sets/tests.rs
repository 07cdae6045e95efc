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

/// `TestEqualIgnoreHash`, all ten pairs in both orders.
#[test]
fn equal_ignore_hash_all_cases_as_upstream() {
    let of = |name: &str, annotations: &[(&str, &str)], labels: &[(&str, &str)]| {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect::<serde_json::Map<_, _>>()
        };
        let metadata = json!({"name": name, "annotations": map(annotations), "labels": map(labels)});
        PodTemplate::from_value(&json!({ "metadata": metadata })).unwrap()
    };
    const HASH: &str = kcm_api::POD_TEMPLATE_HASH_LABEL;
    let plain = |labels: &[(&str, &str)]| of("foo", &[], labels);
    let (v1, v2) = (&[("former", "v1")][..], &[("latter", "v2")][..]);
    let one = [(HASH, "value-1"), ("something", "else")];
    let two = [(HASH, "value-2"), ("something", "else")];
    let neither = [("something", "else")];
    let cases = [
        ("same spec, same labels", plain(&one), plain(&one), true),
        ("same spec, only hash value differs", plain(&one), plain(&two), true),
        ("same spec, one without the hash", plain(&one), plain(&neither), true),
        ("same spec, same number of labels", plain(&[("something", "else")]), plain(&[(HASH, "v")]), false),
        ("same spec, another label", plain(&one), plain(&[(HASH, "value-1"), ("nothing", "else")]), false),
        ("different annotations, same hash", of("foo", v1, &one), of("foo", v2, &one), false),
        ("different annotations, other hash", of("foo", v1, &one), of("foo", v2, &two), false),
        ("different annotations, one hash", of("foo", v1, &neither), of("foo", v2, &two), false),
        ("different name, same hash", of("foo", &[], &one), of("bar", &[], &one), false),
        ("different name, one hash", of("foo", &[], &one), of("bar", &[], &neither), false),
    ];
    for (name, a, b, equal) in cases {
        assert_eq!(a.equal_ignore_hash(&b), equal, "{name}");
        assert_eq!(b.equal_ignore_hash(&a), equal, "{name}, the other way round");
    }
}

/// `TestFindNewReplicaSet`, all three.
#[test]
fn find_new_replica_set_all_cases_as_upstream() {
    let d = deployment(1);
    let (same, other) = (&d.spec.template, template("other"));
    let old = set("old", 5, &other);
    let new = |name: &str, created| set(name, created, &hashed(same, "different-hash"));
    let found = |sets: &[Arc<ReplicaSet>]| Roles::find(&d, sets).new.map(|set| set.metadata.name.to_string());
    assert_eq!(found(&[new("new", 9), old.clone()]).as_deref(), Some("new"), "despite the hash");
    let several = [new("younger", 9), old.clone(), new("older", 7)];
    assert_eq!(found(&several).as_deref(), Some("older"), "the oldest of several");
    assert_eq!(found(&[old]), None, "none");
}

/// `TestFindOldReplicaSets`, all four.
#[test]
fn find_old_replica_sets_all_cases_as_upstream() {
    let d = deployment(1);
    let (same, other) = (&d.spec.template, template("other"));
    let old = set("old", 5, &other);
    let new = set("new", 9, same);
    let of = |sets: &[Arc<ReplicaSet>]| {
        let roles = Roles::find(&d, sets);
        names(&roles.old).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of(&[new.clone(), old.clone()]), ["old"], "with the new one");
    assert_eq!(of(std::slice::from_ref(&old)), ["old"], "without a new one");
    assert_eq!(of(&[set("newer", 10, same), old, new]), ["old", "newer"], "the younger of two that match");
    assert!(of(&[]).is_empty(), "none");
}

fn counted(size: i32, actual: i32, terminating: Option<i32>, generation: i64) -> ReplicaSet {
    let mut set = replica_set("rs", size);
    set.status.replicas = actual;
    set.status.terminating_replicas = terminating;
    set.status.observed_generation = generation;
    set
}

/// `TestGetReplicaCountForReplicaSets`, all six.
#[test]
fn get_replica_count_for_replica_sets_all_cases_as_upstream() {
    let of = |sets: &[ReplicaSet]| {
        (replica_count(sets), actual_replica_count(sets), terminating_replica_count(sets))
    };
    assert_eq!(of(&[]), (0, 0, Some(0)), "none");
    assert_eq!(of(&[counted(1, 2, Some(0), 1)]), (1, 2, Some(0)), "one");
    assert_eq!(of(&[counted(1, 2, Some(4), 1), counted(2, 3, Some(1), 1)]), (3, 5, Some(5)), "two");
    assert_eq!(of(&[counted(1, 2, None, 0)]), (1, 2, Some(0)), "one nobody has looked at");
    assert_eq!(of(&[counted(1, 2, None, 0), counted(2, 3, Some(1), 1)]), (3, 5, Some(1)), "one of two");
    assert_eq!(
        of(&[counted(1, 2, None, 1), counted(2, 3, Some(1), 1)]),
        (3, 5, None),
        "one that does not say"
    );
}

#[test]
fn active_or_latest_is_the_only_active_one_or_the_newest() {
    let sized = |name: &str, created, size| {
        let mut set = replica_set(name, size);
        set.metadata.creation_timestamp = Some(Time::from_unix(created));
        Arc::new(set)
    };
    let of = |new: Option<Arc<ReplicaSet>>, old: Vec<Arc<ReplicaSet>>| {
        let roles = Roles { new, old };
        find_active_or_latest(&roles).map(|set| set.metadata.name.to_string())
    };
    let old = |a, b| vec![sized("old-a", 1, a), sized("old-b", 2, b)];
    assert_eq!(of(None, vec![]), None);
    assert_eq!(of(None, old(0, 0)).as_deref(), Some("old-b"));
    assert_eq!(of(Some(sized("new", 3, 0)), old(0, 0)).as_deref(), Some("new"));
    assert_eq!(of(Some(sized("new", 3, 0)), old(2, 0)).as_deref(), Some("old-a"));
    assert_eq!(of(Some(sized("new", 3, 1)), old(2, 0)), None);
}

/// `TestAnnotationUtils`, "IsSaturated", and what saturation must not be taken from.
#[test]
fn is_saturated_needs_size_note_and_availability() {
    let d = rolling(1, count(0), count(0));
    let mut set = counted(1, 1, None, 1);
    set.status.available_replicas = 1;
    let noted = |set: &ReplicaSet, note: &str| {
        let mut set = set.clone();
        set.metadata.annotations.insert(DESIRED_REPLICAS.to_owned(), note.to_owned());
        set
    };
    assert!(is_saturated(&d, Some(&noted(&set, "1"))));
    assert!(!is_saturated(&d, None));
    assert!(!is_saturated(&d, Some(&set)), "no note");
    assert!(!is_saturated(&d, Some(&noted(&set, "2"))), "noted for another size");
    set.status.available_replicas = 0;
    assert!(!is_saturated(&d, Some(&noted(&set, "1"))), "not available");
}

/// `TestGetDeploymentsForReplicaSet`, and selectors that take none.
#[test]
fn get_deployments_for_replica_set_goes_by_labels() {
    let selecting = |name: &str, selector: serde_json::Value| {
        let mut d = recreate(1);
        d.metadata.name = name.into();
        d.spec.selector = serde_json::from_value(selector).unwrap();
        Arc::new(d)
    };
    let deployments = [
        selecting("bar", json!({"matchLabels": {"foo": "bar"}})),
        selecting("empty", json!({})),
        selecting("missing", json!(null)),
        selecting("broken", json!({"matchExpressions": [{"key": "foo", "operator": "Near"}]})),
    ];
    let of = |labels: &[(&str, &str)]| {
        let mut set = replica_set("rs", 1);
        set.metadata.labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let found = deployments_for_replica_set(&deployments, &set);
        found.into_iter().map(|d| d.metadata.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(of(&[("foo", "bar"), ("x", "y")]), ["bar"]);
    assert!(of(&[("foo", "other")]).is_empty());
    assert!(of(&[]).is_empty());
    assert!(selects_everything(deployments[1].spec.selector.as_ref()));
    assert!(!selects_everything(deployments[2].spec.selector.as_ref()), "missing takes none");
}
