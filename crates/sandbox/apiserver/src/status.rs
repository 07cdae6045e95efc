use std::fmt;

use serde_json::{Value, json};

use crate::{
    Resource,
    field_error::{self, FieldError},
    json::{i64_at, list_at, str_at},
    patch::PatchError,
};

/// Machine-readable reason of a failure.
///
/// Upstream counterpart: `metav1.StatusReason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the documentation: they go over the wire as they are")]
pub enum StatusReason {
    AlreadyExists,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    NotImplemented,
    RequestEntityTooLarge,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unauthorized,
    /// No reason: upstream's status of an error without a type. The code is 500.
    Unknown,
    UnsupportedMediaType,
}

impl StatusReason {
    /// HTTP status code of the reason.
    pub const fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Expired => 410,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
            Self::InternalError | Self::Unknown => 500,
            Self::NotImplemented => 501,
            Self::ServiceUnavailable => 503,
            Self::Timeout => 504,
        }
    }
}

impl From<PatchError> for ApiStatus {
    fn from(error: PatchError) -> Self {
        let reason = match error.code {
            400 => StatusReason::BadRequest,
            413 => StatusReason::RequestEntityTooLarge,
            415 => StatusReason::UnsupportedMediaType,
            422 => StatusReason::Invalid,
            _ => StatusReason::InternalError,
        };
        match reason {
            StatusReason::Invalid => Self::generic(reason, error.message),
            _ => Self::new(reason, error.message),
        }
    }
}

impl fmt::Display for StatusReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => Ok(()),
            reason => fmt::Debug::fmt(reason, f),
        }
    }
}

/// Cause of a failure, for example an invalid field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusCause {
    /// Machine-readable reason, such as `FieldValueInvalid`.
    pub reason: String,
    /// Human-readable description.
    pub message: String,
    /// Path of the field, or empty.
    pub field: String,
}

/// Subject of a failure or a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusDetails {
    /// The object's name, or empty.
    pub name: String,
    /// The resource's group, empty for the core group.
    pub group: String,
    /// Plural resource name. For invalid objects and preconditions the kind, as upstream.
    pub kind: String,
    /// The object's UID, or empty.
    pub uid: String,
    /// Causes of the failure.
    pub causes: Vec<StatusCause>,
    /// Seconds after which the client may retry.
    pub retry_after_seconds: Option<u32>,
}

/// Failure response.
///
/// Upstream counterpart: `metav1.Status` within `errors.StatusError`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiStatus {
    /// Reason, which determines the HTTP status code.
    pub reason: StatusReason,
    /// Human-readable message, which `kubectl` prints.
    pub message: String,
    /// Subject and causes.
    pub details: Option<Box<StatusDetails>>,
    /// Continue token with which the client may continue after [`StatusReason::Expired`].
    pub continue_token: Option<String>,
    /// Code and reason that a webhook has chosen, in place of those of `reason`.
    pub chosen: Option<(u16, Box<str>)>,
}

