//! Facts that a plan reports for the log.

use kcm_deployment_util::{annotations::AnnotationError, revisions::RevisionProblem};

/// Fact that is logged when the plan has been carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// An annotation of a ReplicaSet is invalid and is ignored.
    InvalidAnnotation(AnnotationError),
    /// The revision of a ReplicaSet or its history could not be updated.
    Revision(RevisionProblem),
    /// `collisionCount` was increased.
    HashCollision {
        /// Previous value.
        from: i32,
        /// New value.
        to: i32,
    },
}
