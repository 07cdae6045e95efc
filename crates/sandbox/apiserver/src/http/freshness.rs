//! Requests that wait for a lagging watch cache.

use std::{sync::Arc, time::Duration};

use http::Method;

use super::{
    options::{list_options, send_initial_events},
    query::Query,
    route::Target,
};
use crate::{ApiStatus, ResourceVersionMatch, store::WatchCache};

/// Time that a request waits for the cache to reach a revision.
///
/// Upstream counterpart: `blockTimeout`.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(3);

/// Revision that the cache must have reached before it serves requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequiredRevision {
    /// Any: the request takes the state that the cache has.
    Any,
    /// At least this one.
    AtLeast(u64),
    /// At least the revision of the store at the time of the request. If the cache is too slow, the store answers.
    Consistent,
    /// The store answers.
    Store,
}

/// Waits until `cache` is fresh enough for the request. Returns `None` if the store serves it.
///
/// `current` is the revision of the store at the time of the request.
///
/// Upstream counterpart: `delegator.ShouldDelegateList`, `waitUntilWatchCacheFreshAndForceAllEvents`.
///
/// # Errors
///
/// 504 if the cache has not reached a minimum version in time.
///
/// # Cancel safety
///
/// Dropping the future has no effect.
pub(super) async fn cache_for(
    cache: &Arc<WatchCache>,
    current: u64,
    method: &Method,
    target: &Target,
    query: &Query,
) -> Result<Option<Arc<WatchCache>>, ApiStatus> {
    let (minimum, consistent) = match required_revision(method, target, query, current) {
        RequiredRevision::Store => return Ok(None),
        RequiredRevision::Any => return Ok(Some(Arc::clone(cache))),
        RequiredRevision::AtLeast(revision) => (revision, false),
        RequiredRevision::Consistent => (current, true),
    };
    if cache.wait_for_at_most(minimum, BLOCK_TIMEOUT).await {
        Ok(Some(Arc::clone(cache)))
    } else if consistent {
        Ok(None)
    } else {
        Err(ApiStatus::too_large_resource_version(minimum, cache.revision()))
    }
}

fn required_revision(method: &Method, target: &Target, query: &Query, current: u64) -> RequiredRevision {
    if method != Method::GET || target.subresource.is_some() {
        return RequiredRevision::Store;
    }
    if query.flag("watch").unwrap_or_default() {
        return match send_initial_events(query) {
            Some((true, version)) => RequiredRevision::AtLeast(version.unwrap_or(current)),
            _ => RequiredRevision::Any,
        };
    }
    if target.name.is_some() {
        return RequiredRevision::Store;
    }
    // The verb rejects invalid options.
    let Ok(options) = list_options(query, target) else { return RequiredRevision::Store };
    match (options.resource_version, options.version_match) {
        _ if options.continue_token.is_some() => RequiredRevision::Store,
        (_, Some(ResourceVersionMatch::Exact)) => RequiredRevision::Store,
        (None, _) => RequiredRevision::Consistent,
        (Some(version), _) => RequiredRevision::AtLeast(version),
    }
}
