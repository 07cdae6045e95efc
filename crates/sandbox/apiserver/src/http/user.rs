//! Authentication.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue, header, request::Parts};
use serde_json::{Value, json};

use super::{program::Users, query::percent_decode, route::Route};
use crate::{
    ApiServer, ApiStatus, StatusReason,
    service_account::{make_group_names, split_username},
};

/// Further attributes of a user, by lower-case key.
pub type UserExtra = BTreeMap<String, Vec<String>>;

/// User of a request.
///
/// Upstream counterpart: `user.Info`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// User name.
    pub name: String,
    /// UID, which distinguishes users of the same name, or empty.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Further attributes.
    pub extra: UserExtra,
}

/// Group of all users with credentials.
const AUTHENTICATED: &str = "system:authenticated";

impl User {
    /// User of all requests if no tokens are configured.
    pub fn admin() -> Self {
        Self::of_groups("system:admin", &["system:masters", AUTHENTICATED])
    }

    /// User with credentials. The group of all such users is added, unless `groups` contains it.
    pub fn authenticated(name: String, uid: String, groups: Vec<String>) -> Self {
        Self { name, uid, groups, ..Self::default() }.with_group(AUTHENTICATED)
    }

    /// `true` if the user is in a group.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Returns the user as a `UserInfo`.
    pub(crate) fn to_value(&self) -> Value {
        let mut info = json!({"username": self.name});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        if !self.groups.is_empty() {
            info["groups"] = self.groups.as_slice().into();
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }

    fn with_group(mut self, group: &str) -> Self {
        if !self.is_in(group) {
            self.groups.push(group.to_owned());
        }
        self
    }

    fn anonymous() -> Self {
        Self::of_groups("system:anonymous", &["system:unauthenticated"])
    }

    fn of_groups(name: &str, groups: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..Self::default()
        }
    }
}

/// Authenticates a request by its token, or by the [`User`] of its connection, which the server adds to the extensions of the
/// request. Without both, the user is anonymous if requests are authorized. Otherwise health, version and the web page are
/// accessible, the first two as with upstream's default roles.
///
/// Without `users`, a request without a token of a service account is that of an administrator.
///
/// # Errors
///
/// 401 if the token is missing, unknown or not valid any more.
pub(super) fn authenticate(
    server: &ApiServer,
    users: Option<&Users>,
    parts: &Parts,
    route: Result<&Route, &ApiStatus>,
) -> Result<User, ApiStatus> {
    let unauthorized = || ApiStatus::new(StatusReason::Unauthorized, "Unauthorized");
    if let Some(user) = parts.extensions.get::<User>() {
        return Ok(user.clone());
    }
    let given = parts.headers.get(header::AUTHORIZATION);
    let credentials = given.and_then(|given| given.to_str().ok()?.split_once(' '));
    let token = credentials.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let token = token.map(|(_, token)| token.trim());
    if let Some(user) = token.and_then(|token| users?(token)) {
        return Ok(user);
    }
    match token.and_then(|token| server.authenticate_token(token, server.audiences())) {
        Some(authenticated) => authenticated.map(|found| found.user).map_err(|_| unauthorized()),
        None if users.is_none() => Ok(User::admin()),
        None if given.is_some() => Err(unauthorized()),
        None => {
            // The page contains no data and prompts for the token.
            let public =
                matches!(route, Ok(Route::Health(..) | Route::HealthCheck | Route::Version | Route::Page));
            let is_anonymous = server.config.anonymous_auth && (public || server.config.rbac);
            is_anonymous.then(User::anonymous).ok_or_else(unauthorized)
        }
    }
}

/// Returns the status of a TokenReview.
///
/// Upstream counterpart: `tokenreview.REST.Create`.
pub(super) fn review_token(
    server: &ApiServer,
    users: Option<&Users>,
    token: &str,
    audiences: &[String],
) -> Value {
    let own = server.audiences();
    let requested = if audiences.is_empty() { own } else { audiences };
    let authenticated = |user: &User, audiences: Vec<String>| {
        let user = user.to_value();
        json!({"authenticated": true, "user": user, "audiences": audiences})
    };
    // Tokens of users are valid for the audiences of the API server.
    let shared: Vec<String> = own.iter().filter(|own| requested.contains(own)).cloned().collect();
    if let Some(user) = users.filter(|_| !shared.is_empty()).and_then(|users| users(token)) {
        return authenticated(&user, shared);
    }
    let error = match server.authenticate_token(token, requested) {
        Some(Ok(found)) => return authenticated(&found.user, found.audiences),
        Some(Err(reason)) => format!("[invalid bearer token, {reason}]"),
        None => "invalid bearer token".to_owned(),
    };
    json!({"user": {}, "error": error})
}

