//! Access reviews and other virtual resources. All authenticated users are authorized for everything.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    body::{Content, decode_any},
    options::write_options,
    program::Program,
    query::Query,
    response::{self, ApiResponse},
    route::{Review, ReviewKind},
    user::User,
    verbs::success,
};
use crate::{
    ApiServer, ApiStatus,
    json::{set, str_at},
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
    let mut object = decode_any(content)?;
    let (api_version, kind) = (review.kind.api_version(), review.kind.kind());
    for (member, expected) in [("apiVersion", api_version), ("kind", kind)] {
        let given = str_at(&object, &[member]);
        if !given.is_empty() && given != expected {
            return Err(ApiStatus::bad_request(format!("{member} is {given:?}, expected {expected:?}")));
        }
        set(&mut object, &[member], expected);
    }
    let status = match review.kind {
        ReviewKind::Binding => {
            let name = str_at(&object, &["metadata", "name"]);
            server.registry.bind(&review.namespace, name, &object, &options)?;
            return Ok(response::json(StatusCode::CREATED, &success(None)));
        }
        ReviewKind::SelfSubjectAccess | ReviewKind::SubjectAccess | ReviewKind::LocalSubjectAccess => {
            json!({"allowed": true, "reason": "the embedded API server allows every request"})
        }
        ReviewKind::SelfSubjectRules => json!({
            "incomplete": false,
            "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
            "resourceRules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        }),
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
    if object.get("metadata").is_none_or(Value::is_null) {
        set(&mut object, &["metadata"], json!({}));
    }
    Ok(response::json(StatusCode::CREATED, &object))
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        set(&mut info, &["uid"], user.uid.as_str());
    }
    info
}
