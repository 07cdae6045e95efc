use proptest::prelude::*;

use super::*;
use crate::{
    annotations::{DESIRED_REPLICAS, MAX_REPLICAS},
    fixtures::{deployment, replica_set},
};

fn with_revision(revision: Option<&str>) -> Arc<ReplicaSet> {
    let mut set = replica_set("foo", 1);
    set.metadata.annotations.extend(revision.map(|text| (REVISION.to_owned(), text.to_owned())));
    Arc::new(set)
}

fn with_revisions(revisions: &[Option<&str>]) -> Vec<Arc<ReplicaSet>> {
    revisions.iter().map(|revision| with_revision(*revision)).collect()
}

mod highest {
    use super::*;

    #[test]
    fn skips_invalid_revisions() {
        let sets = with_revisions(&[Some("1"), None, Some("x"), Some(""), Some("5"), Some("3")]);
        assert_eq!((max_revision(&sets), last_revision(&sets)), (5, 3));
    }

    #[test]
    fn counts_twice_if_two_have_it() {
        assert_eq!(last_revision(&with_revisions(&[Some("4"), Some("4"), Some("1")])), 4);
    }

    #[test]
    fn defaults_to_zero() {
        assert_eq!(last_revision(&[]), 0);
        assert_eq!(last_revision(&with_revisions(&[Some("4")])), 0);
        assert_eq!(max_revision(&with_revisions(&[Some("-4")])), 0);
    }
}

mod new_replica_set_annotations {
    use super::*;

    /// Updates the annotations of an existing ReplicaSet with this revision.
    fn update(d: &Deployment, revision: &str, new_revision: i64) -> (Annotations, AnnotationsUpdate) {
        let mut annotations = with_revision(Some(revision)).metadata.annotations.clone();
        let update =
            set_new_replica_set_annotations(d, &mut annotations, new_revision, Existence::Exists, 2000);
        (annotations, update)
    }

    fn written() -> AnnotationsUpdate {
        AnnotationsUpdate { needs_write: true, problem: None }
    }

    /// `TestAnnotationUtils`: "SetNewReplicaSetAnnotations". The history has room for two revisions.
    #[test]
    fn annotation_utils_upstream_case() {
        let d = deployment(1);
        let mut annotations = with_revision(Some("10")).metadata.annotations.clone();
        for next in 11..=20 {
            let update = set_new_replica_set_annotations(&d, &mut annotations, next, Existence::Exists, 5);
            assert_eq!(update, written(), "{next}");
            assert_eq!(annotations[REVISION], next.to_string());
            let expected = if next == 11 { "10".to_owned() } else { format!("{},{}", next - 2, next - 1) };
            assert_eq!(annotations[REVISION_HISTORY], expected, "{next}");
        }
    }

    #[test]
    fn of_a_set_to_be_created_include_the_sizes() {
        let mut d = deployment(10);
        d.metadata.annotations.insert("team".to_owned(), "a".to_owned());
        let mut annotations = Annotations::new();
        let update = set_new_replica_set_annotations(&d, &mut annotations, 3, Existence::ToBeCreated, 2000);
        assert_eq!(update, written());
        let pairs: Vec<_> = annotations.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [(DESIRED_REPLICAS, "10"), (MAX_REPLICAS, "10"), (REVISION, "3"), ("team", "a")]);
    }

    #[test]
    fn keep_a_higher_revision() {
        let (annotations, update) = update(&deployment(1), "9", 4);
        assert_eq!(update, AnnotationsUpdate { needs_write: false, problem: None });
        assert_eq!(annotations[REVISION], "9");
    }

    #[test]
    fn with_an_invalid_revision_are_copied_but_not_written() {
        let mut d = deployment(1);
        d.metadata.annotations.insert("team".to_owned(), "a".to_owned());
        let (annotations, update) = update(&d, "not a number", 4);
        assert!(!update.needs_write);
        assert!(matches!(update.problem, Some(RevisionProblem::InvalidRevision { .. })), "{update:?}");
        assert_eq!(annotations["team"], "a");
        assert_eq!(annotations[REVISION], "not a number");
    }

    #[test]
    fn with_an_empty_revision_have_an_empty_history() {
        let (annotations, update) = update(&deployment(1), "", 4);
        assert_eq!(update, written());
        assert_eq!(annotations[REVISION], "4");
        assert_eq!(annotations[REVISION_HISTORY], "");
    }

    #[test]
    fn omit_a_revision_that_is_longer_than_the_history() {
        let mut annotations = with_revision(Some("100000")).metadata.annotations.clone();
        annotations.insert(REVISION_HISTORY.to_owned(), "1".to_owned());
        let update =
            set_new_replica_set_annotations(&deployment(1), &mut annotations, 100_001, Existence::Exists, 5);
        let problem = Some(RevisionProblem::HistoryLimitReached { max_length: 5 });
        assert_eq!(update, AnnotationsUpdate { needs_write: true, problem });
        assert_eq!(annotations[REVISION_HISTORY], "1");
        assert_eq!(annotations[REVISION], "100001");
    }

    #[test]
    fn documented_example() {
        let mut annotations = with_revision(Some("3")).metadata.annotations.clone();
        annotations.insert(REVISION_HISTORY.to_owned(), "1".to_owned());
        set_new_replica_set_annotations(&deployment(1), &mut annotations, 5, Existence::Exists, 2000);
        assert_eq!((&*annotations[REVISION], &*annotations[REVISION_HISTORY]), ("5", "1,3"));
    }
}

#[test]
fn deployment_revision_is_copied_verbatim() {
    let mut d = deployment(1);
    assert!(!set_deployment_revision(&mut d, ""), "a missing annotation equals an empty one");
    assert!(set_deployment_revision(&mut d, "not a number"));
    assert_eq!(d.metadata.annotations[REVISION], "not a number");
    assert!(!set_deployment_revision(&mut d, "not a number"));
}

proptest! {
    /// A history that has changed is within its limit and ends with the previous revision.
    #[test]
    fn history_stays_within_its_limit(limit in 1_usize..60, steps in prop::collection::vec(1_i64..5000, 1..40)) {
        let d = deployment(1);
        let mut annotations = with_revision(Some("1")).metadata.annotations.clone();
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
