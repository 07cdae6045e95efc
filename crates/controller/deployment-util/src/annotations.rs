//! Annotations that the controller writes to ReplicaSets, and those that it copies from the Deployment.

use kcm_api::{Annotations, Deployment, ObjectKey, ReplicaSet};
use thiserror::Error;

/// Revision of a ReplicaSet's template in the history of the Deployment.
pub const REVISION: &str = "deployment.kubernetes.io/revision";

/// Earlier revisions of the same ReplicaSet, oldest first, separated by commas.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";

/// `spec.replicas` of the Deployment when the ReplicaSet was last scaled.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";

/// `spec.replicas` plus `maxSurge` of the Deployment when the ReplicaSet was last scaled.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// Revision to roll back to. Deprecated upstream, and still supported (US-4.14).
pub const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// Last configuration applied by `kubectl apply`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns `true` if annotation `key` is not copied between a Deployment and its ReplicaSets.
///
/// Upstream counterpart: `skipCopyAnnotation`.
fn is_skipped(key: &str) -> bool {
    matches!(key, REVISION | REVISION_HISTORY | DESIRED_REPLICAS | MAX_REPLICAS | ROLLBACK_TO | LAST_APPLIED)
}

/// Copies the annotations of a Deployment to those of a ReplicaSet. Returns `true` if this changed any.
///
/// Annotations are added and overwritten, never removed: an annotation that was removed from the Deployment remains on
/// the ReplicaSet (US-4.8).
///
/// Upstream counterpart: `copyDeploymentAnnotationsToReplicaSet`.
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

/// Replaces the annotations of a Deployment by those of the ReplicaSet that it rolls back to.
///
/// Annotations that are never copied keep the Deployment's values (US-4.14).
///
/// Upstream counterpart: `SetDeploymentAnnotationsTo`.
pub fn set_deployment_annotations_to(deployment: &mut Deployment, rollback_to: &ReplicaSet) {
    let annotations = &mut deployment.metadata.annotations;
    annotations.retain(|key, _| is_skipped(key));
    let copied = rollback_to.metadata.annotations.iter().filter(|(key, _)| !is_skipped(key));
    annotations.extend(copied.map(|(key, value)| (key.clone(), value.clone())));
}

/// Returns the revision that the Deployment's annotation requests a rollback to. 0 means the previous revision.
///
/// Returns `None` if there is no annotation or if it is not an integer.
///
/// Upstream counterpart: `getRollbackTo`.
pub fn rollback_to(deployment: &Deployment) -> Option<i64> {
    deployment.metadata.annotations.get(ROLLBACK_TO)?.parse().ok()
}

/// Annotation of a ReplicaSet that is not a number of replicas.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnnotationError {
    /// The value does not consist of decimal digits.
    #[error("invalid annotation {key} {value:?} of replica set {replica_set}: invalid syntax")]
    Syntax {
        /// ReplicaSet.
        replica_set: ObjectKey,
        /// Name of the annotation.
        key: &'static str,
        /// Value of the annotation.
        value: String,
    },
    /// The value is more than 2147483647.
    #[error("invalid annotation {key} {value:?} of replica set {replica_set}: out of range")]
    OutOfRange {
        /// ReplicaSet.
        replica_set: ObjectKey,
        /// Name of the annotation.
        key: &'static str,
        /// Value of the annotation.
        value: String,
    },
}

/// Returns [`DESIRED_REPLICAS`] of `replica_set`. `None` if there is no such annotation.
///
/// Upstream counterpart: `GetDesiredReplicasAnnotation`.
///
/// # Errors
///
/// If the value is not a decimal number that fits an `i32`.
pub fn desired_replicas(replica_set: &ReplicaSet) -> Result<Option<i32>, AnnotationError> {
    non_negative_i32(replica_set, DESIRED_REPLICAS)
}

/// Returns [`MAX_REPLICAS`] of `replica_set`. `None` if there is no such annotation.
///
/// Upstream counterpart: `getMaxReplicasAnnotation`.
///
/// # Errors
///
/// If the value is not a decimal number that fits an `i32`.
pub fn max_replicas(replica_set: &ReplicaSet) -> Result<Option<i32>, AnnotationError> {
    non_negative_i32(replica_set, MAX_REPLICAS)
}