impl ApiStatus {
    /// Creates a failure without details.
    pub fn new(reason: StatusReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), details: None, continue_token: None, chosen: None }
    }

    /// Failure with empty details.
    ///
    /// Upstream counterpart: `errors.NewGenericServerResponse` without a resource.
    fn generic(reason: StatusReason, message: impl Into<String>) -> Self {
        Self { details: Some(Box::default()), ..Self::new(reason, message) }
    }

    /// 400 Bad Request.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusReason::BadRequest, message)
    }

    /// 500 Internal Server Error.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(StatusReason::InternalError, format!("Internal error occurred: {message}"))
    }

    /// 500 with the cause of upstream's `errors.NewInternalError`.
    pub(crate) fn internal_error(error: &str) -> Self {
        Self::internal(error).with_cause("", error, "")
    }

    /// 504 of a request that took too long.
    pub(crate) fn request_timeout() -> Self {
        Self::generic(StatusReason::Timeout, "Timeout: request did not complete within requested timeout")
    }

    /// Failure whose code, reason and details an admission webhook has chosen.
    pub(crate) fn of_webhook(code: u16, reason: &str, message: String, details: Option<&Value>) -> Self {
        Self {
            details: details.map(|details| Box::new(StatusDetails::of(details))),
            chosen: Some((code, reason.into())),
            ..Self::new(StatusReason::Unknown, message)
        }
    }

    /// 404 for a missing object.
    pub fn not_found(resource: Resource, name: &str) -> Self {
        Self::for_object(
            StatusReason::NotFound,
            resource,
            name,
            format!("{} \"{name}\" not found", resource.qualified()),
        )
    }

    /// 409 for a name that exists.
    pub fn already_exists(resource: Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        Self::for_object(StatusReason::AlreadyExists, resource, name, message)
    }

    /// 409 for a write based on an outdated version.
    pub fn conflict(resource: Resource, name: &str, why: impl fmt::Display) -> Self {
        Self::conflict_on(&resource.qualified(), resource, name, why)
    }

    /// 409 for a write based on a version that is no longer the latest.
    ///
    /// Upstream counterpart: `OptimisticLockErrorMsg`.
    pub(crate) fn modified(resource: Resource, name: &str) -> Self {
        let reason =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, reason)
    }

    /// [`conflict`](Self::conflict) on a subresource such as `pods/binding`.
    pub(crate) fn conflict_on(what: &str, resource: Resource, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {what} \"{name}\": {why}");
        Self::for_object(StatusReason::Conflict, resource, name, message)
    }

    /// 409 that names the kind in place of the resource, as upstream for preconditions.
    pub(crate) fn conflict_of_kind(group: &str, kind: &str, name: &str, why: &str) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}");
        let (name, group, kind) = (name.to_owned(), group.to_owned(), kind.to_owned());
        let details = StatusDetails { name, group, kind, ..StatusDetails::default() };
        Self { details: Some(Box::new(details)), ..Self::new(StatusReason::Conflict, message) }
    }

    /// 403 Forbidden.
    pub fn forbidden(resource: Resource, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified());
        Self::for_object(StatusReason::Forbidden, resource, name, message)
    }

    /// 403 for an object of a resource in any of its groups.
    #[cfg(feature = "cel")]
    pub(crate) fn forbidden_in(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let qualified = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        let details = StatusDetails {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: plural.to_owned(),
            ..StatusDetails::default()
        };
        let message = format!("{qualified} \"{name}\" is forbidden: {why}");
        Self { details: Some(Box::new(details)), ..Self::new(StatusReason::Forbidden, message) }
    }

    /// 422 with all validation errors.
    pub fn invalid(kind: &str, group: &str, name: &str, errors: &[FieldError]) -> Self {
        let causes = errors
            .iter()
            .map(|error| StatusCause {
                reason: error.error_type.reason().to_owned(),
                message: error.message(),
                field: error.field.clone(),
            })
            .collect();
        Self::invalid_with(kind, group, name, &field_error::aggregate(errors), causes)
    }

    /// 422 for one field.
    pub(crate) fn invalid_field(
        kind: &str,
        group: &str,
        name: &str,
        field: &str,
        reason: &str,
        message: &str,
    ) -> Self {
        let cause =
            StatusCause { reason: reason.to_owned(), message: message.to_owned(), field: field.to_owned() };
        Self::invalid_with(kind, group, name, &format!("{field}: {message}"), vec![cause])
    }

    fn invalid_with(kind: &str, group: &str, name: &str, what: &str, causes: Vec<StatusCause>) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        Self {
            details: Some(Box::new(StatusDetails {
                name: name.to_owned(),
                group: group.to_owned(),
                kind: kind.to_owned(),
                causes,
                ..StatusDetails::default()
            })),
            ..Self::new(StatusReason::Invalid, format!("{qualified} \"{name}\" is invalid: {what}"))
        }
    }

    /// 410 for a watch or list of a revision that is no longer in the history.
    pub fn expired(position: u64, oldest: u64) -> Self {
        Self::new(StatusReason::Expired, format!("too old resource version: {position} ({oldest})"))
    }

    /// 504 for a read of a revision that does not exist yet.
    pub(crate) fn too_large_resource_version(requested: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {requested}, current: {current}");
        Self {
            details: Some(Box::new(StatusDetails {
                causes: vec![StatusCause {
                    reason: "ResourceVersionTooLarge".to_owned(),
                    message: "Too large resource version".to_owned(),
                    field: String::new(),
                }],
                retry_after_seconds: Some(1),
                ..StatusDetails::default()
            })),
            ..Self::new(StatusReason::Timeout, format!("Timeout: {message}"))
        }
    }

    /// 405 Method Not Allowed.
    pub fn method_not_allowed() -> Self {
        Self::generic(
            StatusReason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        )
    }

    /// 405 for a verb that a custom resource does not support.
    pub(crate) fn method_not_supported(resource: Resource, verb: &str) -> Self {
        let details = StatusDetails {
            group: resource.group().to_owned(),
            kind: resource.plural().to_owned(),
            ..StatusDetails::default()
        };
        let message = format!("{verb} is not supported on resources of kind \"{}\"", resource.qualified());
        Self { details: Some(Box::new(details)), ..Self::new(StatusReason::MethodNotAllowed, message) }
    }

    /// 415 for a body in none of the accepted media types.
    pub(crate) fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(StatusReason::UnsupportedMediaType, message)
    }

    /// 415 for a patch of an unknown type.
    pub(crate) fn unsupported_patch() -> Self {
        Self::generic(StatusReason::UnsupportedMediaType, "415: Unsupported Media Type")
    }

    /// 501 for a part of Kubernetes' API that is not served.
    pub(crate) fn not_implemented(part: &str) -> Self {
        let message = format!("{part} is not implemented by the embedded API server");
        Self::new(StatusReason::NotImplemented, message)
    }

    /// 404 for an unknown path in a served group.
    pub fn unknown_path() -> Self {
        Self::generic(StatusReason::NotFound, "the server could not find the requested resource")
    }

    /// Adds a cause, which distinguishes failures with the same reason.
    #[must_use]
    pub(crate) fn with_cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        self.details.get_or_insert_default().causes.push(StatusCause {
            reason: reason.to_owned(),
            message: message.into(),
            field: field.to_owned(),
        });
        self
    }

    /// Sets the number of seconds after which the client may retry.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = Some(seconds);
        self
    }

    fn for_object(reason: StatusReason, resource: Resource, name: &str, message: String) -> Self {
        Self {
            details: Some(Box::new(StatusDetails {
                name: name.to_owned(),
                group: resource.group().to_owned(),
                kind: resource.plural().to_owned(),
                ..StatusDetails::default()
            })),
            ..Self::new(reason, message)
        }
    }

    /// The HTTP status code.
    pub const fn code(&self) -> u16 {
        match &self.chosen {
            Some((code, _)) => *code,
            None => self.reason.code(),
        }
    }

    /// `true` if the object or the path does not exist.
    pub fn is_not_found(&self) -> bool {
        self.reason == StatusReason::NotFound
    }

    /// `true` if the object was changed concurrently or a precondition failed.
    pub fn is_conflict(&self) -> bool {
        self.reason == StatusReason::Conflict
    }

    /// `true` if the name exists.
    pub fn is_already_exists(&self) -> bool {
        self.reason == StatusReason::AlreadyExists
    }

    /// `true` if the requested revision is no longer in the history. The client must list again.
    pub fn is_expired(&self) -> bool {
        self.reason == StatusReason::Expired
    }

    /// The `v1.Status` object.
    pub fn to_value(&self) -> Value {
        let mut metadata = json!({});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = json!(token);
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code(),
        });
        let reason = match &self.chosen {
            Some((_, reason)) => reason.to_string(),
            None => self.reason.to_string(),
        };
        if !reason.is_empty() {
            status["reason"] = json!(reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        status
    }
}

