use std::fmt;

use serde_json::{Value, json};

use crate::{
    Resource,
    patch::PatchError,
    validate::{self, FieldError},
};

/// Why a request failed, in a word that clients act upon.
///
/// Upstream counterpart: `metav1.StatusReason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the documentation: they go over the wire as they are")]
pub enum Reason {
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
    UnsupportedMediaType,
}

impl Reason {
    /// The HTTP status code that goes with the reason.
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
            Self::InternalError => 500,
            Self::NotImplemented => 501,
            Self::ServiceUnavailable => 503,
            Self::Timeout => 504,
        }
    }
}

impl From<PatchError> for ApiStatus {
    fn from(error: PatchError) -> Self {
        let reason = match error.code {
            400 => Reason::BadRequest,
            413 => Reason::RequestEntityTooLarge,
            415 => Reason::UnsupportedMediaType,
            422 => Reason::Invalid,
            _ => Reason::InternalError,
        };
        Self::new(reason, error.message)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One of several causes of a failure, such as one invalid field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The machine-readable reason, such as `FieldValueInvalid`.
    pub reason: String,
    /// What is wrong, for people.
    pub message: String,
    /// Which field it is about, or empty.
    pub field: String,
}

/// What a failure (or a removal) is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// The object's name, or empty.
    pub name: String,
    /// The resource's group, empty for the core group.
    pub group: String,
    /// The plural resource name, or for invalid objects and preconditions the kind: upstream is not of one mind.
    pub kind: String,
    /// The object's uid, or empty.
    pub uid: String,
    /// Each thing that is wrong.
    pub causes: Vec<Cause>,
    /// After how many seconds a retry makes sense.
    pub retry_after_seconds: Option<u32>,
}

/// The answer to a request that could not be served.
///
/// Upstream counterpart: `metav1.Status` with `errors.StatusError` around it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiStatus {
    /// The reason, which implies the HTTP code.
    pub reason: Reason,
    /// The text for people; what `kubectl` prints.
    pub message: String,
    /// What it is about.
    pub details: Option<Box<Details>>,
    /// The continue token that a client may go on with after [`Reason::Expired`].
    pub continue_token: Option<String>,
}

impl ApiStatus {
    /// A failure with nothing but a reason and a text.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), details: None, continue_token: None }
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// 500.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(Reason::InternalError, format!("Internal error occurred: {message}"))
    }

    /// 404 for an object.
    pub fn not_found(resource: Resource, name: &str) -> Self {
        Self::about(
            Reason::NotFound,
            resource,
            name,
            format!("{} \"{name}\" not found", resource.qualified()),
        )
    }

    /// 409 for a name that is taken.
    pub fn already_exists(resource: Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        Self::about(Reason::AlreadyExists, resource, name, message)
    }

    /// 409 for a write that builds on what is no longer so.
    pub fn conflict(resource: Resource, name: &str, why: impl fmt::Display) -> Self {
        Self::conflict_on(&resource.qualified(), resource, name, why)
    }

    /// [`conflict`](Self::conflict) on a subresource, spelt `pods/binding`.
    pub(crate) fn conflict_on(what: &str, resource: Resource, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {what} \"{name}\": {why}");
        Self::about(Reason::Conflict, resource, name, message)
    }

    /// 403.
    pub fn forbidden(resource: Resource, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified());
        Self::about(Reason::Forbidden, resource, name, message)
    }

    /// 422 with every error that validation found.
    pub fn invalid(kind: &str, group: &str, name: &str, errors: &[FieldError]) -> Self {
        let causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.error_type.reason().to_owned(),
                message: error.message(),
                field: error.field.clone(),
            })
            .collect();
        Self::invalid_with(kind, group, name, &validate::aggregate(errors), causes)
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
        let cause = Cause { reason: reason.to_owned(), message: message.to_owned(), field: field.to_owned() };
        Self::invalid_with(kind, group, name, &format!("{field}: {message}"), vec![cause])
    }

    fn invalid_with(kind: &str, group: &str, name: &str, what: &str, causes: Vec<Cause>) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        Self {
            details: Some(Box::new(Details {
                name: name.to_owned(),
                group: group.to_owned(),
                kind: kind.to_owned(),
                causes,
                ..Details::default()
            })),
            ..Self::new(Reason::Invalid, format!("{qualified} \"{name}\" is invalid: {what}"))
        }
    }

    /// 410 for a watch that starts, or has fallen, before what is remembered.
    pub fn expired(position: u64, oldest: u64) -> Self {
        Self::new(Reason::Expired, format!("too old resource version: {position} ({oldest})"))
    }

    /// 504 for a read that asks for a future state.
    pub(crate) fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        Self {
            details: Some(Box::new(Details {
                causes: vec![Cause {
                    reason: "ResourceVersionTooLarge".to_owned(),
                    message: "Too large resource version".to_owned(),
                    field: String::new(),
                }],
                retry_after_seconds: Some(1),
                ..Details::default()
            })),
            ..Self::new(Reason::Timeout, format!("Timeout: {message}"))
        }
    }

    /// 405.
    pub(crate) fn method_not_allowed() -> Self {
        Self::new(Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
    }

    /// 404 for a path that leads nowhere.
    pub(crate) fn unknown_path() -> Self {
        Self {
            details: Some(Box::default()),
            ..Self::new(Reason::NotFound, "the server could not find the requested resource")
        }
    }

    /// Adds a cause, for clients that tell failures of one reason apart.
    #[must_use]
    pub(crate) fn with_cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        self.details.get_or_insert_default().causes.push(Cause {
            reason: reason.to_owned(),
            message: message.into(),
            field: field.to_owned(),
        });
        self
    }

    /// Sets after how many seconds the client should try again.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = Some(seconds);
        self
    }

    fn about(reason: Reason, resource: Resource, name: &str, message: String) -> Self {
        Self {
            details: Some(Box::new(Details {
                name: name.to_owned(),
                group: resource.group().to_owned(),
                kind: resource.plural().to_owned(),
                ..Details::default()
            })),
            ..Self::new(reason, message)
        }
    }

    /// The HTTP status code.
    pub const fn code(&self) -> u16 {
        self.reason.code()
    }

    /// Whether the object (or path) is not there.
    pub fn is_not_found(&self) -> bool {
        self.reason == Reason::NotFound
    }

    /// Whether a write lost a race, or a precondition did not hold.
    pub fn is_conflict(&self) -> bool {
        self.reason == Reason::Conflict
    }

    /// Whether the name was taken.
    pub fn is_already_exists(&self) -> bool {
        self.reason == Reason::AlreadyExists
    }

    /// Whether a watch or a list asked for history that is gone: list again.
    pub fn is_expired(&self) -> bool {
        self.reason == Reason::Expired
    }

    /// The `v1.Status` object that goes over the wire.
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
            "reason": self.reason.to_string(),
            "code": self.code(),
        });
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        status
    }
}

impl Details {
    /// The `details` member of a `v1.Status`.
    pub(crate) fn to_value(&self) -> Value {
        let mut value = json!({});
        let texts = [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)];
        for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            value[key] = json!(text);
        }
        if !self.causes.is_empty() {
            value["causes"] = self.causes.iter().map(Cause::to_value).collect();
        }
        if let Some(seconds) = self.retry_after_seconds {
            value["retryAfterSeconds"] = json!(seconds);
        }
        value
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut value = json!({"reason": self.reason, "message": self.message});
        if !self.field.is_empty() {
            value["field"] = json!(self.field);
        }
        value
    }
}
