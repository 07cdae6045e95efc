//! Questions about who may do what. There is one user, who may do everything.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    answer::{self, Answer},
    body::{Content, decode_any},
    options::write_options,
    query::Query,
    route::{Review, ReviewKind},
    verbs::success,
};
use crate::{
    ApiServer, ApiStatus,
    json::{set, str_at},
};

/// Who every request comes from: over plain HTTP there is no identity.
pub(super) const USER: &str = "system:admin";
const GROUPS: [&str; 2] = ["system:masters", "system:authenticated"];

/// Answers a question.
pub(super) fn review(
    server: &ApiServer,
    method: &Method,
    review: &Review,
    query: &Query,
    content: &Content,
) -> Result<Answer, ApiStatus> {
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
            return Ok(answer::json(StatusCode::CREATED, &success(None)));
        }
        ReviewKind::SelfSubjectAccess | ReviewKind::SubjectAccess | ReviewKind::LocalSubjectAccess => {
            json!({"allowed": true, "reason": "the embedded API server refuses nobody"})
        }
        ReviewKind::SelfSubjectRules => json!({
            "incomplete": false,
            "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
            "resourceRules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        }),
        ReviewKind::SelfSubject => json!({"userInfo": {"username": USER, "groups": GROUPS}}),
        ReviewKind::Token => {
            json!({"authenticated": false, "error": "the embedded API server knows no tokens", "user": {}})
        }
    };
    set(&mut object, &["status"], status);
    if object.get("metadata").is_none_or(Value::is_null) {
        set(&mut object, &["metadata"], json!({}));
    }
    Ok(answer::json(StatusCode::CREATED, &object))
}
