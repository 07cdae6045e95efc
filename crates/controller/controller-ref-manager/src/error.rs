use std::{collections::BTreeSet, fmt, sync::Arc};

use kcm_api::{ApiError, ObjectKey, Time};
use thiserror::Error;

/// Why an object could not be claimed or released.
#[derive(Debug, Clone, Error)]
pub enum ClaimError {
    /// The owner may not adopt any more.
    #[error("can't adopt {kind} {key} ({uid}): {source}")]
    AdoptionRefused {
        /// The kind of the object that was to be adopted.
        kind: &'static str,
        /// Namespace and name of the object.
        key: ObjectKey,
        /// UID of the object.
        uid: Arc<str>,
        /// Why not.
        #[source]
        source: AdoptionRefused,
    },
    /// The patch failed. Displays as the server said it.
    #[error(transparent)]
    Patch(#[from] ApiError),
}

/// Why an owner may not adopt any more.
#[derive(Debug, Clone, Error)]
pub enum AdoptionRefused {
    /// The owner could not be read.
    #[error("can't recheck DeletionTimestamp: {0}")]
    Recheck(#[source] ApiError),
    /// Another object has the owner's name by now.
    #[error("can't recheck DeletionTimestamp: original {kind} {key} is gone: got uid {got}, wanted {wanted}")]
    Gone {
        /// The owner's kind.
        kind: &'static str,
        /// Namespace and name of the owner.
        key: ObjectKey,
        /// The UID that is there.
        got: Arc<str>,
        /// The owner's UID.
        wanted: Arc<str>,
    },
    /// The owner is being deleted; the cache did not know yet.
    #[error("{key} has just been deleted at {at}")]
    OwnerIsBeingDeleted {
        /// Namespace and name of the owner.
        key: ObjectKey,
        /// Since when.
        at: Time,
    },
}

/// All that went wrong while claiming.
///
/// Displays one error as it is, and several distinct ones as `[a, b]`, as upstream's aggregate does.
#[derive(Debug, Clone)]
pub struct ClaimErrors(Vec<ClaimError>);

impl ClaimErrors {
    /// The errors together, or none where there are none.
    pub(crate) fn collect(errors: Vec<ClaimError>) -> Option<Self> {
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// One by one, in the order in which they came up.
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
    /// The first error.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.first().map(|error| error as _)
    }
}
