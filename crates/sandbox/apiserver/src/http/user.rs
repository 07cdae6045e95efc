//! Authentication.

use http::{HeaderMap, header};

use super::{program::Users, route::Route};
use crate::{ApiStatus, StatusReason};

/// User of a request.
///
/// Upstream counterpart: `user.Info`. There is no authorization: every authenticated user may do everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// User name.
    pub name: String,
    /// UID, which distinguishes users of the same name, or empty.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
}

impl User {
    /// User of all requests if no tokens are configured.
    pub fn admin() -> Self {
        Self::of_groups("system:admin", &["system:masters", "system:authenticated"])
    }

    fn anonymous() -> Self {
        Self::of_groups("system:anonymous", &["system:unauthenticated"])
    }

    fn of_groups(name: &str, groups: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            uid: String::new(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        }
    }
}

/// Authenticates a request. Without a token, health, version and the web page are accessible, the first two as with
/// upstream's default roles.
///
/// # Errors
///
/// 401 if the token is missing or unknown.
pub(super) fn authenticate(
    users: &Users,
    headers: &HeaderMap,
    route: Result<&Route, &ApiStatus>,
) -> Result<User, ApiStatus> {
    let unauthorized = || ApiStatus::new(StatusReason::Unauthorized, "Unauthorized");
    let Some(given) = headers.get(header::AUTHORIZATION) else {
        // The page contains no data and prompts for the token.
        let public = matches!(route, Ok(Route::Health | Route::Version | Route::Page));
        return public.then(User::anonymous).ok_or_else(unauthorized);
    };
    let (scheme, token) = given.to_str().ok().and_then(|given| given.split_once(' ')).unwrap_or_default();
    let user = scheme.eq_ignore_ascii_case("bearer").then(|| users(token.trim())).flatten();
    user.ok_or_else(unauthorized)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn requests_without_valid_token_are_unauthorized() {
        let users: Users = Arc::new(|token| {
            let alice = User { name: "alice".to_owned(), ..User::anonymous() };
            Some(alice).filter(|_| token == "secret")
        });
        let ask = |path: &str, given: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(given) = given {
                headers.insert(header::AUTHORIZATION, given.parse().unwrap());
            }
            let route = Route::parse(path, Arc::default);
            authenticate(&users, &headers, route.as_ref()).map(|user| user.name).map_err(|no| no.code())
        };
        assert_eq!(ask("/api/v1/pods", Some("Bearer secret")), Ok("alice".to_owned()));
        assert_eq!(ask("/api/v1/pods", Some("bearer secret")), Ok("alice".to_owned()));
        for wrong in [None, Some("Bearer other"), Some("Basic secret"), Some("secret"), Some("")] {
            assert_eq!(ask("/api/v1/pods", wrong), Err(401), "{wrong:?}");
        }
        assert_eq!(ask("/readyz", None), Ok("system:anonymous".to_owned()));
        assert_eq!(ask("/ui", None), Ok("system:anonymous".to_owned()));
        assert_eq!(ask("/readyz", Some("Bearer other")), Err(401));
        assert_eq!(ask("/nowhere", None), Err(401));
    }
}
