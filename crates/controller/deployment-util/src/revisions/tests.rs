use proptest::prelude::*;

use super::*;
use crate::{
    annotations::{DESIRED_REPLICAS, MAX_REPLICAS},
    fixtures::{deployment, replica_set},
};

fn numbered(revision: Option<&str>) -> ReplicaSet {
    let mut set = replica_set("foo", 1);
    set.metadata.annotations.extend(revision.map(|text| (REVISION.to_owned(), text.to_owned())));
    set
}

fn all(revisions: &[Option<&str>]) -> Vec<ReplicaSet> {
    revisions.iter().map(|revision| numbered(*revision)).collect()
}

#[test]
fn max_and_last_revision_pass_over_what_is_no_number() {
    let sets = all(&[Some("1"), None, Some("x"), Some(""), Some("5"), Some("3")]);
    assert_eq!((max_revision(&sets), last_revision(&sets)), (5, 3));
}

#[test]
fn last_revision_with_two_highest_is_the_highest() {
    assert_eq!(last_revision(&all(&[Some("4"), Some("4"), Some("1")])), 4);
}

#[test]
fn last_revision_of_none_or_one_is_zero() {
    assert_eq!(last_revision(&[]), 0);
    assert_eq!(last_revision(&all(&[Some("4")])), 0);
    assert_eq!(max_revision(&all(&[Some("-4")])), 0);
}

/// `TestAnnotationUtils`: "SetNewReplicaSetAnnotations". A limit of five characters holds two entries.
#[test]
fn annotation_utils_raising_the_revision_keeps_the_last_two() {
    let d = deployment(1);
    let mut set = numbered(Some("10"));
    for next in 11..=20 {
        let annotations = &mut set.metadata.annotations;
        assert!(set_new_replica_set_annotations(&d, annotations, next, Existence::Exists, 5), "{next}");
        assert_eq!(annotations[REVISION], next.to_string());
        let expected = if next == 11 { "10".to_owned() } else { format!("{},{}", next - 2, next - 1) };
        assert_eq!(annotations[REVISION_HISTORY], expected, "{next}");
    }
}

#[test]
fn annotations_of_a_set_to_be_created_get_number_and_sizes_and_no_history() {
    let mut d = deployment(10);
    d.metadata.annotations.insert("team".to_owned(), "a".to_owned());
    let mut annotations = Annotations::new();
    assert!(set_new_replica_set_annotations(&d, &mut annotations, 3, Existence::ToBeCreated, 2000));
    let pairs: Vec<_> = annotations.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(pairs, [(DESIRED_REPLICAS, "10"), (MAX_REPLICAS, "10"), (REVISION, "3"), ("team", "a")]);
}

#[test]
fn annotations_with_a_lower_new_number_stay() {
    let mut annotations = numbered(Some("9")).metadata.annotations;
    assert!(!set_new_replica_set_annotations(&deployment(1), &mut annotations, 4, Existence::Exists, 2000));
    assert_eq!(annotations[REVISION], "9");
}

#[test]
fn annotations_with_a_number_that_is_none_are_copied_and_said_to_be_unchanged() {
    let mut d = deployment(1);
    d.metadata.annotations.insert("team".to_owned(), "a".to_owned());
    let mut annotations = numbered(Some("not a number")).metadata.annotations;
    assert!(!set_new_replica_set_annotations(&d, &mut annotations, 4, Existence::Exists, 2000));
    assert_eq!(annotations["team"], "a");
    assert_eq!(annotations[REVISION], "not a number");
}

#[test]
fn annotations_with_an_empty_number_are_numbered_and_keep_the_empty_text_as_history() {
    let mut annotations = numbered(Some("")).metadata.annotations;
    assert!(set_new_replica_set_annotations(&deployment(1), &mut annotations, 4, Existence::Exists, 2000));
    assert_eq!(annotations[REVISION], "4");
    assert_eq!(annotations[REVISION_HISTORY], "");
}

#[test]
fn history_entry_longer_than_the_limit_is_not_appended() {
    let mut annotations = numbered(Some("100000")).metadata.annotations;
    annotations.insert(REVISION_HISTORY.to_owned(), "1".to_owned());
    assert!(set_new_replica_set_annotations(&deployment(1), &mut annotations, 100_001, Existence::Exists, 5));
    assert_eq!(annotations[REVISION_HISTORY], "1");
    assert_eq!(annotations[REVISION], "100001");
}

#[test]
fn deployment_revision_is_taken_over_verbatim() {
    let mut d = deployment(1);
    assert!(!set_deployment_revision(&mut d, ""), "missing and empty are the same");
    assert!(set_deployment_revision(&mut d, "not a number"));
    assert_eq!(d.metadata.annotations[REVISION], "not a number");
    assert!(!set_deployment_revision(&mut d, "not a number"));
}

proptest! {
    /// However often a ReplicaSet is rolled back to, its history stays within the limit and ends with the
    /// number it had last.
    #[test]
    fn history_stays_within_its_limit(limit in 1_usize..60, steps in prop::collection::vec(1_i64..5000, 1..40)) {
        let d = deployment(1);
        let mut annotations = numbered(Some("1")).metadata.annotations;
        let mut current = 1;
        for step in steps {
            let next = current + step;
            let before = annotations.get(REVISION_HISTORY).cloned();
            set_new_replica_set_annotations(&d, &mut annotations, next, Existence::Exists, limit);
            let history = annotations[REVISION_HISTORY].clone();
            if before.is_some() && before.as_ref() != Some(&history) {
                prop_assert!(history.len() <= limit, "{history} > {limit}");
                let last = history.rsplit(',').next().map(str::to_owned);
                prop_assert_eq!(last, Some(current.to_string()));
            }
            current = next;
        }
    }
}
