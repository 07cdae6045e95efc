//! What the controller keeps on ReplicaSets, and what travels there from the Deployment.

use kcm_api::{Annotations, Deployment, ReplicaSet};
use thiserror::Error;

/// The number of a ReplicaSet's template in the Deployment's history.
pub const REVISION: &str = "deployment.kubernetes.io/revision";

/// Earlier numbers of the same ReplicaSet, oldest first, separated by commas.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";

/// The Deployment's size when the ReplicaSet was last scaled.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";

/// The Deployment's size and surge when the ReplicaSet was last scaled.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// Asks for a rollback to the revision in it; deprecated, and still honoured (US-4.14).
pub const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// What `kubectl apply` keeps for itself.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether annotation `key` stays where it is when annotations travel between a Deployment and its
/// ReplicaSets.
pub fn is_skipped(key: &str) -> bool {
    matches!(key, REVISION | REVISION_HISTORY | DESIRED_REPLICAS | MAX_REPLICAS | ROLLBACK_TO | LAST_APPLIED)
}

/// Copies what travels from a Deployment's annotations to a ReplicaSet's; tells whether anything changed.
///
/// Adds and overwrites only: what was taken off the Deployment stays on the ReplicaSet (US-4.8).
pub fn copy_deployment_annotations(deployment: &Annotations, replica_set: &mut Annotations) -> bool {
    let mut changed = false;
    for (key, value) in deployment {
        if !is_skipped(key) && replica_set.get(key) != Some(value) {
            replica_set.insert(key.clone(), value.clone());
            changed = true;
        }
    }
    changed
}

/// Gives a Deployment the annotations of the ReplicaSet that it rolls back to.
///
/// Upstream counterpart: `SetDeploymentAnnotationsTo`. The Deployment's own annotations are dropped, all but
/// those that never travel (US-4.14).
pub fn set_deployment_annotations_to(deployment: &mut Deployment, rollback_to: &ReplicaSet) {
    let annotations = &mut deployment.metadata.annotations;
    annotations.retain(|key, _| is_skipped(key));
    let travelling = rollback_to.metadata.annotations.iter().filter(|(key, _)| !is_skipped(key));
    annotations.extend(travelling.map(|(key, value)| (key.clone(), value.clone())));
}

/// The revision that the Deployment's annotation asks to roll back to; 0 means the one before.
///
/// Upstream counterpart: `getRollbackTo`. What is no number counts as not asked.
pub fn rollback_to(deployment: &Deployment) -> Option<i64> {
    deployment.metadata.annotations.get(ROLLBACK_TO)?.parse().ok()
}

/// An annotation that should be a count and is none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CountError {
    /// It is not made of digits alone.
    #[error("annotation {key:?} of replica set {replica_set:?}: value {value:?}: invalid syntax")]
    Syntax {
        /// The ReplicaSet's name.
        replica_set: String,
        /// The annotation.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// It is more than 2147483647.
    #[error("annotation {key:?} of replica set {replica_set:?}: value {value:?}: out of range")]
    Range {
        /// The ReplicaSet's name.
        replica_set: String,
        /// The annotation.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

/// The count in annotation `key`; `None` where there is no such annotation.
///
/// Upstream counterpart: `getNonNegativeInt32FromAnnotationVerbose`.
///
/// # Errors
///
/// When the text is not made of digits, or says more than an `i32` holds.
pub fn count(replica_set: &ReplicaSet, key: &'static str) -> Result<Option<i32>, CountError> {
    let Some(value) = replica_set.metadata.annotations.get(key) else { return Ok(None) };
    let name = || replica_set.metadata.name.to_string();
    // Rust's parser would take a leading `+`; upstream's for unsigned numbers does not.
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CountError::Syntax { replica_set: name(), key, value: value.clone() });
    }
    match value.parse() {
        Ok(count) => Ok(Some(count)),
        Err(_) => Err(CountError::Range { replica_set: name(), key, value: value.clone() }),
    }
}

/// The Deployment's size when `replica_set` was last scaled. What is no count is logged and counts as absent.
pub fn desired_replicas(replica_set: &ReplicaSet) -> Option<i32> {
    count_or_log(replica_set, DESIRED_REPLICAS)
}

/// The Deployment's size and surge when `replica_set` was last scaled, likewise.
pub fn max_replicas(replica_set: &ReplicaSet) -> Option<i32> {
    count_or_log(replica_set, MAX_REPLICAS)
}

fn count_or_log(replica_set: &ReplicaSet, key: &'static str) -> Option<i32> {
    count(replica_set, key).unwrap_or_else(|error| {
        tracing::debug!(namespace = %replica_set.metadata.namespace, %error, "Could not convert the annotation");
        None
    })
}

/// Notes the Deployment's size on a ReplicaSet; tells whether that changed anything.
///
/// Upstream counterpart: `SetReplicasAnnotations`.
pub fn set_replicas_annotations(annotations: &mut Annotations, desired: i32, max: i32) -> bool {
    let mut set = |key: &str, count: i32| {
        let value = count.to_string();
        let differs = annotations.get(key) != Some(&value);
        if differs {
            annotations.insert(key.to_owned(), value);
        }
        differs
    };
    // Both are set, also when the first has changed already.
    set(DESIRED_REPLICAS, desired) | set(MAX_REPLICAS, max)
}