impl StatusDetails {
    /// Reads the `details` member of a `v1.Status`.
    fn of(details: &Value) -> Self {
        let text = |field: &str| str_at(details, &[field]).to_owned();
        let cause = |cause: &Value| {
            let text = |field: &str| str_at(cause, &[field]).to_owned();
            StatusCause { reason: text("reason"), message: text("message"), field: text("field") }
        };
        let seconds = i64_at(details, &["retryAfterSeconds"]).filter(|seconds| *seconds != 0);
        Self {
            name: text("name"),
            group: text("group"),
            kind: text("kind"),
            uid: text("uid"),
            causes: list_at(details, &["causes"]).iter().map(cause).collect(),
            retry_after_seconds: seconds.and_then(|seconds| seconds.try_into().ok()),
        }
    }

    /// The `details` member of a `v1.Status`.
    pub(crate) fn to_value(&self) -> Value {
        let mut value = json!({});
        let texts = [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)];
        for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            value[key] = json!(text);
        }
        if !self.causes.is_empty() {
            value["causes"] = self.causes.iter().map(StatusCause::to_value).collect();
        }
        if let Some(seconds) = self.retry_after_seconds {
            value["retryAfterSeconds"] = json!(seconds);
        }
        value
    }
}

impl StatusCause {
    fn to_value(&self) -> Value {
        let members =
            [("reason", &self.reason), ("message", &self.message), ("field", &self.field)].into_iter();
        members.filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name, text.as_str())).collect()
    }
}
