//! Errors of requests to the API server.

use std::{error::Error as StdError, fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Failed request.
///
/// A [`Status`] is displayed as its message alone, as upstream, because events and conditions contain it.
#[derive(Debug, Clone, Error)]
pub enum ApiError {
    /// The API server rejected the request.
    #[error("{}", .0.message)]
    Status(Box<Status>),
    /// There was no response in time. The request may have taken effect.
    #[error("{0}: request timed out")]
    Timeout(String),
    /// No connection could be established. The request was not sent.
    #[error(transparent)]
    NotSent(ErrorCause),
    /// The caller's input is no valid request. Nothing was sent.
    #[error(transparent)]
    InvalidRequest(ErrorCause),
    /// The connection broke. The request may have taken effect.
    #[error(transparent)]
    Transport(ErrorCause),
    /// The response could not be decoded.
    #[error(transparent)]
    Decode(ErrorCause),
    /// This process does not lead. The request was not sent, or it was sent while the process led and its response
    /// was not awaited.
    #[error("{0}: this process does not lead")]
    NotLeading(String),
}

/// Description of a failure, with the error that caused it.
///
/// The description contains the text of the error. [`source`](StdError::source) returns the error itself, for callers that
/// distinguish causes.
#[derive(Debug, Clone, Default)]
pub struct ErrorCause {
    text: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl ErrorCause {
    /// Creates the description of a failure: the text of `source`.
    pub fn of(source: impl StdError + Send + Sync + 'static) -> Self {
        Self::new(source.to_string(), source)
    }

    /// Creates the description of a failure that `source` caused.
    pub fn new(text: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { text: text.into(), source: Some(Arc::from(source.into())) }
    }
}

impl From<String> for ErrorCause {
    fn from(text: String) -> Self {
        Self { text, source: None }
    }
}

impl From<&str> for ErrorCause {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl fmt::Display for ErrorCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for ErrorCause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Body of an error response.
///
/// Upstream counterpart: `metav1.Status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// `Success` or `Failure`.
    pub status: String,
    /// Description of the error.
    pub message: String,
    /// Machine-readable reason, see [`reason`].
    pub reason: String,
    /// Further details.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// HTTP status code.
    pub code: u16,
    /// `true` if an earlier attempt of the same request had no definite answer. Set by the client.
    #[serde(skip)]
    pub follows_lost_attempt: bool,
}

/// Details of a [`Status`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusDetails {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Kind or resource of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// UID of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Individual errors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// Time to wait before the request is sent again, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

/// Individual error of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusCause {
    /// Machine-readable reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Description.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Path of the invalid field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// Values of [`Status::reason`] that the controllers distinguish.
pub mod reason {
    /// The object does not exist.
    pub const NOT_FOUND: &str = "NotFound";
    /// An object with this name exists.
    pub const ALREADY_EXISTS: &str = "AlreadyExists";
    /// The object has changed since it was read.
    pub const CONFLICT: &str = "Conflict";
    /// The object is invalid.
    pub const INVALID: &str = "Invalid";
    /// The request is not allowed.
    pub const FORBIDDEN: &str = "Forbidden";
    /// The requested resource version is no longer available.
    pub const EXPIRED: &str = "Expired";
    /// Same as [`EXPIRED`], from older API servers.
    pub const GONE: &str = "Gone";
    /// The API server did not complete the request in time.
    pub const TIMEOUT: &str = "Timeout";
    /// The client has sent too many requests.
    pub const TOO_MANY_REQUESTS: &str = "TooManyRequests";
}

/// [`StatusCause::reason`] of a create that was rejected because the namespace is being deleted.
pub const CAUSE_NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

impl ApiError {
    /// Creates an error as an API server returns it. For test servers, and for checks before a request.
    pub fn status(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self::Status(Box::new(Status {
            status: "Failure".to_owned(),
            message: message.into(),
            reason: reason.to_owned(),
            details: None,
            code,
            follows_lost_attempt: false,
        }))
    }

    /// `true` if the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.is(reason::NOT_FOUND, 404)
    }

    /// `true` if the API server has no object with the name and UID of the request.
    pub fn is_object_missing(&self) -> bool {
        let Self::Status(status) = self else { return false };
        // Webhooks and proxies may answer with the same codes.
        let is_of_object = status.details.as_ref().is_some_and(|details| !details.name.is_empty())
            && !status.message.contains("denied the request");
        is_of_object
            && match &*status.reason {
                reason::NOT_FOUND => true,
                reason::CONFLICT => status.message.contains("Precondition failed: UID in precondition: "),
                _ => false,
            }
    }

    /// `true` if an object with this name exists.
    pub fn is_already_exists(&self) -> bool {
        // The code is not sufficient: 409 is also the code of a conflict.
        self.reason() == Some(reason::ALREADY_EXISTS)
    }

    /// `true` if the object has changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.reason() == Some(reason::CONFLICT)
    }

    /// `true` if the object is invalid.
    pub fn is_invalid(&self) -> bool {
        self.is(reason::INVALID, 422)
    }

    /// `true` if the request is not allowed.
    pub fn is_forbidden(&self) -> bool {
        self.is(reason::FORBIDDEN, 403)
    }

    /// `true` if the API server rejected the credentials, or its authorizer rejected the request: a token has expired
    /// or a role is missing. `false` for rejections by quotas, admission policies and webhooks, which also have code
    /// 403.
    ///
    /// A [`Status`] does not name the rejecting component, so the message is compared with those of the API server.
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

    /// `true` if the requested resource version is no longer available. The caller should list again.
    pub fn is_expired(&self) -> bool {
        matches!(self.reason(), Some(reason::EXPIRED | reason::GONE)) || self.code() == Some(410)
    }

    /// `true` if the client has sent too many requests.
    pub fn is_too_many_requests(&self) -> bool {
        self.is(reason::TOO_MANY_REQUESTS, 429)
    }

    /// `true` if `cause` is among the individual errors.
    pub fn has_cause(&self, cause: &str) -> bool {
        let Self::Status(status) = self else { return false };
        status.details.iter().flat_map(|details| &details.causes).any(|c| c.reason == cause)
    }

    /// `true` if a create was rejected because the namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        self.has_cause(CAUSE_NAMESPACE_TERMINATING)
    }

    /// `true` if this process does not lead. Such requests should not be retried, and not be reported in events or
    /// conditions.
    pub fn is_not_leading(&self) -> bool {
        matches!(self, Self::NotLeading(_))
    }

    /// `true` if the request may have taken effect, or may take effect later.
    ///
    /// This includes 408 and 5xx responses: they can come from a proxy, or from a server whose storage did not respond in
    /// time.
    pub fn may_have_taken_effect(&self) -> bool {
        match self {
            Self::Status(status) => status.follows_lost_attempt || matches!(status.code, 408 | 500..),
            Self::NotSent(_) | Self::InvalidRequest(_) => false,
            Self::Timeout(_) | Self::Transport(_) | Self::Decode(_) | Self::NotLeading(_) => true,
        }
    }

    /// `true` if the request has not taken effect and never will, because it was not sent, or was refused for its content
    /// or its sender: 4xx except 408, 409 and 429.
    pub fn is_definite_refusal(&self) -> bool {
        !self.may_have_taken_effect() && !matches!(self.code(), Some(..400 | 409 | 429))
    }

    /// `true` if the error says nothing about the content of the request: the API server was not available, overloaded, or
    /// not reached, or the object has changed since it was read.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Status(status) => self.is_conflict() || matches!(status.code, 408 | 429 | 500..),
            Self::NotSent(_) | Self::Timeout(_) | Self::Transport(_) => true,
            Self::InvalidRequest(_) | Self::Decode(_) | Self::NotLeading(_) => false,
        }
    }

    /// Returns the error of a request of which an earlier attempt may have taken effect.
    #[must_use]
    pub fn after_lost_attempt(self) -> Self {
        match self {
            Self::Status(mut status) => {
                status.follows_lost_attempt = true;
                Self::Status(status)
            }
            Self::NotSent(description) => Self::Transport(description),
            other => other,
        }
    }

    /// Returns the time to wait before the request is sent again, in seconds.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        let Self::Status(status) = self else { return None };
        status.details.as_ref()?.retry_after_seconds
    }

    /// Returns the HTTP status code of the response.
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

    /// Compares the reason, or the code if there is no reason, as in responses of proxies.
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
    fn status_round_trip() {
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
    fn display_is_the_message() {
        assert_eq!(ApiError::status(403, reason::FORBIDDEN, "exceeded quota").to_string(), "exceeded quota");
        assert_eq!(
            ApiError::Timeout("POST /api/v1/pods".to_owned()).to_string(),
            "POST /api/v1/pods: request timed out"
        );
    }

    #[test]
    fn source_is_the_cause() {
        let cause = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let error = ApiError::Transport(ErrorCause::of(cause()));
        assert_eq!(error.to_string(), cause().to_string());
        for error in [error.clone(), ApiError::NotSent(ErrorCause::new("", error)).after_lost_attempt()] {
            let mut causes = std::iter::successors(error.source(), |error| StdError::source(*error));
            assert!(causes.any(<dyn StdError>::is::<std::io::Error>), "{error:?}");
        }
        assert!(ApiError::Decode("not JSON".into()).source().is_none());
    }

    #[test]
    fn reason_distinguishes_equal_codes() {
        let conflict = ApiError::status(409, reason::CONFLICT, "");
        let exists = ApiError::status(409, reason::ALREADY_EXISTS, "");
        assert_eq!((conflict.is_conflict(), conflict.is_already_exists()), (true, false));
        assert_eq!((exists.is_conflict(), exists.is_already_exists()), (false, true));
    }

    #[test]
    fn object_with_another_uid_is_not_the_one_of_the_request() {
        let is_missing = |code: u16, reason: &str, message: &str, name: &str| {
            let details = json!({"name": name});
            let body = json!({"code": code, "reason": reason, "message": message, "details": details});
            refusal(body).is_object_missing()
        };
        assert!(is_missing(404, reason::NOT_FOUND, "deployments.apps \"web\" not found", "web"));
        assert!(!is_missing(404, reason::NOT_FOUND, "page not found", ""));
        let webhook = "admission webhook \"a.b\" denied the request: not found";
        assert!(!is_missing(404, reason::NOT_FOUND, webhook, "web"));
        let other = "invalid object, Precondition failed: UID in precondition: a, UID in object meta: b";
        assert!(is_missing(409, reason::CONFLICT, other, "web"));
        assert!(!is_missing(409, reason::CONFLICT, "the object has been modified", "web"));
        assert!(!is_missing(409, reason::ALREADY_EXISTS, other, "web"));
    }

    #[test]
    fn code_is_used_without_reason() {
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
    fn temporary_excludes_refusals() {
        for code in [408, 429, 500, 503, 504] {
            assert!(ApiError::status(code, "", "").is_temporary(), "{code}");
        }
        for code in [400, 401, 403, 404, 409, 410, 422] {
            assert!(!ApiError::status(code, "", "").is_temporary(), "{code}");
        }
        assert!(ApiError::status(409, reason::CONFLICT, "").is_temporary());
        assert!(!ApiError::status(409, reason::ALREADY_EXISTS, "").is_temporary());
        assert!(ApiError::NotSent("no connection".into()).is_temporary());
        assert!(!ApiError::NotLeading("create".to_owned()).is_temporary());
    }

    #[test]
    fn access_denied_excludes_admission() {
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
        assert!(!ApiError::Transport("Unauthorized".into()).is_access_denied());
    }

    #[test]
    fn expired_has_two_reasons_and_a_code() {
        for (code, reason) in [(410, reason::EXPIRED), (410, reason::GONE), (410, ""), (0, reason::EXPIRED)] {
            assert!(ApiError::status(code, reason, "").is_expired(), "{code} {reason}");
        }
        assert!(!ApiError::status(500, "", "").is_expired());
    }

    #[test]
    fn namespace_terminating_is_a_cause() {
        let body = json!({
            "reason": "Forbidden", "code": 403,
            "details": {"causes": [{"reason": "Other"}, {"reason": "NamespaceTerminating"}]},
        });
        let error = refusal(body);
        assert!(error.is_namespace_terminating() && error.is_forbidden());
        assert!(!ApiError::status(403, reason::FORBIDDEN, "").is_namespace_terminating());
    }

    #[test]
    fn rejected_and_unsent_requests_have_no_effect() {
        for code in [400, 403, 404, 409, 422, 429] {
            assert!(!ApiError::status(code, "", "").may_have_taken_effect(), "{code}");
        }
        assert!(!ApiError::NotSent(ErrorCause::default()).may_have_taken_effect());
        assert!(!ApiError::InvalidRequest(ErrorCause::default()).may_have_taken_effect());
        for code in [408, 500, 502, 503, 504] {
            assert!(ApiError::status(code, "", "").may_have_taken_effect(), "{code}");
        }
        for error in [
            ApiError::Timeout(String::new()),
            ApiError::Transport(ErrorCause::default()),
            ApiError::Decode(ErrorCause::default()),
            ApiError::NotLeading(String::new()),
        ] {
            assert!(error.may_have_taken_effect(), "{error:?}");
        }
    }

    #[test]
    fn definite_refusals() {
        for code in [400, 401, 403, 404, 413, 415, 422] {
            assert!(ApiError::status(code, "", "").is_definite_refusal(), "{code}");
        }
        assert!(ApiError::NotSent(ErrorCause::default()).is_definite_refusal());
        assert!(ApiError::InvalidRequest(ErrorCause::default()).is_definite_refusal());
        for code in [302, 408, 409, 429, 500, 503, 504] {
            assert!(!ApiError::status(code, "", "").is_definite_refusal(), "{code}");
        }
        for error in [
            ApiError::Timeout(String::new()),
            ApiError::Transport(ErrorCause::default()),
            ApiError::Decode(ErrorCause::default()),
            ApiError::NotLeading(String::new()),
        ] {
            assert!(!error.is_definite_refusal(), "{error:?}");
        }
    }

    #[test]
    fn nothing_is_definite_after_a_lost_attempt() {
        for error in [ApiError::status(403, "", "quota"), ApiError::NotSent("refused".into())] {
            let text = error.to_string();
            let after = error.after_lost_attempt();
            assert!(after.may_have_taken_effect() && !after.is_definite_refusal(), "{after:?}");
            assert_eq!(after.to_string(), text);
        }
    }

    #[test]
    fn errors_without_response_have_no_code() {
        for error in [
            ApiError::Timeout(String::new()),
            ApiError::NotSent(ErrorCause::default()),
            ApiError::Transport(ErrorCause::default()),
            ApiError::Decode(ErrorCause::default()),
            ApiError::NotLeading(String::new()),
        ] {
            assert_eq!((error.code(), error.retry_after_seconds()), (None, None));
            assert!(!error.is_not_found() && !error.is_conflict() && !error.is_expired());
        }
    }
}
