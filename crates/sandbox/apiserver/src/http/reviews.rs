//! Access reviews and other virtual resources.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    body::{Content, decode_object},
    options::write_options,
    program::Program,
    query::Query,
    response::{self, ApiResponse},
    route::{Review, ReviewKind},
    seat::Seat,
    user::{User, review_token},
    verbs::created,
};
use crate::{
    ApiServer, ApiStatus,
    json::{at, list_at, set, str_at},
    rbac::{Attributes, MASTERS},
    registry::check_namespace,
};

/// User of a request, and the parts of the service that a program adds.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    pub(super) user: &'a User,
    pub(super) program: &'a Program,
    /// Seat of a write. `None` if webhooks are not called.
    pub(super) seat: Option<&'a Seat>,
    /// Failure of an update or patch that would create the object. `None` if the user may create it.
    pub(super) creation_refused: Option<&'a ApiStatus>,
}

/// Responds to a review.
pub(super) fn review(
    server: &ApiServer,
    method: &Method,
    review: &Review,
    query: &Query,
    content: &Content,
    caller: Caller<'_>,
) -> Result<ApiResponse, ApiStatus> {
    if method != Method::POST {
        return Err(ApiStatus::method_not_allowed());
    }
    let options = write_options(query, "CreateOptions")?;
    let (api_version, kind) = (review.kind.api_version(), review.kind.kind());
    let (mut object, warnings) = decode_object(content, api_version, kind, options.field_validation)?;
    check_namespace(&review.namespace, &object)?;
    let status = match review.kind {
        ReviewKind::Binding => {
            let name = str_at(&object, &["metadata", "name"]);
            if name.is_empty() {
                return Err(ApiStatus::bad_request("Name parameter required."));
            }
            server.registry.bind(&review.namespace, name, &object, &options)?;
            return Ok(created());
        }
        ReviewKind::SelfSubjectAccess | ReviewKind::SubjectAccess | ReviewKind::LocalSubjectAccess => {
            let mut status = json!({"allowed": true});
            if server.config.rbac {
                let asked = match review.kind {
                    ReviewKind::SelfSubjectAccess => caller.user.clone(),
                    _ => user_in(&object),
                };
                let request = attributes_in(&object);
                let decision = server.policy(&request.namespace, &asked).authorize(&asked, &request);
                status = json!({"allowed": decision.allowed});
                if !decision.reason.is_empty() {
                    set(&mut status, &["reason"], decision.reason);
                }
            }
            status
        }
        ReviewKind::SelfSubjectRules => {
            if str_at(&object, &["spec", "namespace"]).is_empty() {
                return Err(ApiStatus::bad_request("no namespace on request"));
            }
            let namespace = str_at(&object, &["spec", "namespace"]).to_owned();
            // As upstream, the response has no spec.
            set(&mut object, &["spec"], json!({}));
            own_rules(server, caller.user, &namespace)
        }
        ReviewKind::SelfSubject => json!({"userInfo": caller.user.to_value()}),
        ReviewKind::Token => {
            let token = str_at(&object, &["spec", "token"]);
            if token.is_empty() {
                let message = "token is required for TokenReview in authentication";
                return Err(ApiStatus::bad_request(message));
            }
            let audiences = list_at(&object, &["spec", "audiences"]).iter().filter_map(Value::as_str);
            let audiences: Vec<String> = audiences.map(str::to_owned).collect();
            review_token(server, caller.program.users.as_ref(), token, &audiences)
        }
    };
    if review.kind == ReviewKind::LocalSubjectAccess {
        set(&mut object, &["metadata", "namespace"], review.namespace.as_str());
    }
    set(&mut object, &["status"], status);
    let mut response = response::json(StatusCode::CREATED, &object);
    response::warn(&mut response, &warnings);
    Ok(response)
}

/// User that the spec of an access review names.
fn user_in(review: &Value) -> User {
    let text = |field| str_at(review, &["spec", field]).to_owned();
    let groups = list_at(review, &["spec", "groups"]).iter().filter_map(Value::as_str);
    User {
        name: text("user"),
        uid: text("uid"),
        groups: groups.map(str::to_owned).collect(),
        ..User::default()
    }
}

/// Request that the spec of an access review describes.
fn attributes_in(review: &Value) -> Attributes {
    let text = |part, field| str_at(review, &["spec", part, field]).to_owned();
    if at(review, &["spec", "nonResourceAttributes"]).is_some() {
        let of = |field| text("nonResourceAttributes", field);
        return Attributes { verb: of("verb"), path: Some(of("path")), ..Attributes::default() };
    }
    let of = |field| text("resourceAttributes", field);
    Attributes {
        verb: of("verb"),
        path: None,
        group: of("group"),
        resource: of("resource"),
        subresource: of("subresource"),
        namespace: of("namespace"),
        name: of("name"),
    }
}

/// Rules of a user, as in the status of a SelfSubjectRulesReview.
fn own_rules(server: &ApiServer, user: &User, namespace: &str) -> Value {
    let mut resource_rules = Vec::new();
    let mut other_rules = Vec::new();
    if !server.config.rbac || user.is_in(MASTERS) {
        resource_rules.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        other_rules.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    for rule in server.policy(namespace, user).rules(user) {
        if !rule.resources.is_empty() {
            let mut entry =
                json!({"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources});
            if !rule.resource_names.is_empty() {
                set(&mut entry, &["resourceNames"], rule.resource_names);
            }
            resource_rules.push(entry);
        }
        if !rule.non_resource_urls.is_empty() {
            other_rules.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    json!({"resourceRules": resource_rules, "nonResourceRules": other_rules, "incomplete": false})
}