/// Upstream counterpart: `getNonNegativeInt32FromAnnotationVerbose`.
fn non_negative_i32(replica_set: &ReplicaSet, key: &'static str) -> Result<Option<i32>, AnnotationError> {
    let Some(value) = replica_set.metadata.annotations.get(key) else { return Ok(None) };
    let (name, value) = (|| replica_set.metadata.key(), value.as_str());
    // Unlike Go's `ParseUint`, Rust's parser accepts a leading `+`.
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(AnnotationError::Syntax { replica_set: name(), key, value: value.to_owned() });
    }
    match value.parse() {
        Ok(count) => Ok(Some(count)),
        Err(_) => Err(AnnotationError::OutOfRange { replica_set: name(), key, value: value.to_owned() }),
    }
}

/// Sets [`DESIRED_REPLICAS`] and [`MAX_REPLICAS`]. Returns `true` if this changed any.
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
    // `|`, not `||`: both are set.
    set(DESIRED_REPLICAS, desired) | set(MAX_REPLICAS, max)
}

/// Returns `true` if [`set_replicas_annotations`] would change any annotation.
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

    fn desired(value: Option<&str>) -> Result<Option<i32>, AnnotationError> {
        let mut set = replica_set("foo", 1);
        set.metadata.annotations.extend(value.map(|v| (DESIRED_REPLICAS.to_owned(), v.to_owned())));
        desired_replicas(&set)
    }

    /// `TestGetNonNegativeInt32FromAnnotation`.
    #[test]
    fn non_negative_i32_upstream_cases() {
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
    fn sign_space_and_empty_value_are_invalid() {
        for text in ["+13", "", " 1", "1_0"] {
            assert!(matches!(desired(Some(text)), Err(AnnotationError::Syntax { .. })), "{text:?}");
        }
    }

    /// `TestReplicasAnnotationsNeedUpdate`.
    #[test]
    fn replicas_annotations_need_update_upstream_cases() {
        let with =
            |desired: &str, max: &str| annotations(&[(DESIRED_REPLICAS, desired), (MAX_REPLICAS, max)]);
        let cases = [
            ("test Annotations nil", Annotations::new(), true),
            ("test desiredReplicas update", with("8", "20"), true),
            ("test maxReplicas update", with("10", "16"), true),
            ("test needn't update", with("10", "20"), false),
        ];
        for (name, annotations, needed) in cases {
            assert_eq!(replicas_annotations_need_update(&annotations, 10, 20), needed, "{name}");
        }
    }

    /// `TestAnnotationUtils`: "SetReplicasAnnotations".
    #[test]
    fn set_replicas_annotations_sets_both() {
        let mut set = Annotations::new();
        assert!(set_replicas_annotations(&mut set, 10, 11));
        assert_eq!(set, annotations(&[(DESIRED_REPLICAS, "10"), (MAX_REPLICAS, "11")]));
        assert!(!set_replicas_annotations(&mut set, 10, 11));
    }

    #[test]
    fn copy_adds_and_overwrites() {
        let from = annotations(&[("a", "new"), ("b", "same"), (REVISION, "7"), (LAST_APPLIED, "{}")]);
        let mut to = annotations(&[("a", "old"), ("b", "same"), ("removed", "kept"), (REVISION, "3")]);
        assert!(copy_deployment_annotations(&from, &mut to));
        assert_eq!(to, annotations(&[("a", "new"), ("b", "same"), ("removed", "kept"), (REVISION, "3")]));
        assert!(!copy_deployment_annotations(&from, &mut to));
    }

    mod rollback {
        use super::*;

        #[test]
        fn replaces_the_annotations_of_the_deployment() {
            let mut d = deployment(1);
            d.metadata.annotations =
                annotations(&[("deployment", "1"), (REVISION, "4"), (LAST_APPLIED, "{}")]);
            let mut set = replica_set("foo", 1);
            set.metadata.annotations = annotations(&[("set", "2"), (REVISION, "2"), (MAX_REPLICAS, "9")]);
            set_deployment_annotations_to(&mut d, &set);
            let expected = annotations(&[("set", "2"), (REVISION, "4"), (LAST_APPLIED, "{}")]);
            assert_eq!(d.metadata.annotations, expected);
        }

        #[test]
        fn requires_an_integer() {
            let mut d = deployment(1);
            assert_eq!(rollback_to(&d), None);
            for (text, expected) in
                [("0", Some(0)), ("3", Some(3)), ("-1", Some(-1)), ("", None), ("x", None)]
            {
                d.metadata.annotations.insert(ROLLBACK_TO.to_owned(), text.to_owned());
                assert_eq!(rollback_to(&d), expected, "{text:?}");
            }
        }
    }
}
