//! Revisions of ReplicaSets: the ReplicaSet with the Deployment's template has the highest.

use std::{num::ParseIntError, sync::Arc};

use kcm_api::{Annotations, Deployment, ObjectMeta, ReplicaSet};

use crate::{
    annotations::{REVISION, REVISION_HISTORY, copy_deployment_annotations, set_replicas_annotations},
    fenceposts::max_total_replicas,
};

/// Maximum length of the revision history of a ReplicaSet, in bytes.
///
/// Upstream counterpart: `maxRevHistoryLengthInChars`.
pub const MAX_HISTORY_LENGTH: usize = 2000;

/// Returns the revision of an object, or 0 if it has none.
///
/// Upstream counterpart: `Revision`.
///
/// # Errors
///
/// If the annotation is not an integer.
pub fn revision(metadata: &ObjectMeta) -> Result<i64, ParseIntError> {
    metadata.annotations.get(REVISION).map_or(Ok(0), |text| text.parse())
}

/// Returns the highest revision, or 0 if there is none. Invalid revisions are skipped.
///
/// Upstream counterpart: `MaxRevision`.
///
/// ```
/// use std::sync::Arc;
///
/// use kcm_api::ReplicaSet;
/// use kcm_deployment_util::revisions::max_revision;
///
/// assert_eq!(max_revision(&[Arc::new(ReplicaSet::default())]), 0);
/// ```
pub fn max_revision<'a>(replica_sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>) -> i64 {
    valid_revisions(replica_sets).fold(0, i64::max)
}

/// Returns the second highest revision, or 0 if there is none. Invalid revisions are skipped.
///
/// If two ReplicaSets have the highest revision, it is also the second highest (US-4.14).
///
/// Upstream counterpart: `LastRevision`.
pub fn last_revision<'a>(replica_sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>) -> i64 {
    let (mut highest, mut second) = (0, 0);
    for revision in valid_revisions(replica_sets) {
        if revision >= highest {
            second = highest;
            highest = revision;
        } else if revision > second {
            second = revision;
        }
    }
    second
}

fn valid_revisions<'a>(
    replica_sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>,
) -> impl Iterator<Item = i64> {
    replica_sets.into_iter().filter_map(|set| revision(&set.metadata).ok())
}

/// Sets the revision of the Deployment to that of its new ReplicaSet. Returns `true` if it has changed.
///
/// The text is copied without validation.
///
/// Upstream counterpart: `SetDeploymentRevision`.
pub fn set_deployment_revision(deployment: &mut Deployment, revision: &str) -> bool {
    let annotations = &mut deployment.metadata.annotations;
    let differs = deployment_revision_differs(annotations, revision);
    if differs {
        annotations.insert(REVISION.to_owned(), revision.to_owned());
    }
    differs
}

/// Returns `true` if [`set_deployment_revision`] would change the annotation. A missing annotation equals an empty one.
pub fn deployment_revision_differs(deployment: &Annotations, revision: &str) -> bool {
    deployment.get(REVISION).map_or("", String::as_str) != revision
}

/// Existence of the ReplicaSet whose annotations are updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existence {
    /// The ReplicaSet exists.
    Exists,
    /// The ReplicaSet is about to be created. Its annotations include the sizes of the Deployment.
    ToBeCreated,
}

/// Result of [`set_new_replica_set_annotations`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnotationsUpdate {
    /// `true` if the ReplicaSet must be written.
    pub needs_write: bool,
    /// Problem to be logged, if any.
    pub problem: Option<RevisionProblem>,
}

/// Problem with a ReplicaSet's revision annotations, which does not prevent the sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevisionProblem {
    /// The revision of the ReplicaSet is not an integer and was not updated.
    InvalidRevision {
        /// Value of the annotation.
        revision: String,
        /// Error of the parser.
        error: ParseIntError,
    },
    /// The old revision is longer than the history may be, and was not appended to it.
    HistoryLimitReached {
        /// Maximum length in bytes.
        max_length: usize,
    },
}

/// Updates the annotations of the new ReplicaSet.
///
/// 1. The annotations of the Deployment are copied, apart from those of the controller.
/// 2. The revision is set to `new_revision` if that is higher. It is never lowered: an old ReplicaSet with a higher
///    revision may have been deleted since.
/// 3. A revision that was replaced is appended to the history. Its oldest entries are removed to keep it within
///    `max_history_length` bytes.
///
/// If the present revision is not an integer, the update ends after step 1 and needs no write, even if annotations were
/// copied. The API server receives them with the next write (US-4.8).
///
/// Example: revision 3 of a ReplicaSet with history `1` is replaced by 5 in a rollback. Its history is then `1,3`.
///
/// Upstream counterpart: `SetNewReplicaSetAnnotations`.
pub fn set_new_replica_set_annotations(
    deployment: &Deployment,
    annotations: &mut Annotations,
    new_revision: i64,
    existence: Existence,
    max_history_length: usize,
) -> AnnotationsUpdate {
    let mut needs_write = copy_deployment_annotations(&deployment.metadata.annotations, annotations);
    let mut problem = None;

    let old_revision_text = annotations.get(REVISION).cloned();
    let old_revision = match old_revision_text.as_deref() {
        None | Some("") => 0,
        Some(text) => match text.parse::<i64>() {
            Ok(revision) => revision,
            Err(error) => {
                let problem = RevisionProblem::InvalidRevision { revision: text.to_owned(), error };
                return AnnotationsUpdate { needs_write: false, problem: Some(problem) };
            }
        },
    };
    if old_revision < new_revision {
        annotations.insert(REVISION.to_owned(), new_revision.to_string());
        needs_write = true;
        if let Some(old_revision) = &old_revision_text {
            problem = append_to_history(annotations, old_revision, max_history_length);
        }
    }

    if existence == Existence::ToBeCreated {
        let (desired, max) = (deployment.replicas(), max_total_replicas(deployment));
        needs_write |= set_replicas_annotations(annotations, desired, max);
    }
    AnnotationsUpdate { needs_write, problem }
}

fn append_to_history(
    annotations: &mut Annotations,
    old_revision: &str,
    max_length: usize,
) -> Option<RevisionProblem> {
    let history = annotations.get(REVISION_HISTORY).map_or("", String::as_str);
    let entries: Vec<&str> = history.split(',').collect();
    if entries.first().is_none_or(|first| first.is_empty()) {
        annotations.insert(REVISION_HISTORY.to_owned(), old_revision.to_owned());
        return None;
    }
    let mut length = history.len() + 1 + old_revision.len();
    let mut kept = entries.as_slice();
    while let [oldest, rest @ ..] = kept
        && length > max_length
    {
        // The comma after the entry is removed, too. Without entries only `old_revision` remains.
        length -= oldest.len() + 1;
        kept = rest;
    }
    if length > max_length {
        return Some(RevisionProblem::HistoryLimitReached { max_length });
    }
    let joined = kept.iter().copied().chain([old_revision]).collect::<Vec<_>>().join(",");
    annotations.insert(REVISION_HISTORY.to_owned(), joined);
    None
}

#[cfg(test)]
mod tests;