/// Whether [`set_replicas_annotations`] would change anything.
///
/// Upstream counterpart: `ReplicasAnnotationsNeedUpdate`.
pub fn replicas_annotations_need_update(annotations: &Annotations, desired: i32, max: i32) -> bool {
    let differs =
        |key: &str, count: i32| annotations.get(key).is_none_or(|value| *value != count.to_string());
    differs(DESIRED_REPLICAS, desired) || differs(MAX_REPLICAS, max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{deployment, replica_set};

    fn annotations(pairs: &[(&str, &str)]) -> Annotations {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn desired(value: Option<&str>) -> Result<Option<i32>, CountError> {
        let mut set = replica_set("foo", 1);
        set.metadata.annotations.extend(value.map(|v| (DESIRED_REPLICAS.to_owned(), v.to_owned())));
        count(&set, DESIRED_REPLICAS)
    }

    /// `TestGetNonNegativeInt32FromAnnotation`, all eight.
    #[test]
    fn get_non_negative_int32_from_annotation_all_cases_as_upstream() {
        let cases = [
            ("invalid empty", None, Ok(None)),
            ("invalid", Some("invalid"), Err("invalid syntax")),
            ("invalid negative", Some("-1"), Err("invalid syntax")),
            ("valid zero", Some("0"), Ok(Some(0))),
            ("valid", Some("13"), Ok(Some(13))),
            ("valid max", Some("2147483647"), Ok(Some(i32::MAX))),
            ("invalid max out of range", Some("2147483648"), Err("out of range")),
            ("invalid max out of range 2", Some("4294967296"), Err("out of range")),
        ];
        for (name, text, expected) in cases {
            match (desired(text).map_err(|error| error.to_string()), expected) {
                (Err(error), Err(ending)) => assert!(error.ends_with(ending), "{name}: {error}"),
                (found, expected) => assert_eq!(found, expected.map_err(str::to_owned), "{name}"),
            }
        }
    }

    #[test]
    fn count_with_a_sign_or_nothing_is_no_count() {
        for text in ["+13", "", " 1", "1_0"] {
            assert!(matches!(desired(Some(text)), Err(CountError::Syntax { .. })), "{text:?}");
        }
    }

    /// `TestReplicasAnnotationsNeedUpdate`, all four.
    #[test]
    fn replicas_annotations_need_update_all_cases_as_upstream() {
        let with =
            |desired: &str, max: &str| annotations(&[(DESIRED_REPLICAS, desired), (MAX_REPLICAS, max)]);
        let cases = [
            ("test Annotations nil", Annotations::new(), true),
            ("test desiredReplicas update", with("8", "20"), true),
            ("test maxReplicas update", with("10", "16"), true),
            ("test needn't update", with("10", "20"), false),
        ];
        for (name, noted, needed) in cases {
            assert_eq!(replicas_annotations_need_update(&noted, 10, 20), needed, "{name}");
        }
    }

    /// `TestAnnotationUtils`: "SetReplicasAnnotations".
    #[test]
    fn annotation_utils_set_replicas_annotations_sets_both() {
        let mut set = Annotations::new();
        assert!(set_replicas_annotations(&mut set, 10, 11));
        assert_eq!(set, annotations(&[(DESIRED_REPLICAS, "10"), (MAX_REPLICAS, "11")]));
        assert!(!set_replicas_annotations(&mut set, 10, 11));
    }

    #[test]
    fn copied_annotations_add_and_overwrite_and_leave_the_rest() {
        let from = annotations(&[("a", "new"), ("b", "same"), (REVISION, "7"), (LAST_APPLIED, "{}")]);
        let mut to = annotations(&[("a", "old"), ("b", "same"), ("gone", "stays"), (REVISION, "3")]);
        assert!(copy_deployment_annotations(&from, &mut to));
        assert_eq!(to, annotations(&[("a", "new"), ("b", "same"), ("gone", "stays"), (REVISION, "3")]));
        assert!(!copy_deployment_annotations(&from, &mut to));
    }

    #[test]
    fn rollback_annotations_replace_the_deployments_own() {
        let mut d = deployment(1);
        d.metadata.annotations = annotations(&[("own", "1"), (REVISION, "4"), (LAST_APPLIED, "{}")]);
        let mut set = replica_set("foo", 1);
        set.metadata.annotations = annotations(&[("theirs", "2"), (REVISION, "2"), (MAX_REPLICAS, "9")]);
        set_deployment_annotations_to(&mut d, &set);
        let expected = annotations(&[("theirs", "2"), (REVISION, "4"), (LAST_APPLIED, "{}")]);
        assert_eq!(d.metadata.annotations, expected);
    }

    #[test]
    fn rollback_to_that_is_no_number_is_not_asked() {
        let mut d = deployment(1);
        assert_eq!(rollback_to(&d), None);
        for (text, asked) in [("0", Some(0)), ("3", Some(3)), ("-1", Some(-1)), ("", None), ("x", None)] {
            d.metadata.annotations.insert(ROLLBACK_TO.to_owned(), text.to_owned());
            assert_eq!(rollback_to(&d), asked, "{text:?}");
        }
    }
}
