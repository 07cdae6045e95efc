//! Numbering of ReplicaSets: the newest template has the highest number.

use std::num::ParseIntError;

use kcm_api::{Annotations, Deployment, ObjectMeta, ReplicaSet};

use crate::{
    annotations::{REVISION, REVISION_HISTORY, copy_deployment_annotations, set_replicas_annotations},
    fenceposts::max_surge,
};

/// How long the history of a ReplicaSet's numbers may get, in characters.
pub const MAX_HISTORY_LENGTH: usize = 2000;

/// The number of an object's template; 0 where it has none yet.
///
/// # Errors
///
/// When the annotation is no number.
pub fn revision(metadata: &ObjectMeta) -> Result<i64, ParseIntError> {
    metadata.annotations.get(REVISION).map_or(Ok(0), |text| text.parse())
}

/// The highest number there is; 0 without any. What is no number is passed over.
pub fn max_revision<'a>(replica_sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i64 {
    numbers(replica_sets).fold(0, i64::max)
}

/// The second highest number, which is the one to go back to; 0 without any.
///
/// Two that are both the highest count twice (US-4.14).
pub fn last_revision<'a>(replica_sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i64 {
    let (mut highest, mut second) = (0, 0);
    for number in numbers(replica_sets) {
        if number >= highest {
            second = highest;
            highest = number;
        } else if number > second {
            second = number;
        }
    }
    second
}

fn numbers<'a>(replica_sets: impl IntoIterator<Item = &'a ReplicaSet>) -> impl Iterator<Item = i64> {
    replica_sets.into_iter().filter_map(|set| revision(&set.metadata).ok())
}

/// Gives the Deployment the number of its new ReplicaSet, as text and unseen; tells whether that changed it.
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

/// Whether [`set_deployment_revision`] would change anything: looking costs nothing, changing costs a copy.
///
/// A missing annotation and an empty one are the same here, as they are upstream.
pub fn deployment_revision_differs(deployment: &Annotations, revision: &str) -> bool {
    deployment.get(REVISION).map_or("", String::as_str) != revision
}

/// Whether a ReplicaSet exists, or is about to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existence {
    /// It exists.
    Exists,
    /// It is about to be created: it gets the Deployment's size noted too.
    ToBeCreated,
}

/// Brings the annotations of the new ReplicaSet up to date; tells whether that is worth a write.
///
/// Upstream counterpart: `SetNewReplicaSetAnnotations`. Three things happen:
///
/// 1. The Deployment's annotations are copied, all that travel.
/// 2. The number is raised to `new_revision`, never lowered: an old ReplicaSet with a higher number may have
///    been cleaned up meanwhile.
/// 3. If there was a number before, the ReplicaSet is in use for another time, and the old number goes to its
///    history, which is kept within `max_history_length` characters by dropping its oldest entries.
///
/// An old number that is no integer ends it after the first step, and the answer is then *no* whatever the
/// first step did: the copies reach the server only with a write that has another reason (US-4.8).
pub fn set_new_replica_set_annotations(
    deployment: &Deployment,
    annotations: &mut Annotations,
    new_revision: i64,
    existence: Existence,
    max_history_length: usize,
) -> bool {
    let mut changed = copy_deployment_annotations(&deployment.metadata.annotations, annotations);

    let old_text = annotations.get(REVISION).cloned();
    let old_revision = match old_text.as_deref() {
        None | Some("") => 0,
        Some(text) => match text.parse::<i64>() {
            Ok(number) => number,
            Err(error) => {
                tracing::info!(deployment = %deployment.metadata.key(), revision = text, %error,
                    "Updating replica set revision: old revision is not an integer");
                return false;
            }
        },
    };
    if old_revision < new_revision {
        annotations.insert(REVISION.to_owned(), new_revision.to_string());
        changed = true;
        if let Some(old) = &old_text {
            append_to_history(annotations, old, max_history_length);
        }
    }

    if existence == Existence::ToBeCreated {
        let desired = deployment.replicas();
        changed |=
            set_replicas_annotations(annotations, desired, desired.wrapping_add(max_surge(deployment)));
    }
    changed
}

fn append_to_history(annotations: &mut Annotations, old: &str, max_length: usize) {
    let history = annotations.get(REVISION_HISTORY).map_or("", String::as_str);
    let entries: Vec<&str> = history.split(',').collect();
    if entries.first().is_none_or(|first| first.is_empty()) {
        annotations.insert(REVISION_HISTORY.to_owned(), old.to_owned());
        return;
    }
    let mut length = history.len() + 1 + old.len();
    let mut kept = entries.as_slice();
    while let [oldest, rest @ ..] = kept
        && length > max_length
    {
        // Each entry goes with its comma; with all of them gone, `old` alone is left.
        length -= oldest.len() + 1;
        kept = rest;
    }
    if length > max_length {
        tracing::info!(max_length, "Not appending revision: the history is full");
        return;
    }
    let joined = kept.iter().copied().chain([old]).collect::<Vec<_>>().join(",");
    annotations.insert(REVISION_HISTORY.to_owned(), joined);
}

#[cfg(test)]
mod tests;
