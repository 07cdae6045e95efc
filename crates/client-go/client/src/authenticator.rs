//! Authentication of single requests, instead of that of their connections.

use futures_util::future::BoxFuture;
use http::HeaderValue;
use kcm_api::ApiError;

/// Source of the header `Authorization`.
pub(crate) trait Authenticator: Send + Sync {
    /// Returns the header.
    ///
    /// # Errors
    ///
    /// If there are no credentials. The request is not sent.
    fn authorization(&self) -> BoxFuture<'_, Result<HeaderValue, ApiError>>;

    /// Discards the credentials after a 401 for `header`.
    fn refused<'a>(&'a self, header: &'a HeaderValue) -> BoxFuture<'a, ()>;
}
