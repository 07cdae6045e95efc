//! Authorization of requests by roles and bindings.
//!
//! Upstream counterpart: `WithAuthorization`, `RequestInfoFactory`, and the checks of `pkg/registry/rbac` that users grant
//! only what they may do themselves.

use std::sync::Arc;

use http::{HeaderMap, Method, request::Parts};
use http_body_util::BodyExt;
use serde_json::Value;

use super::{
    query::{Query, percent_decode},
    response::ApiResponse,
    user,
};
use crate::{
    ApiServer, ApiStatus, Object, Resource, StatusDetails, StatusReason, User,
    json::str_at,
    rbac::{self, Attributes, MASTERS, Policy},
    service_account::split_username,
};

/// API group of roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Returns the attributes of a request.
pub(super) fn attributes(parts: &Parts, query: &Query) -> Attributes {
    let path = parts.uri.path();
    let segments: Vec<_> = path.split('/').filter(|part| !part.is_empty()).map(percent_decode).collect();
    let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    let (group, rest) = match segments.as_slice() {
        ["api", _, rest @ ..] if !rest.is_empty() => ("", rest),
        ["apis", group, _, rest @ ..] if !rest.is_empty() => (*group, rest),
        _ => {
            let verb = parts.method.as_str().to_lowercase();
            return Attributes { verb, path: Some(path.to_owned()), ..Attributes::default() };
        }
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, resource, ..] if !matches!(*resource, "status" | "finalize") => {
            (*namespace, rest.get(2..).unwrap_or_default())
        }
        ["namespaces", namespace, ..] => (*namespace, rest),
        _ => ("", rest),
    };
    let part = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
    let selected = || {
        let mut terms = query.get("fieldSelector").unwrap_or_default().split(',');
        terms.find_map(|term| term.strip_prefix("metadata.name=")).unwrap_or_default().to_owned()
    };
    let name = part(1);
    let verb = match (parts.method.as_str(), name.is_empty()) {
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        _ if query.flag("watch").unwrap_or_default() => "watch",
        (_, true) => "list",
        (_, false) => "get",
    };
    Attributes {
        verb: verb.to_owned(),
        path: None,
        group: group.to_owned(),
        resource: part(0),
        subresource: part(2),
        namespace: namespace.to_owned(),
        name: if matches!(verb, "list" | "watch") && name.is_empty() { selected() } else { name },
    }
}

/// Authorizes a request of a user.
///
/// # Errors
///
/// 403 if no rule allows it.
pub(super) fn authorize(server: &ApiServer, user: &User, request: &Attributes) -> Result<(), ApiStatus> {
    let decision = server.policy(&request.namespace, user).authorize(user, request);
    if decision.allowed {
        return Ok(());
    }
    let mut message = request.forbidden(&user.name);
    if !decision.reason.is_empty() {
        message += &format!(": {}", decision.reason);
    }
    Err(forbidden(&request.group, &request.resource, &request.name, &message))
}

/// 403 for a resource, or with an empty one for a path.
pub(super) fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> ApiStatus {
    let qualified = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let message = match (resource, name) {
        ("", _) => format!("forbidden: {why}"),
        (_, "") => format!("{qualified} is forbidden: {why}"),
        _ => format!("{qualified} {name:?} is forbidden: {why}"),
    };
    let details = StatusDetails {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: resource.to_owned(),
        ..StatusDetails::default()
    };
    ApiStatus { details: Some(Box::new(details)), ..ApiStatus::new(StatusReason::Forbidden, message) }
}

