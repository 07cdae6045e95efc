use std::{borrow::Cow, collections::BTreeSet, fmt, sync::Arc};

use kcm_api::{ApiError, ObjectKey, Time};
use thiserror::Error;

/// Error of the adoption or release of one object.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The owner must not adopt.
    #[error("can't adopt {kind} {key} ({uid}): {source}")]
    AdoptionRefused {
        /// Kind of the object.
        kind: Cow<'static, str>,
        /// Namespace and name of the object.
        key: ObjectKey,
        /// UID of the object.
        uid: Arc<str>,
        /// Reason.
        #[source]
        source: AdoptionRefused,
    },
    /// The patch failed.
    #[error(transparent)]
    Patch(#[from] ApiError),
}

/// Reason why an owner must not adopt.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum AdoptionRefused {
    /// The owner could not be read.
    #[error("can't recheck DeletionTimestamp: {0}")]
    Recheck(#[source] ApiError),
    /// Another object has the name of the owner.
    #[error("can't recheck DeletionTimestamp: original {kind} {key} is gone: got uid {got}, wanted {wanted}")]
    Gone {
        /// Kind of the owner.
        kind: Cow<'static, str>,
        /// Namespace and name of the owner.
        key: ObjectKey,
        /// UID of the other object.
        got: Arc<str>,
        /// UID of the owner.
        wanted: Arc<str>,
    },
    /// The owner is being deleted. The cache does not contain the deletion yet.
    #[error("{key} has just been deleted at {at}")]
    OwnerIsBeingDeleted {
        /// Namespace and name of the owner.
        key: ObjectKey,
        /// Time of the deletion.
        at: Time,
    },
}

/// All errors of [`claim`](crate::claim).
///
/// `Display` gives the message of a single error, and `[a, b]` for several different messages.
///
/// Upstream counterpart: `utilerrors.Aggregate`.
#[derive(Debug, Clone)]
pub struct ClaimErrors(Vec<ClaimError>);

impl ClaimErrors {
    /// Returns `None` if `errors` is empty.
    pub(crate) fn collect(errors: Vec<ClaimError>) -> Option<Self> {
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// `true` if each error was caused by an API server that was not available, or by a cache that is late: the owner has been
    /// deleted, or is being deleted. See [`ApiError::is_temporary`].
    pub fn are_temporary(&self) -> bool {
        self.iter().all(|error| match error {
            ClaimError::Patch(error) => error.is_temporary(),
            ClaimError::AdoptionRefused { source: AdoptionRefused::Recheck(error), .. } => {
                error.is_temporary() || error.is_not_found()
            }
            ClaimError::AdoptionRefused { .. } => true,
        })
    }

    /// Returns the errors in the order in which they occurred.
    pub fn iter(&self) -> impl Iterator<Item = &ClaimError> {
        self.0.iter()
    }
}

impl fmt::Display for ClaimErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut seen = BTreeSet::new();
        let mut texts = self.0.iter().map(ToString::to_string).collect::<Vec<_>>();
        texts.retain(|text| seen.insert(text.clone()));
        match texts.as_slice() {
            [text] => f.write_str(text),
            texts => write!(f, "[{}]", texts.join(", ")),
        }
    }
}

impl std::error::Error for ClaimErrors {
    /// Returns the first error.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.first().map(|error| error as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_errors_are_temporary_if_each_is() {
        let patch = |code| ClaimError::Patch(ApiError::status(code, "", ""));
        let refused = |source| ClaimError::AdoptionRefused {
            kind: "Pod".into(),
            key: ObjectKey::new("default", "pod"),
            uid: "1".into(),
            source,
        };
        let recheck = refused(AdoptionRefused::Recheck(ApiError::Transport("connection broken".into())));
        let missing = refused(AdoptionRefused::Recheck(ApiError::status(404, "NotFound", "")));
        let forbidden = refused(AdoptionRefused::Recheck(ApiError::status(403, "Forbidden", "")));
        let gone = refused(AdoptionRefused::Gone {
            kind: "ReplicaSet".into(),
            key: ObjectKey::new("default", "web"),
            got: "2".into(),
            wanted: "1".into(),
        });
        let are_temporary = |errors: &[&ClaimError]| {
            ClaimErrors(errors.iter().map(|error| (*error).clone()).collect()).are_temporary()
        };
        assert!(are_temporary(&[&patch(503), &recheck, &missing, &gone]));
        assert!(!are_temporary(&[&patch(503), &patch(422)]));
        assert!(!are_temporary(&[&forbidden]));
    }
}
