//! What an API server, or the way to it, can answer instead of an object.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A failed request.
///
/// Displays as upstream's errors do: a [`Status`] as its message alone, because events and conditions quote it.
#[derive(Debug, Clone, Error)]
pub enum ApiError {
    /// The server understood and said no.
    #[error("{}", .0.message)]
    Status(Box<Status>),
    /// No answer came in time. The request may or may not have taken effect.
    #[error("{0}: request timed out")]
    Timeout(String),
    /// No connection came about, so nothing was sent.
    #[error("{0}")]
    NotSent(String),
    /// The connection broke. The request may have taken effect.
    #[error("{0}")]
    Transport(String),
    /// An answer came that is not what the request asks for.
    #[error("{0}")]
    Decode(String),
    /// This process is not, or no longer, the one that may write. The request was not sent; or it was, while the
    /// process still was, and nobody waited for the answer.
    #[error("{0}: this process does not lead")]
    NotLeading(String),
}

/// The body of a refusal.
///
/// Upstream counterpart: `metav1.Status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// `Success` or `Failure`.
    pub status: String,
    /// For people.
    pub message: String,
    /// For machines; see the `reason` constants of this module.
    pub reason: String,
    /// More for machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status code.
    pub code: u16,
}

/// What a [`Status`] is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusDetails {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The group of its kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its kind, or the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Its UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Each thing that was wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// How long to wait before the same request makes sense again, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

/// One thing that was wrong with a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusCause {
    /// For machines.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the field at fault.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// Values of [`Status::reason`] that decisions depend on.
pub mod reason {
    /// There is no such object.
    pub const NOT_FOUND: &str = "NotFound";
    /// There is one of that name already.
    pub const ALREADY_EXISTS: &str = "AlreadyExists";
    /// The object has changed since it was read.
    pub const CONFLICT: &str = "Conflict";
    /// The object breaks a rule.
    pub const INVALID: &str = "Invalid";
    /// The caller may not do this.
    pub const FORBIDDEN: &str = "Forbidden";
    /// The version asked for is no longer kept.
    pub const EXPIRED: &str = "Expired";
    /// The same, as older servers say it.
    pub const GONE: &str = "Gone";
    /// The server gave up.
    pub const TIMEOUT: &str = "Timeout";
    /// The server asks to be asked again.
    pub const SERVER_TIMEOUT: &str = "ServerTimeout";
    /// The caller asks too often.
    pub const TOO_MANY_REQUESTS: &str = "TooManyRequests";
}

/// The [`StatusCause::reason`] with which a create is refused in a namespace that is going away.
pub const CAUSE_NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

impl ApiError {
    /// A refusal made up on this side: for doubles of a server in tests, and for checks before a request.
    pub fn status(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self::Status(Box::new(Status {
            status: "Failure".to_owned(),
            message: message.into(),
            reason: reason.to_owned(),
            details: None,
            code,
        }))
    }

    /// There is no such object.
    pub fn is_not_found(&self) -> bool {
        self.is(reason::NOT_FOUND, 404)
    }

    /// There is an object of that name already.
    pub fn is_already_exists(&self) -> bool {
        // 409 alone could as well be a conflict.
        self.reason() == Some(reason::ALREADY_EXISTS)
    }

