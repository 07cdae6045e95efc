//! Request to be authorized, and its refusal.

use http::HeaderMap;

use super::{trust::ClientChain, user::User};

/// Credentials and target of a request.
pub(crate) struct Attempt<'a> {
    pub(crate) chain: &'a ClientChain,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
}

/// Reason why a request is denied.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The credentials are invalid.
    Unauthorized,
    /// The user is not authorized.
    Forbidden {
        user: User,
        /// Reason of the authorizer. May be empty.
        reason: String,
    },
    /// Too many other reviews are pending.
    Busy,
    /// The authorizer failed.
    Unknown(String),
}
