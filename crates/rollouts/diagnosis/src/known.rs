//! Objects that may not be readable.

use std::ops::Deref;

use serde::Serialize;

/// Input that was read, or the reason for which it was not.
///
/// An input that was not read is not empty: a rule that needs it does not apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known<T> {
    /// The input.
    Read(T),
    /// The request failed, or was not made.
    Unread(Unreadable),
}

/// Resource that the caller could not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unreadable {
    /// Plural name of the resource, such as `nodes`.
    pub resource: String,
    /// Error of the request.
    pub reason: String,
    /// Permission that the caller lacks, such as `list pods in namespace shop`. `None` if the request failed for another
    /// reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission: Option<String>,
}

impl<T> Known<T> {
    /// Input of a request that was not made.
    pub fn not_requested(resource: &str) -> Self {
        Self::Unread(Unreadable {
            resource: resource.to_owned(),
            reason: "not requested".to_owned(),
            permission: None,
        })
    }

    /// Applies `change` to an input that was read.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Known<U> {
        match self {
            Self::Read(input) => Known::Read(change(input)),
            Self::Unread(unread) => Known::Unread(unread),
        }
    }

    /// The input. `None` if it was not read.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Read(input) => Some(input),
            Self::Unread(_) => None,
        }
    }

    /// `true` if the input was read.
    pub fn is_known(&self) -> bool {
        matches!(self, Self::Read(_))
    }

    /// The reason for which the input was not read.
    pub fn unread(&self) -> Option<&Unreadable> {
        match self {
            Self::Read(_) => None,
            Self::Unread(unread) => Some(unread),
        }
    }
}

impl<T, L: Deref<Target = [T]>> Known<L> {
    /// Objects of a list. Those of a list that was not read are none, so a caller must not conclude that they do not exist.
    pub fn seen(&self) -> &[T] {
        self.known().map_or(&[], Deref::deref)
    }
}