    /// The object has changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.reason() == Some(reason::CONFLICT)
    }

    /// The object breaks a rule.
    pub fn is_invalid(&self) -> bool {
        self.is(reason::INVALID, 422)
    }

    /// The caller may not do this.
    pub fn is_forbidden(&self) -> bool {
        self.is(reason::FORBIDDEN, 403)
    }

    /// The API server refused the caller's credentials, or its authorizer refused the request: a token has expired or a
    /// role is missing. `false` for refusals by quotas, admission policies and webhooks, which have code 403 too.
    ///
    /// A [`Status`] does not contain the refusing component, so the message is compared with those of the API server.
    ///
    /// Upstream counterpart of the messages: `responsewriters.Forbidden`, and the admission plugin
    /// `OwnerReferencesPermissionEnforcement`.
    pub fn is_access_denied(&self) -> bool {
        let Self::Status(status) = self else { return false };
        let denied_by_authorizer = || {
            let user = status.message.split_once("forbidden: User \"");
            user.is_some_and(|(_, rest)| rest.contains("\" cannot "))
                || status.message.contains("refers to a resource you can't set finalizers on")
        };
        match status.code {
            401 => true,
            403 => denied_by_authorizer(),
            _ => false,
        }
    }

    /// The version asked for is no longer kept: list anew.
    pub fn is_expired(&self) -> bool {
        matches!(self.reason(), Some(reason::EXPIRED | reason::GONE)) || self.code() == Some(410)
    }

    /// The caller asks too often.
    pub fn is_too_many_requests(&self) -> bool {
        self.is(reason::TOO_MANY_REQUESTS, 429)
    }

    /// The refusal names `cause` among what was wrong.
    pub fn has_cause(&self, cause: &str) -> bool {
        let Self::Status(status) = self else { return false };
        status.details.iter().flat_map(|details| &details.causes).any(|c| c.reason == cause)
    }

    /// A create was refused because the namespace is going away.
    pub fn is_namespace_terminating(&self) -> bool {
        self.has_cause(CAUSE_NAMESPACE_TERMINATING)
    }

    /// This process may not write. Trying again helps no sooner than it leads again, and nobody is to be told.
    pub fn is_not_leading(&self) -> bool {
        matches!(self, Self::NotLeading(_))
    }

    /// Whether a request that ended like this may have been carried out, or may yet be.
    ///
    /// A 5xx may come from a proxy, or from a server that lost patience with its storage: neither knows. What an answer
    /// that cannot be read means nobody knows either.
    pub fn may_have_taken_effect(&self) -> bool {
        match self {
            Self::Status(status) => status.code >= 500,
            Self::NotSent(_) => false,
            Self::Timeout(_) | Self::Transport(_) | Self::Decode(_) | Self::NotLeading(_) => true,
        }
    }

    /// How long the server asks to wait, in seconds.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        let Self::Status(status) = self else { return None };
        status.details.as_ref()?.retry_after_seconds
    }

    /// The HTTP status code, when the server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(status.code),
            _ => None,
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Status(status) => Some(&status.reason),
            _ => None,
        }
    }

    /// By reason; by code when the answer came from something that gives none, such as a proxy.
    fn is(&self, reason: &str, code: u16) -> bool {
        match self {
            Self::Status(status) if status.reason.is_empty() => status.code == code,
            Self::Status(status) => status.reason == reason,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(body: serde_json::Value) -> ApiError {
        ApiError::Status(Box::new(serde_json::from_value(body).unwrap()))
    }

    #[test]
    fn refusal_of_a_server_is_read_and_written_whole() {
        let body = json!({
            "status": "Failure", "message": "pods \"web\" already exists", "reason": "AlreadyExists", "code": 409,
            "details": {"name": "web", "kind": "pods", "retryAfterSeconds": 3,
                        "causes": [{"reason": "FieldValueInvalid", "message": "no", "field": "spec"}]},
        });
        let status: Status = serde_json::from_value(body.clone()).unwrap();
        assert_eq!(serde_json::to_value(&status).unwrap(), body);
        assert_eq!(refusal(body).retry_after_seconds(), Some(3));
    }

    #[test]
    fn refusal_is_shown_as_its_message_alone() {
        assert_eq!(ApiError::status(403, reason::FORBIDDEN, "exceeded quota").to_string(), "exceeded quota");
        assert_eq!(
            ApiError::Timeout("POST /api/v1/pods".to_owned()).to_string(),
            "POST /api/v1/pods: request timed out"
        );
    }

    #[test]
    fn refusals_of_one_code_are_told_apart_by_reason() {
        let conflict = ApiError::status(409, reason::CONFLICT, "");
        let exists = ApiError::status(409, reason::ALREADY_EXISTS, "");
        assert_eq!((conflict.is_conflict(), conflict.is_already_exists()), (true, false));
        assert_eq!((exists.is_conflict(), exists.is_already_exists()), (false, true));
    }

    #[test]
    fn refusal_without_a_reason_is_known_by_its_code() {
        assert!(ApiError::status(404, "", "").is_not_found());
        assert!(ApiError::status(422, "", "").is_invalid());
        assert!(ApiError::status(403, "", "").is_forbidden());
        assert!(ApiError::status(429, "", "").is_too_many_requests());
        assert!(
            !ApiError::status(404, reason::FORBIDDEN, "").is_not_found(),
            "the reason counts where there is one"
        );
        let ambiguous = ApiError::status(409, "", "");
        assert!(!ambiguous.is_conflict() && !ambiguous.is_already_exists());
    }

    #[test]
    fn access_is_denied_by_authenticator_and_authorizer_and_not_by_admission() {
        let denied = [
            (401, "Unauthorized"),
            (
                403,
                r#"pods is forbidden: User "kcm" cannot create resource "pods" in API group "" in the namespace "a""#,
            ),
            (
                403,
                r#"leases.coordination.k8s.io "kcm" is forbidden: User "kcm" cannot get resource "leases" in API group "coordination.k8s.io" in the namespace "kube-system": RBAC: role.rbac.authorization.k8s.io "x" not found"#,
            ),
            (403, r#"forbidden: User "system:anonymous" cannot get path "/healthz""#),
            (
                403,
                "pods \"web-1\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you \
                 can't set finalizers on: , <nil>",
            ),
        ];
        for (code, message) in denied {
            assert!(ApiError::status(code, reason::FORBIDDEN, message).is_access_denied(), "{message}");
        }
        let admission = [
            (
                403,
                r#"pods "web-1" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2"#,
            ),
            (
                403,
                r#"pods "web-1" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true"#,
            ),
            (
                403,
                r#"pods "web-1" is forbidden: unable to create new content in namespace a because it is being terminated"#,
            ),
            (403, r#"admission webhook "policy.example.com" denied the request: no"#),
            (403, "GET /healthz: the server answered 403 without an explanation"),
            (422, r#"Pod "web-1" is invalid: spec: Forbidden: User "kcm" cannot be changed"#),
            (404, r#"pods "web-1" not found"#),
        ];
        for (code, message) in admission {
            assert!(!ApiError::status(code, "", message).is_access_denied(), "{message}");
        }
        assert!(!ApiError::Transport("Unauthorized".to_owned()).is_access_denied());
    }

    #[test]
    fn expired_version_is_known_by_either_name_or_by_code() {
        for (code, reason) in [(410, reason::EXPIRED), (410, reason::GONE), (410, ""), (0, reason::EXPIRED)] {
            assert!(ApiError::status(code, reason, "").is_expired(), "{code} {reason}");
        }
        assert!(!ApiError::status(500, "", "").is_expired());
    }

    #[test]
    fn namespace_that_is_going_away_is_known_by_the_cause() {
        let body = json!({
            "reason": "Forbidden", "code": 403,
            "details": {"causes": [{"reason": "Other"}, {"reason": "NamespaceTerminating"}]},
        });
        let error = refusal(body);
        assert!(error.is_namespace_terminating() && error.is_forbidden());
        assert!(!ApiError::status(403, reason::FORBIDDEN, "").is_namespace_terminating());
    }

    #[test]
    fn request_that_was_refused_or_never_sent_has_not_taken_effect_and_any_other_may_have() {
        for code in [400, 403, 404, 409, 422, 429] {
            assert!(!ApiError::status(code, "", "").may_have_taken_effect(), "{code}");
        }
        assert!(!ApiError::NotSent(String::new()).may_have_taken_effect());
        for code in [500, 502, 503, 504] {
            assert!(ApiError::status(code, "", "").may_have_taken_effect(), "{code}");
        }
        for error in [
            ApiError::Timeout(String::new()),
            ApiError::Transport(String::new()),
            ApiError::Decode(String::new()),
            ApiError::NotLeading(String::new()),
        ] {
            assert!(error.may_have_taken_effect(), "{error:?}");
        }
    }

    #[test]
    fn failure_without_an_answer_is_none_of_the_refusals() {
        for error in [
            ApiError::Timeout(String::new()),
            ApiError::NotSent(String::new()),
            ApiError::Transport(String::new()),
            ApiError::Decode(String::new()),
            ApiError::NotLeading(String::new()),
        ] {
            assert_eq!((error.code(), error.retry_after_seconds()), (None, None));
            assert!(!error.is_not_found() && !error.is_conflict() && !error.is_expired());
        }
    }
}
