//! Request to be authorized, and its refusal.

use http::HeaderMap;
use rustls::pki_types::CertificateDer;

use super::user::User;

/// Credentials and target of a request.
pub(crate) struct Attempt<'a> {
    pub(crate) certificates: &'a [CertificateDer<'static>],
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
    /// The authorizer failed.
    Unknown(String),
}
