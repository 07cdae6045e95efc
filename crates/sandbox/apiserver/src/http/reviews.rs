//! Access reviews and other virtual resources. All authenticated users are authorized for everything.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    body::{Content, decode_object},
    options::write_options,
    program::Program,
    query::Query,
    response::{self, ApiResponse},
    route::{Review, ReviewKind},
    user::User,
    verbs::created,
};
use crate::{
    ApiServer, ApiStatus,
    json::{set, str_at},
    registry::check_namespace,
};

/// User of a request, and the parts of the service that a program adds.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    pub(super) user: &'a User,
    pub(super) program: &'a Program,
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
            json!({"allowed": true})
        }
        ReviewKind::SelfSubjectRules => {
            if str_at(&object, &["spec", "namespace"]).is_empty() {
                return Err(ApiStatus::bad_request("no namespace on request"));
            }
            // As upstream, the response has no spec.
            set(&mut object, &["spec"], json!({}));
            json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            })
        }
        ReviewKind::SelfSubject => json!({"userInfo": user_info(caller.user)}),
        ReviewKind::Token => {
            let token = str_at(&object, &["spec", "token"]);
            match (&caller.program.users, caller.program.users.as_ref().and_then(|users| users(token))) {
                (_, Some(user)) => json!({"authenticated": true, "user": user_info(&user)}),
                (Some(_), None) => json!({"error": "unknown token", "user": {}}),
                (None, _) => {
                    json!({"authenticated": false, "error": "the embedded API server has no tokens configured", "user": {}})
                }
            }
        }
    };
    set(&mut object, &["status"], status);
    let mut response = response::json(StatusCode::CREATED, &object);
    response::warn(&mut response, &warnings);
    Ok(response)
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        set(&mut info, &["uid"], user.uid.as_str());
    }
    info
}