/// Authorizes the impersonation of a user and its groups.
///
/// # Errors
///
/// 403 if the user may not impersonate one of them.
pub(super) fn authorize_impersonation(
    server: &ApiServer,
    user: &User,
    impersonated: &User,
    headers: &HeaderMap,
) -> Result<(), ApiStatus> {
    let request = |resource: &str, name: &str| Attributes {
        verb: "impersonate".to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    let name = &impersonated.name;
    let mut requests = vec![match split_username(name) {
        Some((namespace, account)) => {
            Attributes { namespace: namespace.to_owned(), ..request("serviceaccounts", account) }
        }
        None => request("users", name),
    }];
    requests.extend(user::impersonated_groups(headers).iter().map(|group| request("groups", group)));
    if !impersonated.uid.is_empty() {
        let group = "authentication.k8s.io".to_owned();
        requests.push(Attributes { group, ..request("uids", &impersonated.uid) });
    }
    for (key, values) in &impersonated.extra {
        requests.extend(values.iter().map(|value| Attributes {
            group: "authentication.k8s.io".to_owned(),
            subresource: key.clone(),
            ..request("userextras", value)
        }));
    }
    requests.iter().try_for_each(|request| authorize(server, user, request))
}

/// `true` if the write may grant rules, and the user must hold them.
pub(super) fn may_grant(method: &Method, user: &User, request: &Attributes) -> bool {
    request.group == GROUP
        && request.path.is_none()
        && [Method::POST, Method::PUT, Method::PATCH].contains(method)
        && !user.is_in(MASTERS)
}

/// Checks that a user holds the rules that a role or binding grants. `preview` is the response to a dry run of the write.
///
/// # Errors
///
/// 403 if the user does not hold them, 404 if the role of a binding does not exist.
pub(super) async fn check_grant(
    server: &ApiServer,
    user: &User,
    request: &Attributes,
    preview: ApiResponse,
) -> Result<(), ApiStatus> {
    let body =
        preview.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let object: Value = serde_json::from_slice(&body).unwrap_or_default();
    let policy = server.policy(&request.namespace, user);
    let name = str_at(&object, &["metadata", "name"]);
    let may = |verb: &str, resource: &str, name: &str| {
        let (verb, resource, name) = (verb.to_owned(), resource.to_owned(), name.to_owned());
        let subresource = String::new();
        policy.authorize(user, &Attributes { verb, resource, subresource, name, ..request.clone() }).allowed
    };
    let granted = if request.resource.ends_with("bindings") {
        let role = |field| str_at(&object, &["roleRef", field]);
        let (kind, role) = (role("kind"), role("name"));
        if may("bind", if kind == "Role" { "roles" } else { "clusterroles" }, role) {
            return Ok(());
        }
        let missing = |message| ApiStatus::new(StatusReason::NotFound, message);
        policy.role(kind, role).map_err(missing)?
    } else if may("escalate", &request.resource, &request.name) {
        return Ok(());
    } else {
        rbac::rules_of(&object)
    };
    match rbac::escalation(user, &policy.rules(user), &granted) {
        Some(message) => Err(forbidden(&request.group, &request.resource, name, &message)),
        None => Ok(()),
    }
}

impl ApiServer {
    /// Roles and bindings for requests in a namespace. Empty for a user that needs none.
    pub(crate) fn policy(&self, namespace: &str, user: &User) -> Policy {
        if user.is_in(MASTERS) {
            return Policy::default();
        }
        let all = |plural: &str, namespace: &str| -> Vec<Arc<Object>> {
            let Some(resource) = Resource::find(GROUP, plural) else { return Vec::new() };
            self.registry.store.read(|state| state.iter(resource, namespace).collect())
        };
        let own = |plural| if namespace.is_empty() { Vec::new() } else { all(plural, namespace) };
        Policy {
            namespace: namespace.to_owned(),
            cluster_roles: all("clusterroles", ""),
            cluster_role_bindings: all("clusterrolebindings", ""),
            roles: own("roles"),
            role_bindings: own("rolebindings"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_paths() {
        let check = |method: &str, uri: &str, expected: &str| {
            let request = http::Request::builder().method(method).uri(uri).body(()).unwrap();
            let query = Query::parse(request.uri().query().unwrap_or_default());
            let found = attributes(&request.into_parts().0, &query);
            assert_eq!(found.forbidden("u"), format!("User \"u\" cannot {expected}"), "{uri}");
        };
        check("GET", "/healthz", "get path \"/healthz\"");
        check("GET", "/apis/apps/v1", "get path \"/apis/apps/v1\"");
        check(
            "GET",
            "/api/v1/pods?watch=1",
            "watch resource \"pods\" in API group \"\" at the cluster scope",
        );
        check(
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection resource \"deployments\" in API group \"apps\" in the namespace \"a\"",
        );
        check(
            "PUT",
            "/api/v1/namespaces/a/pods/p/status",
            "update resource \"pods/status\" in API group \"\" in the namespace \"a\"",
        );
        check(
            "PUT",
            "/api/v1/namespaces/a/finalize",
            "update resource \"namespaces/finalize\" in API group \"\" in the namespace \"a\"",
        );
        check(
            "GET",
            "/api/v1/namespaces/a",
            "get resource \"namespaces\" in API group \"\" in the namespace \"a\"",
        );
    }
}