/// Text of a header, which may have characters other than ASCII.
fn text_of(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Groups that a request impersonates.
pub(super) fn impersonated_groups(headers: &HeaderMap) -> Vec<String> {
    let groups = headers.get_all("impersonate-group").into_iter();
    groups.map(text_of).collect()
}

/// Further attributes of the user that a request impersonates.
fn impersonated_extra(headers: &HeaderMap) -> UserExtra {
    let mut extra = UserExtra::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix("impersonate-extra-") else { continue };
        let values = extra.entry(percent_decode(key).to_lowercase()).or_default();
        values.push(text_of(value));
    }
    extra
}

/// Returns the user that a request impersonates, if it does.
///
/// Upstream counterpart: `WithImpersonation`.
///
/// # Errors
///
/// 500, as upstream, for a UID or a group without a user name.
pub(super) fn impersonated(headers: &HeaderMap) -> Result<Option<User>, ApiStatus> {
    let text = |name| headers.get(name).map(text_of).unwrap_or_default();
    let mut groups = impersonated_groups(headers);
    let extra = impersonated_extra(headers);
    let (name, uid) = (text("impersonate-user"), text("impersonate-uid"));
    if name.is_empty() {
        if uid.is_empty() && groups.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        let message = "requested impersonation without impersonating a user";
        return Err(ApiStatus::new(StatusReason::InternalError, message));
    }
    let anonymous = User::anonymous();
    if name == anonymous.name {
        return Ok(Some(User { name, uid, groups, extra }.with_group(&anonymous.groups[0])));
    }
    if let Some((namespace, _)) = split_username(&name).filter(|_| groups.is_empty()) {
        groups = make_group_names(namespace);
    }
    Ok(Some(User { extra, ..User::authenticated(name, uid, groups) }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ApiServerConfig;

    #[test]
    fn requests_without_valid_token_are_unauthorized() {
        let server = ApiServer::new(ApiServerConfig::default());
        let users: Users = Arc::new(|token| {
            let alice = User { name: "alice".to_owned(), ..User::anonymous() };
            Some(alice).filter(|_| token == "secret")
        });
        let ask = |path: &str, given: Option<&str>| {
            let mut request = http::Request::new(());
            if let Some(given) = given {
                request.headers_mut().insert(header::AUTHORIZATION, given.parse().unwrap());
            }
            let route = Route::parse(path, Arc::default);
            authenticate(&server, Some(&users), &request.into_parts().0, route.as_ref())
                .map(|user| user.name)
                .map_err(|no| no.code())
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
        let server =
            ApiServer::new(ApiServerConfig { anonymous_auth: false, rbac: true, ..Default::default() });
        let parts = http::Request::new(()).into_parts().0;
        let route = Route::parse("/readyz", Arc::default);
        let refused = authenticate(&server, Some(&users), &parts, route.as_ref());
        assert_eq!(refused.unwrap_err().code(), 401);
    }

    #[test]
    fn connection_of_a_user_needs_no_token() {
        let server = ApiServer::new(ApiServerConfig::default());
        let users: Users = Arc::new(|_| None);
        let mut request = http::Request::new(());
        request.extensions_mut().insert(User::admin());
        let route = Route::parse("/api/v1/pods", Arc::default);
        let user = authenticate(&server, Some(&users), &request.into_parts().0, route.as_ref());
        assert_eq!(user.unwrap(), User::admin());
    }

    #[test]
    fn impersonation() {
        let ask = |given: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(*name, value.parse().unwrap());
            }
            impersonated(&headers).map_err(|status| status.code())
        };
        assert_eq!(ask(&[]), Ok(None));
        let alice =
            [("impersonate-user", "alice"), ("impersonate-group", "dev"), ("impersonate-group", "ops")];
        let alice = ask(&alice).unwrap().unwrap();
        assert_eq!(
            (&*alice.name, alice.groups.join(" ")),
            ("alice", "dev ops system:authenticated".to_owned())
        );
        assert_eq!(ask(&[("impersonate-user", "system:anonymous")]), Ok(Some(User::anonymous())));
        assert_eq!(ask(&[("impersonate-group", "dev")]), Err(500));
    }
}
